//! The engine that keeps everything in this process.

mod settings;
mod table;

use std::collections::{BTreeSet, HashMap};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};

use damper_core::{
    Advice, Ask, AskId, Asked, BreakerCause, BreakerState, BreakerView, Decision, Dependency, Force,
    LEARNS_FOR, Moment, Policy, Report, Snapshot, Span, TenantUsage, TokenId, Transition,
};
use parking_lot::{Mutex, MutexGuard, RwLock};
use tokio::sync::{Notify, broadcast, oneshot};
use tokio::time::{Instant, sleep_until};

pub use settings::Configured;

use crate::token::Seal;
use crate::{EngineError, Settings};
use table::Table;

/// Changes that a watcher may fall behind before it has to start over from a snapshot.
const CHANGES_KEPT: usize = 1024;

/// The engine that keeps everything in this process. Cheap to clone; all clones are one engine.
///
/// Has to be made and used within a tokio runtime, whose clock it reads: under a paused clock it lives in
/// virtual time.
#[derive(Clone, Debug)]
pub struct MemoryEngine(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    started: Instant,
    table: RwLock<Table>,
    seal: Seal,
    changes: broadcast::Sender<Change>,
}

/// One dependency, its lock, and whoever waits for its decisions.
#[derive(Debug)]
struct Entry {
    name: Arc<str>,
    place: usize,
    guarded: Mutex<Guarded>,
    /// Rung when the next wake-up may have come closer.
    rearm: Notify,
    /// When it was last asked or synced, in nanoseconds of the engine's clock.
    used: AtomicU64,
}

#[derive(Debug)]
struct Guarded {
    dependency: Dependency,
    waiters: HashMap<AskId, Vec<oneshot::Sender<Decided>>>,
    /// The revision that watchers have been told of.
    told: u64,
    /// It is not in the table any more: whoever still holds it looks its name up again.
    gone: bool,
}

/// What becomes of an ask.
#[derive(Debug)]
pub enum Asking {
    /// Decided.
    Decided(Decided),
    /// It waits in the delay queue.
    Waiting(Ticket),
}

/// A decision, with its token as peers see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decided {
    /// The decision.
    pub decision: Decision,
    /// The token, if granted.
    pub token: Option<String>,
}

/// A place in the delay queue. Resolves to the decision; dropping it before leaves the queue.
#[derive(Debug)]
pub struct Ticket {
    engine: MemoryEngine,
    entry: Arc<Entry>,
    id: AskId,
    decided: oneshot::Receiver<Decided>,
}

/// What watchers are told.
#[derive(Clone, Debug)]
pub enum Change {
    /// A breaker changed its state.
    Breaker {
        /// Whose.
        dependency: Arc<str>,
        /// Which tenant's, if tenants have their own.
        tenant: Option<Arc<str>>,
        /// The state before the change; the same as after it if only the version rose.
        from: BreakerState,
        /// Why it changed.
        cause: BreakerCause,
        /// The breaker after the change.
        breaker: BreakerView,
    },
    /// A hold or a policy changed, or the dependency is new or was forgotten.
    Dependency {
        /// Whose.
        dependency: Arc<str>,
    },
}

impl Change {
    /// The dependency that changed.
    #[must_use]
    pub fn dependency(&self) -> &Arc<str> {
        match self {
            Self::Breaker { dependency, .. } | Self::Dependency { dependency } => dependency,
        }
    }
}

/// What a watcher sees of a dependency.
#[derive(Clone, Debug)]
pub struct Watched {
    /// The breaker.
    pub breaker: BreakerView,
    /// Tenants that are held, and for how long.
    pub holds: Vec<(Box<str>, Span)>,
    /// The policy in force.
    pub policy: Arc<Policy>,
}

