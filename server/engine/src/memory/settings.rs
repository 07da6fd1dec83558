//! Settings that change while the engine lives.
//!
//! Everything here holds the table's lock, so that no dependency is made by settings that are just going. It is
//! taken before the lock of an entry, never after.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use damper_core::{BreakerVersion, Decision, Dependency, Moment, Policy, Reason, Span};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::table::Table;
use super::{Change, Decided, Entry, Guarded, MemoryEngine, Watched, tend};
use crate::{EngineError, Settings};

/// A dependency that came with an ask or a report and was not used for so long may lose its place. Clients sync
/// every second.
const IDLE: Span = Span::from_secs(600);

/// What became of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Configured {
    /// The dependency is new.
    Made,
    /// It had another one.
    Changed,
    /// It was in force already.
    Unchanged,
}

impl MemoryEngine {
    /// Adopts settings: every dependency is decided by them from now on, the others by the defaults. Balances,
    /// queues and windows are kept; one whose policy stays the same notices nothing. The names of those with a
    /// policy that is new to them, in order.
    pub fn adopt(&self, settings: Settings) -> Vec<Arc<str>> {
        let mut table = self.0.table.write();
        table.settings = settings;
        let Settings { defaults, dependencies, .. } = table.settings.clone();
        let mut changed: Vec<Arc<str>> = table
            .entries()
            .filter_map(|entry| {
                let policy = dependencies.get(&*entry.name).unwrap_or(&defaults);
                (self.reconfigure(entry, policy) == Configured::Changed).then(|| Arc::clone(&entry.name))
            })
            .collect();
        for (name, policy) in &dependencies {
            if table.get(name).is_none() {
                changed.push(Arc::clone(&self.insert(&mut table, name, policy).name));
            }
        }
        changed.sort_unstable();
        changed
    }

    /// Gives a dependency a policy, until settings are adopted. It is made if it is unknown; balances are kept.
    ///
    /// # Errors
    /// There is no place for another dependency.
    pub fn configure(&self, dependency: &str, policy: &Arc<Policy>) -> Result<Configured, EngineError> {
        let mut table = self.0.table.write();
        if let Some(entry) = table.get(dependency) {
            return Ok(self.reconfigure(&entry, policy));
        }
        if table.is_full() {
            return Err(EngineError::TooManyDependencies);
        }
        self.insert(&mut table, dependency, policy);
        Ok(Configured::Made)
    }

    /// Forgets a dependency: whoever waits is answered, its tokens are void, and watchers are told that it changed:
    /// what they see of it is [`unused`](Self::unused) from then on. False if it is unknown. Under the same name a new
    /// one may be made, which starts as any new one does, with a breaker whose version is higher.
    #[must_use]
    pub fn forget(&self, dependency: &str) -> bool {
        self.remove(&mut self.0.table.write(), dependency)
    }

    /// What a watcher sees of a dependency that is unknown, and was known before: as it would be if somebody named it.
    #[must_use]
    pub fn unused(&self) -> Watched {
        let (now, table) = (self.now(), self.0.table.read());
        let policy = Arc::clone(&table.settings.defaults);
        let breaker = table.fresh(now, &policy, 0).overall_breaker(now);
        Watched { breaker, holds: Vec::new(), policy }
    }

    /// In a full table, the dependency that was idle longest makes room, if it was idle long enough.
    pub(super) fn make_room(&self, table: &mut Table) {
        let now = self.now();
        if table.is_full()
            && now.since(Moment::ORIGIN) > IDLE
            && let Some(name) = table.idlest(Moment::from_nanos(now.as_nanos() - IDLE.as_nanos()))
        {
            self.remove(table, &name);
        }
    }

    fn remove(&self, table: &mut Table, dependency: &str) -> bool {
        let Some(entry) = table.remove(dependency) else { return false };
        let mut guarded = entry.guarded.lock();
        guarded.gone = true;
        let decision = refusal(&mut guarded.dependency, self.now());
        self.settle(&entry, &mut guarded);
        // Last: the moment that has come may have brought its breaker to another version.
        table.outdate(&guarded.dependency);
        for waiter in std::mem::take(&mut guarded.waiters).into_values().flatten() {
            let _ = waiter.send(Decided { decision: decision.clone(), token: None });
        }
        entry.rearm.notify_one();
        let _ = self.0.changes.send(Change::Dependency { dependency: Arc::clone(&entry.name) });
        true
    }

    fn reconfigure(&self, entry: &Entry, policy: &Arc<Policy>) -> Configured {
        self.transition(entry, |dependency, now| {
            if dependency.policy() == policy {
                return Configured::Unchanged;
            }
            dependency.configure(now, Arc::clone(policy));
            Configured::Changed
        })
    }

    pub(super) fn insert(&self, table: &mut Table, name: &str, policy: &Arc<Policy>) -> Arc<Entry> {
        let dependency = table.fresh(self.now(), policy, table.next_place() as u64);
        let entry = table.add(|place| {
            let told = dependency.revision();
            let guarded = Guarded { dependency, waiters: HashMap::new(), told, gone: false };
            let used = AtomicU64::new(self.now().as_nanos());
            Entry { name: name.into(), place, guarded: Mutex::new(guarded), rearm: Notify::new(), used }
        });
        tokio::spawn(tend(Arc::downgrade(&self.0), Arc::clone(&entry)));
        let _ = self.0.changes.send(Change::Dependency { dependency: Arc::clone(&entry.name) });
        entry
    }
}

/// What those who wait for a dependency that is forgotten are told: no token will come, in this life or the next.
fn refusal(dependency: &mut Dependency, now: Moment) -> Decision {
    let breaker = dependency.overall_breaker(now);
    let reason = Reason::NoCapacityBeforeDeadline;
    Decision {
        verdict: reason.verdict(),
        reason,
        grant: None,
        waited: Span::ZERO,
        retry_after: None,
        suppress: Span::ZERO,
        breaker: BreakerVersion { state: breaker.state, version: breaker.version },
        would_have_been: None,
    }
}
