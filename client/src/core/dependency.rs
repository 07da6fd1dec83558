//! The state of one dependency in this process.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use damper_protocol::{PolicyView, ProbeResult};
use parking_lot::Mutex;

use crate::{
    backoff::fresh_rng,
    clock::Moment,
    emergency::{Bucket, Recent, rate_per_s},
    totals::Counts,
    view::View,
};

/// Most results of probes that wait for a sync; the server's leases of older ones have ended by themselves.
const MAX_PROBES: usize = 256;

#[derive(Debug)]
pub(crate) struct DependencyState {
    pub(crate) name: Arc<str>,
    is_private: bool,
    pub(crate) counts: Counts,
    /// Whether first attempts have to look at the view: all that a healthy call reads of it.
    guarded: AtomicBool,
    view: Mutex<View>,
    bucket: Bucket,
    /// The emergency budget has lost its savings, and the server has not been back since.
    alone: AtomicBool,
    recent: Mutex<Recent>,
    probes: Mutex<Vec<ProbeResult>>,
}

impl DependencyState {
    pub(crate) fn new(name: Arc<str>, now: Moment) -> Self {
        Self {
            name,
            is_private: false,
            counts: Counts::default(),
            guarded: AtomicBool::new(false),
            view: Mutex::default(),
            bucket: Bucket::default(),
            alone: AtomicBool::new(false),
            recent: Mutex::new(Recent::new(now)),
            probes: Mutex::default(),
        }
    }

    /// One that is never reported and never retries: its name cannot be sent.
    pub(crate) fn private(name: &str, now: Moment) -> Self {
        Self { is_private: true, ..Self::new(Arc::from(name), now) }
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
        let learnt = change(&mut view);
        self.guarded.store(view.guards_first_attempts(), Ordering::Relaxed);
        learnt
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
    pub(crate) fn take_emergency(&self, now: Moment, heard: Option<Moment>, away: bool) -> bool {
        let per_s = self.emergency_per_s(now, heard);
        let lost = away && !self.alone.load(Ordering::Relaxed);
        if lost && self.bucket.drain(now, per_s, &mut fresh_rng()) {
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

    /// Keeps the average of recent successes up to date.
    pub(crate) fn sample(&self, now: Moment) {
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

    /// Forgets the results that a sync has delivered: they were the oldest.
    pub(crate) fn delivered_probes(&self, count: usize) {
        let mut probes = self.probes.lock();
        let count = count.min(probes.len());
        probes.drain(..count);
    }
}
