//! The periodic exchange: totals up, states and policies down.

mod parts;

use std::{sync::Arc, time::Duration};

use damper_protocol::{SyncDependency, SyncRequest, SyncResponse};
use fastrand::Rng;
use tokio::{sync::watch::Receiver, time::timeout};

pub(super) use parts::Parts;

use super::{Core, DependencyState, Path, Status, Switch, tasks::Running};
use crate::{
    backoff::{Backoff, uniform},
    clock::Moment,
    retry_after::jittered,
    transport::Fault,
};

/// How often to sync unless the server says otherwise.
const EVERY: Duration = Duration::from_millis(1000);

/// The server's wish is followed within these bounds.
const BOUNDS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(60));

/// How long one sync may take.
const SYNC_WITHIN: Duration = Duration::from_secs(5);

/// How long it may take while the server is away: a hung server must not hide its successor.
const RETRY_WITHIN: Duration = Duration::from_secs(1);

/// While it is away, each sync of so many has the full time all the same: the server may be there, and slow.
const PATIENT_EVERY: u32 = 3;

/// Waits after syncs that the server rejects: a mistake in the set-up, which no haste mends.
const REJECTED: Backoff = Backoff { base: Duration::from_secs(1), cap: Duration::from_secs(30) };

/// The server's word for a request that has to be split.
const TOO_LARGE: Fault = Fault::Rejected(413);

