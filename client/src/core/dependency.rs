//! The state of one dependency in this process.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use damper_protocol::{BreakerState, PolicyView, ProbeResult, SyncDependency, SyncedDependency, Totals};
use fastrand::Rng;
use parking_lot::Mutex;

use crate::{
    clock::Moment,
    emergency::{Bucket, Recent, SUCCESSES_OVER, rate_per_s},
    lease::FirstGate,
    observer::Audience,
    totals::{Count, Counts, Estimate},
    view::View,
};

/// Most results of probes that wait for a sync; the server's leases of older ones have ended by themselves.
const MAX_PROBES: usize = 256;

/// The span over which the demand for first attempts is averaged: short, because a lease follows it.
const DEMAND_OVER: Duration = Duration::from_secs(2);

/// No attempt is slow.
const NEVER: u64 = u64::MAX;

#[derive(Debug)]
pub(crate) struct DependencyState {
    pub(crate) name: Arc<str>,
    is_private: bool,
    observer: Audience,
    pub(crate) counts: Counts,
    /// Whether first attempts have to look at the view: all that a healthy call reads of it.
    guarded: AtomicBool,
    /// The leased rate of first attempts.
    pub(crate) first: FirstGate,
    /// How long attempts that succeed take.
    pub(crate) latency: Estimate,
    slow_call_ms: AtomicU64,
    /// Requests of adapters whose bodies could not be sent twice.
    pub(crate) not_replayable: Count,
    /// Failures that nobody understood, and headers about retries that nobody could read.
    pub(crate) unclassified: Count,
    pub(crate) unread: Count,
    view: Mutex<View>,
    bucket: Bucket,
    /// The emergency budget has lost its savings, and the server has not been back since.
    alone: AtomicBool,
    recent: Mutex<Recent>,
    demand: Mutex<Recent>,
    probes: Mutex<Vec<ProbeResult>>,
    waiting: AtomicU64,
    /// What the server is known to have counted.
    pub(super) acked: Mutex<Option<Totals>>,
}

/// An operation that waits for another attempt, for as long as it does.
pub(crate) struct Waiting(Arc<DependencyState>);