impl MemoryEngine {
    /// An engine with a fresh [`Dependency`] for every configured one.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let engine = Self(Arc::new(Shared {
            started: Instant::now(),
            table: RwLock::default(),
            seal: Seal::default(),
            changes: broadcast::channel(CHANGES_KEPT).0,
        }));
        engine.adopt(settings);
        engine
    }

    /// Decides an ask, or gives it a place in the delay queue. An unknown dependency is made if the settings
    /// say so.
    ///
    /// # Errors
    /// The dependency is refused, or the ask can never be decided. Nothing is charged.
    pub fn ask(&self, dependency: &str, ask: &Ask) -> Result<Asking, EngineError> {
        if self.known(dependency).is_none() {
            // What cannot be decided makes no dependency.
            self.check(dependency, ask)?;
        }
        self.with(dependency, |entry, mut guarded| {
            let asked = guarded.dependency.ask(self.now(), ask).map_err(EngineError::Ask);
            self.settle(entry, &mut guarded);
            match asked? {
                Asked::Decided(decision) => {
                    if guarded.dependency.policy().shadow() {
                        // The answer is given, but the ask may have taken a place in the queue.
                        entry.rearm.notify_one();
                    }
                    Ok(Asking::Decided(self.decided(entry, decision)))
                }
                Asked::Waiting(id) => {
                    let (sender, decided) = oneshot::channel();
                    guarded.waiters.entry(id).or_default().push(sender);
                    drop(guarded);
                    entry.rearm.notify_one();
                    Ok(Asking::Waiting(Ticket {
                        engine: self.clone(),
                        entry: Arc::clone(entry),
                        id,
                        decided,
                    }))
                }
            }
        })?
    }

    /// Whether an ask could be decided, without deciding it or making its dependency.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub fn check(&self, dependency: &str, ask: &Ask) -> Result<(), EngineError> {
        let checked = match self.known(dependency) {
            Some(entry) => entry.guarded.lock().dependency.check(ask),
            None => {
                let policy = self.0.table.read().policy_of_unknown()?;
                Dependency::new(self.now(), policy, 0).check(ask)
            }
        };
        checked.map_err(EngineError::Ask)
    }

    /// Makes a dependency if it is unknown and the settings say so.
    ///
    /// # Errors
    /// The dependency is refused.
    pub fn admit(&self, dependency: &str) -> Result<(), EngineError> {
        self.entry(dependency).map(drop)
    }

    /// Gives an unused token back. False if it was not out; nothing is credited then.
    #[must_use]
    pub fn return_token(&self, token: &str) -> bool {
        let Some((place, token)) = self.0.seal.read(token) else { return false };
        let entry = self.0.table.read().at(place);
        entry.is_some_and(|entry| {
            self.transition(&entry, |dependency, now| dependency.return_token(now, token))
        })
    }

    /// Takes a client's report about a dependency, which is made if it is unknown and the settings say so.
    /// `probes` are the results of probes by their tokens; they take the place of `report.probes`.
    ///
    /// # Errors
    /// The dependency is refused.
    pub fn sync<'a>(
        &self,
        dependency: &str,
        mut report: Report,
        probes: Option<impl Iterator<Item = (&'a str, bool)>>,
    ) -> Result<Advice, EngineError> {
        self.with(dependency, |entry, guarded| {
            report.probes = probes.map(|probes| {
                probes.filter_map(|(token, success)| Some((self.token_of(entry, token)?, success))).collect()
            });
            self.step(entry, guarded, |dependency, now| dependency.sync(now, &report))
        })
    }

    /// Forces the breaker of a dependency into a state, or releases it with [`None`]. False if it is unknown.
    #[must_use]
    pub fn force_breaker(&self, dependency: &str, force: Option<Force>) -> bool {
        let Some(entry) = self.known(dependency) else { return false };
        self.transition(&entry, |dependency, now| dependency.force_breaker(now, force));
        true
    }

    /// The names of all dependencies, in order.
    #[must_use]
    pub fn names(&self) -> Vec<Arc<str>> {
        self.0.table.read().names()
    }

    /// One dependency, if it is known.
    #[must_use]
    pub fn snapshot(&self, dependency: &str) -> Option<Snapshot> {
        let entry = self.known(dependency)?;
        Some(self.transition(&entry, Dependency::snapshot))
    }

    /// What the tenants of one dependency came to, if it is known; see
    /// [`Dependency::tenant_usage`](damper_core::Dependency::tenant_usage).
    #[must_use]
    pub fn tenant_usage(
        &self,
        dependency: &str,
        known: &BTreeSet<Box<str>>,
        room: usize,
    ) -> Option<TenantUsage> {
        let entry = self.known(dependency)?;
        Some(self.transition(&entry, |dependency, now| dependency.tenant_usage(now, known, room)))
    }

    /// How long this engine goes on learning who holds what; zero once it knows.
    #[must_use]
    pub fn learns_for(&self) -> Span {
        Moment::ORIGIN.after(LEARNS_FOR).from_now(self.now())
    }

    /// What a watcher sees of one dependency, if it is known: with `tenant`, the breaker that this tenant meets,
    /// else the least closed one.
    #[must_use]
    pub fn watched(&self, dependency: &str, tenant: Option<&str>) -> Option<Watched> {
        let entry = self.known(dependency)?;
        Some(self.transition(&entry, |dependency, now| Watched {
            breaker: match tenant {
                Some(tenant) => dependency.breaker(now, tenant),
                None => dependency.overall_breaker(now),
            },
            holds: dependency.holds(now),
            policy: Arc::clone(dependency.policy()),
        }))
    }

    /// Everything that changes from now on. A watcher that falls too far behind has to start over.
    #[must_use]
    pub fn changes(&self) -> broadcast::Receiver<Change> {
        self.0.changes.subscribe()
    }

    /// The present moment of this engine.
    #[must_use]
    pub fn now(&self) -> Moment {
        let nanos = Instant::now().duration_since(self.0.started).as_nanos();
        Moment::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    fn known(&self, name: &str) -> Option<Arc<Entry>> {
        self.0.table.read().get(name)
    }

    /// The entry of `name`, which is made if the settings say so.
    fn entry(&self, name: &str) -> Result<Arc<Entry>, EngineError> {
        if let Some(entry) = self.known(name) {
            return Ok(entry);
        }
        let mut table = self.0.table.write();
        if let Some(entry) = table.get(name) {
            return Ok(entry);
        }
        self.make_room(&mut table);
        let policy = table.policy_of_unknown()?;
        if table.is_full() {
            return Err(EngineError::TooManyDependencies);
        }
        Ok(self.insert(&mut table, name, &policy))
    }

    /// Does something with the locked entry of `name`: if it was forgotten meanwhile, with its successor.
    fn with<T>(
        &self,
        name: &str,
        step: impl FnOnce(&Arc<Entry>, MutexGuard<'_, Guarded>) -> T,
    ) -> Result<T, EngineError> {
        loop {
            let entry = self.entry(name)?;
            let guarded = entry.guarded.lock();
            if !guarded.gone {
                entry.used.store(self.now().as_nanos(), Ordering::Relaxed);
                return Ok(step(&entry, guarded));
            }
        }
    }

    /// One transition of a dependency, and everything that follows from it.
    fn transition<T>(&self, entry: &Entry, step: impl FnOnce(&mut Dependency, Moment) -> T) -> T {
        self.step(entry, entry.guarded.lock(), step)
    }

    fn step<T>(
        &self,
        entry: &Entry,
        mut guarded: MutexGuard<'_, Guarded>,
        step: impl FnOnce(&mut Dependency, Moment) -> T,
    ) -> T {
        let result = step(&mut guarded.dependency, self.now());
        self.settle(entry, &mut guarded);
        drop(guarded);
        entry.rearm.notify_one();
        result
    }

    /// Answers whoever waited and tells watchers what changed; under the lock, so that what they are told of
    /// one dependency comes in the order in which it happened.
    fn settle(&self, entry: &Entry, guarded: &mut MutexGuard<'_, Guarded>) {
        for (id, decision) in guarded.dependency.take_released() {
            let decided = self.decided(entry, decision);
            for waiter in guarded.waiters.remove(&id).into_iter().flatten() {
                // One that hung up in this very moment returns its token by letting it expire.
                let _ = waiter.send(decided.clone());
            }
        }
        let transitions = guarded.dependency.take_transitions();
        if guarded.gone {
            // Its name may have a successor by now, of which this would be no news.
            return;
        }
        for Transition { tenant, from, cause, breaker } in transitions {
            let (dependency, tenant) = (Arc::clone(&entry.name), tenant.map(Arc::from));
            let _ = self.0.changes.send(Change::Breaker { dependency, tenant, from, cause, breaker });
        }
        let seen = guarded.dependency.revision();
        if seen != std::mem::replace(&mut guarded.told, seen) {
            let _ = self.0.changes.send(Change::Dependency { dependency: Arc::clone(&entry.name) });
        }
    }

    fn decided(&self, entry: &Entry, decision: Decision) -> Decided {
        let token = decision.grant.map(|grant| self.0.seal.write(entry.place, grant.token));
        Decided { decision, token }
    }

    fn token_of(&self, entry: &Entry, token: &str) -> Option<TokenId> {
        let (place, token) = self.0.seal.read(token)?;
        (place == entry.place).then_some(token)
    }

    fn instant(&self, moment: Moment) -> Option<Instant> {
        self.0.started.checked_add(std::time::Duration::from_nanos(moment.as_nanos()))
    }

    /// Takes an ask out of the queue unless somebody else still waits for it.
    fn leave(&self, entry: &Entry, id: AskId) {
        let mut guarded = entry.guarded.lock();
        let Some(waiters) = guarded.waiters.get_mut(&id) else { return };
        waiters.retain(|waiter| !waiter.is_closed());
        if waiters.is_empty() {
            guarded.waiters.remove(&id);
            guarded.dependency.cancel(self.now(), id);
            self.settle(entry, &mut guarded);
            entry.rearm.notify_one();
        }
    }
}

/// Wakes a dependency when its time has come, for as long as its engine keeps it.
async fn tend(shared: Weak<Shared>, entry: Arc<Entry>) {
    loop {
        let Some(engine) = shared.upgrade().map(MemoryEngine) else { return };
        let Ok(next) = engine.wake(&entry) else { return };
        drop(engine);
        match next {
            Some(at) => {
                tokio::select! { biased; () = sleep_until(at) => {}, () = entry.rearm.notified() => {} }
            }
            None => entry.rearm.notified().await,
        }
    }
}

/// The dependency was forgotten.
struct Gone;

impl MemoryEngine {
    /// Does what time has brought; the moment of the next wake-up.
    fn wake(&self, entry: &Entry) -> Result<Option<Instant>, Gone> {
        let mut guarded = entry.guarded.lock();
        if guarded.gone {
            return Err(Gone);
        }
        guarded.dependency.poll(self.now());
        self.settle(entry, &mut guarded);
        Ok(guarded.dependency.next_wakeup().and_then(|moment| self.instant(moment)))
    }
}

impl Drop for Shared {
    /// Lets the tending tasks see that the engine is gone.
    fn drop(&mut self) {
        for entry in self.table.get_mut().entries() {
            entry.rearm.notify_one();
        }
    }
}

impl Future for Ticket {
    type Output = Result<Decided, EngineError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let decided = ready!(Pin::new(&mut self.decided).poll(context));
        Poll::Ready(decided.map_err(|_| EngineError::Stopped))
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.decided.close();
        self.engine.leave(&self.entry, self.id);
    }
}

#[cfg(test)]
mod tests;