/// Syncs until the last handle is gone, and once more then.
pub(super) async fn run(running: Running, mut stop: Receiver<()>) {
    let core = Arc::clone(&running.core);
    let mut pace = Pace { rejections: 0, rng: core.rng() };
    while !core.is_shut_down() {
        let outcome = core.sync().await.map(|synced| synced.next);
        let may_hurry = !matches!(outcome, Err(Fault::Busy(_) | Fault::Rejected(_)));
        let wait = pace.after(outcome);
        // In a fixed order, so that a seeded client does the same in every run.
        tokio::select! {
            biased;
            _ = stop.changed() => break,
            () = core.sync_soon.notified(), if may_hurry => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
    // The counts since the last sync; nobody is left to repeat it.
    if !core.is_shut_down() {
        let _ = timeout(RETRY_WITHIN, core.sync()).await;
    }
}

/// How soon to sync again.
struct Pace {
    /// Syncs in a row that the server has rejected.
    rejections: u32,
    rng: Rng,
}

impl Pace {
    /// Never faster than usual while the server refuses; while it is away, a little faster, to find it again soon.
    fn after(&mut self, outcome: Result<Duration, Fault>) -> Duration {
        let rejections = std::mem::take(&mut self.rejections);
        match outcome {
            Ok(wish) => wish,
            Err(Fault::Busy(pause)) => jittered(pause.clamp(EVERY, BOUNDS.1), &mut self.rng),
            // All but what is too large alone has been taken.
            Err(TOO_LARGE) => EVERY,
            Err(Fault::Rejected(_)) => {
                self.rejections = rejections.saturating_add(1);
                REJECTED.delay(self.rejections, &mut self.rng).max(EVERY)
            }
            // A longer pause would be the successor's, which may be there already.
            Err(Fault::Unavailable(pause)) => {
                pause.clamp(EVERY / 2, EVERY) + uniform(EVERY / 2, &mut self.rng)
            }
            Err(Fault::Unreachable | Fault::NoAnswer) => EVERY / 2 + uniform(EVERY / 2, &mut self.rng),
        }
    }
}

impl Core {
    /// One exchange, in as many parts as the server takes.
    pub(crate) async fn sync(&self) -> Result<Synced, Fault> {
        let mut parts = self.parts.lock().await;
        let now = self.clock.now();
        let mut dependencies = self.all_dependencies();
        let together = parts.sort(&mut dependencies);
        dependencies.iter().for_each(|dependency| dependency.sample(now));
        // All parts speak of the life of the server that was known before the first.
        let epoch = self.status.lock().epoch.clone();
        let (mut left, mut outcome) = (dependencies.as_slice(), Ok(Synced { next: EVERY, refused: 0 }));
        loop {
            let (part, rest) = left.split_at(parts.next(left.len(), dependencies.len() - together));
            match self.exchange(part, epoch.as_deref(), now).await {
                Ok(synced) => outcome = outcome.map(|before: Synced| before.and(synced)),
                Err(TOO_LARGE) if parts.shrink(part) => continue,
                Err(fault) => outcome = Err(fault),
            }
            left = rest;
            if left.is_empty() || outcome.is_err_and(|fault| fault != TOO_LARGE) {
                parts.taken(together, outcome.err());
                let synced = outcome.inspect_err(|fault| self.faulted(Path::Sync, *fault))?;
                self.note_refused(synced.refused);
                return Ok(synced);
            }
        }
    }

    async fn exchange(
        &self,
        part: &[Arc<DependencyState>],
        epoch: Option<&str>,
        now: Moment,
    ) -> Result<Synced, Fault> {
        let request = self.report(part, epoch, now);
        let patience = self.status.lock().patience();
        let answer = timeout(patience, self.transport.sync(&request)).await.unwrap_or(Err(Fault::NoAnswer));
        let response = answer?;
        let refused = take_over(part, request, &response);
        Ok(Synced { next: self.synced(part, epoch, &response), refused })
    }

    fn report(&self, dependencies: &[Arc<DependencyState>], epoch: Option<&str>, now: Moment) -> SyncRequest {
        let about = |dependency: &Arc<DependencyState>| (dependency.name.to_string(), dependency.report(now));
        SyncRequest {
            client: self.identity.clone(),
            tenant: self.tenant.clone(),
            epoch: epoch.map(str::to_owned),
            dependencies: dependencies.iter().map(about).collect(),
        }
    }

    fn synced(
        &self,
        dependencies: &[Arc<DependencyState>],
        epoch: Option<&str>,
        response: &SyncResponse,
    ) -> Duration {
        let now = self.clock.now();
        self.answered(Path::Sync);
        self.hear(now);
        let mut status = self.status.lock();
        status.epoch = Some(response.epoch.clone());
        let mode_before = std::mem::replace(&mut status.mode, response.mode);
        status.last_sync = Some(now);
        drop(status);
        if mode_before != response.mode {
            self.observer.tell(|observer| observer.mode_changed(response.mode));
        }
        let new_epoch = epoch.is_some_and(|epoch| epoch != response.epoch);
        let mut rng = self.rng();
        for dependency in dependencies {
            if let Some(told) = response.dependencies.get(&*dependency.name) {
                dependency.synced(told, new_epoch, now, &mut rng);
            }
        }
        Duration::from_millis(response.next_sync_ms).clamp(BOUNDS.0, BOUNDS.1)
    }

    /// Dependencies of which the server keeps no record. Said when they begin, and when they end.
    fn note_refused(&self, refused: usize) {
        let before = std::mem::replace(&mut self.status.lock().refused, refused);
        match (before, refused) {
            (0, 1..) => tracing::warn!(
                target: "damper",
                refused,
                "the server keeps no record of some dependencies: it refuses retries on them, and their totals stay \
                 undelivered; see its max_dependencies and unknown_dependencies"
            ),
            (1.., 0) => {
                tracing::info!(target: "damper", "the server keeps a record of all dependencies again");
            }
            _ => {}
        }
    }

    /// How many dependencies have no counts that no server has confirmed, and how many have some.
    pub(crate) fn delivery(&self) -> (usize, usize) {
        let all = if self.switch == Switch::Inert { Vec::new() } else { self.all_dependencies() };
        let delivered = all.iter().filter(|dependency| dependency.is_delivered()).count();
        (delivered, all.len().saturating_sub(delivered))
    }
}

impl Status {
    /// How long the next sync may take.
    fn patience(&self) -> Duration {
        match self.away && self.lost_syncs % PATIENT_EVERY != PATIENT_EVERY - 1 {
            true => RETRY_WITHIN,
            false => SYNC_WITHIN,
        }
    }
}

/// What became of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Synced {
    /// When the server would like the next.
    next: Duration,
    /// Dependencies that the server left out of its answer: it has not taken their counts.
    pub(crate) refused: usize,
}

impl Synced {
    fn and(self, later: Self) -> Self {
        Self { next: later.next, refused: self.refused.saturating_add(later.refused) }
    }
}

/// Notes what the server has counted; returns of how many dependencies it has not.
fn take_over(part: &[Arc<DependencyState>], mut request: SyncRequest, response: &SyncResponse) -> usize {
    let mut refused: usize = 0;
    for dependency in part {
        match request.dependencies.remove(&*dependency.name) {
            Some(report) if response.dependencies.contains_key(&*dependency.name) => {
                dependency.delivered(report);
            }
            _ => refused = refused.saturating_add(1),
        }
    }
    refused
}

impl DependencyState {
    fn report(&self, now: Moment) -> SyncDependency {
        let (breaker_version, breaker_state) = self.view(crate::view::View::last_breaker);
        SyncDependency {
            wants_first_per_s: self.wants_first_per_s(now),
            has_first_per_s: self.first.per_s(now),
            in_flight: self.counts.in_flight(),
            breaker_version,
            breaker_state,
            totals: self.counts.snapshot(),
            acked: self.acked.lock().clone(),
            probes: Some(self.probes()),
        }
    }
}