impl Waiting {
    pub(crate) fn of(dependency: &Arc<DependencyState>) -> Self {
        dependency.waiting.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(dependency))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl DependencyState {
    pub(crate) fn new(name: Arc<str>, observer: Audience, observes: bool, now: Moment) -> Self {
        Self {
            name,
            is_private: false,
            observer,
            counts: Counts::default(),
            guarded: AtomicBool::new(false),
            first: FirstGate::default(),
            latency: Estimate::default(),
            slow_call_ms: AtomicU64::new(NEVER),
            not_replayable: Count::default(),
            unclassified: Count::default(),
            unread: Count::default(),
            view: Mutex::new(View::new(observes)),
            bucket: Bucket::default(),
            alone: AtomicBool::new(false),
            recent: Mutex::new(Recent::new(SUCCESSES_OVER, now)),
            demand: Mutex::new(Recent::new(DEMAND_OVER, now)),
            probes: Mutex::default(),
            waiting: AtomicU64::new(0),
            acked: Mutex::default(),
        }
    }

    /// One that is never reported and never retries: its name cannot be sent.
    pub(crate) fn private(name: &str, now: Moment) -> Self {
        Self { is_private: true, ..Self::new(Arc::from(name), Audience::default(), false, now) }
    }

    pub(crate) fn is_private(&self) -> bool {
        self.is_private
    }

    /// Whether first attempts may meet a closed gate.
    pub(crate) fn is_guarded(&self) -> bool {
        self.guarded.load(Ordering::Relaxed)
    }

    /// Reads the view.
    pub(crate) fn view<T>(&self, read: impl FnOnce(&View) -> T) -> T {
        read(&self.view.lock())
    }

    /// Changes the view.
    pub(crate) fn learn<T>(&self, change: impl FnOnce(&mut View) -> T) -> T {
        let mut view = self.view.lock();
        let (_, before) = view.last_breaker();
        let learnt = change(&mut view);
        let (_, after) = view.last_breaker();
        self.guarded.store(view.guards_first_attempts(), Ordering::Relaxed);
        let slow_call_ms = view.known_policy().and_then(|policy| policy.slow_call_ms);
        self.slow_call_ms.store(slow_call_ms.unwrap_or(NEVER), Ordering::Relaxed);
        if view.is_shadow() {
            self.first.lift();
        }
        drop(view);
        // Nothing known is what a closed breaker lets through.
        let was = before.unwrap_or(BreakerState::Closed);
        if let Some(state) = after.filter(|state| *state != was) {
            self.observer.tell(|observer| observer.breaker_changed(&self.name, state));
        }
        learnt
    }

    /// Takes over a sync's answer.
    pub(crate) fn synced(&self, told: &SyncedDependency, new_epoch: bool, now: Moment, rng: &mut Rng) {
        // Before the view, which lifts the lease again where nothing is refused.
        match told.first {
            Some(lease) => self.first.lease(lease, now, rng),
            None => self.first.lift(),
        }
        self.learn(|view| view.synced(told, new_epoch, now));
    }

    /// From when on an attempt is slow.
    pub(crate) fn slow_call(&self) -> Option<Duration> {
        let slow_call_ms = self.slow_call_ms.load(Ordering::Relaxed);
        (slow_call_ms != NEVER).then(|| Duration::from_millis(slow_call_ms))
    }

    /// First attempts per second that callers would like to start: those that came, and those that wait now.
    pub(crate) fn wants_first_per_s(&self, now: Moment) -> f64 {
        let came_per_s = self.demand.lock().per_s(now, self.counts.logical());
        came_per_s + f64::from(self.first.waiting())
    }

    /// The policy, as far as it is known.
    pub(crate) fn policy(&self) -> PolicyView {
        self.view(View::known_policy).unwrap_or_default()
    }

    /// Charges a retry that the server granted to the emergency budget too, so that going back and forth between
    /// the two frees nothing.
    pub(crate) fn charge_emergency(&self, now: Moment, heard: Option<Moment>) {
        self.alone.store(false, Ordering::Relaxed);
        self.bucket.take(now, self.emergency_per_s(now, heard));
    }

    /// Takes a token of the emergency budget. Once the server is `away`, its savings go.
    pub(crate) fn take_emergency(
        &self,
        now: Moment,
        heard: Option<Moment>,
        away: bool,
        rng: &mut Rng,
    ) -> bool {
        let per_s = self.emergency_per_s(now, heard);
        let lost = away && !self.alone.load(Ordering::Relaxed);
        if lost && self.bucket.drain(now, per_s, rng) {
            self.alone.store(true, Ordering::Relaxed);
        }
        self.bucket.take(now, per_s)
    }

    fn emergency_per_s(&self, now: Moment, heard: Option<Moment>) -> f64 {
        let successes = self.counts.first_successes();
        let successes_per_s = self.recent.lock().per_s(now, successes);
        let (share, in_trouble) = self.view(|view| (view.emergency(), view.was_in_trouble()));
        let silent_for = in_trouble.then(|| now.saturating_sub(heard.unwrap_or_default()));
        rate_per_s(share, successes_per_s, silent_for)
    }

    /// Keeps the averages up to date.
    pub(crate) fn sample(&self, now: Moment) {
        self.demand.lock().sample(now, self.counts.logical());
        self.recent.lock().sample(now, self.counts.first_successes());
    }

    /// Notes how a probe ended, for the next sync.
    pub(crate) fn probed(&self, token: String, success: bool) {
        let mut probes = self.probes.lock();
        if probes.len() < MAX_PROBES {
            probes.push(ProbeResult { token, success });
        }
    }

    pub(crate) fn probes(&self) -> Vec<ProbeResult> {
        self.probes.lock().clone()
    }

    /// Drops the results of probes that wait for a sync; returns how many.
    pub(crate) fn forget_probes(&self) -> usize {
        std::mem::take(&mut *self.probes.lock()).len()
    }

    /// The server has counted this report. The results of probes that it carried were the oldest.
    pub(crate) fn delivered(&self, report: SyncDependency) {
        *self.acked.lock() = Some(report.totals);
        let mut probes = self.probes.lock();
        let count = report.probes.map_or(0, |sent| sent.len()).min(probes.len());
        probes.drain(..count);
    }

    /// Operations that wait for another attempt.
    pub(crate) fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Whether the server has counted all there is.
    pub(crate) fn is_delivered(&self) -> bool {
        self.counts.snapshot() == self.acked.lock().clone().unwrap_or_default()
    }
}
