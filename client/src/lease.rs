//! First attempts: a leased rate, enforced where they start.
//!
//! The rate changes with every sync. A bucket of a library that is built anew for each rate starts full, and a
//! thousand clients would have a thousand free attempts once a second; so this one keeps what it had saved, as
//! attempts, across changes. Its whole state is the moment up to which attempts have been taken: an uncontended
//! look costs a few nanoseconds and no lock.

use std::{
    sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use damper_protocol::FirstAttempts;
use fastrand::Rng;
use tokio::{
    sync::{Mutex, Notify},
    time::timeout_at,
};

use crate::{
    backoff::nanos,
    clock::{Clock, Moment},
};

/// The interval of a rate that is not limited.
const UNLIMITED: u64 = 0;

/// The interval of a rate at which nothing ever starts.
const NEVER: u64 = u64::MAX;

/// The longest wait of an operation that has no deadline.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// The gate before first attempts. Those that come too early wait in line.
#[derive(Debug)]
pub(crate) struct FirstGate {
    /// Time per attempt while the lease lasts.
    interval_ns: AtomicU64,
    /// Time per attempt after it, until a server says something else.
    safe_interval_ns: AtomicU64,
    until_ns: AtomicU64,
    /// From when on nothing is limited, if no server has said anything until then.
    free_at_ns: AtomicU64,
    burst_milli: AtomicU64,
    taken_up_to_ns: AtomicU64,
    waiting: AtomicU32,
    line: Mutex<()>,
    changed: Notify,
}

impl Default for FirstGate {
    fn default() -> Self {
        Self {
            interval_ns: AtomicU64::new(UNLIMITED),
            safe_interval_ns: AtomicU64::new(UNLIMITED),
            until_ns: AtomicU64::new(0),
            free_at_ns: AtomicU64::new(u64::MAX),
            burst_milli: AtomicU64::new(0),
            taken_up_to_ns: AtomicU64::new(0),
            waiting: AtomicU32::new(0),
            line: Mutex::default(),
            changed: Notify::new(),
        }
    }
}

impl FirstGate {
    /// Limits the rate. Attempts saved up so far are kept, as far as the new burst allows; a gate that was not
    /// limited starts with a whole burst.
    ///
    /// A burst of less than one attempt is that of a fleet that is held back: its gates start anywhere between two
    /// attempts and never fill, or all of them would let one through at the moment at which the fleet may start.
    pub(crate) fn lease(&self, told: FirstAttempts, now: Moment, rng: &mut Rng) {
        let (old, old_burst) = (self.interval_ns(now), self.burst_milli.load(Relaxed));
        let (new, burst) = (interval_ns(told.per_s), milli(told.burst));
        let (now_ns, somewhere) = (nanos(now), rng.u64(..1000));
        let kept = |taken_up_to_ns: u64| {
            let saved_ns = now_ns.saturating_sub(taken_up_to_ns).min(depth_ns(old, old_burst));
            let saved_milli = scaled(saved_ns, 1000, old);
            let saved_milli = match old {
                UNLIMITED if burst < 1000 => somewhere,
                UNLIMITED => burst,
                _ if burst < 1000 && old_burst < 1000 => saved_milli % 1000,
                _ if burst < 1000 => somewhere,
                _ => saved_milli.min(burst),
            };
            Some(now_ns.saturating_sub(scaled(new, saved_milli, 1000)))
        };
        let _ = self.taken_up_to_ns.fetch_update(Relaxed, Relaxed, kept);
        self.burst_milli.store(burst, Relaxed);
        self.safe_interval_ns.store(interval_ns(told.safe_per_s), Relaxed);
        let until_ns = now_ns.saturating_add(told.ttl_ms.saturating_mul(1_000_000));
        let safe_for_ns = told.safe_for_ms.map_or(u64::MAX, |ms| ms.saturating_mul(1_000_000));
        self.free_at_ns.store(until_ns.saturating_add(safe_for_ns), Relaxed);
        self.until_ns.store(until_ns, Relaxed);
        self.interval_ns.store(new, Relaxed);
        self.changed.notify_waiters();
    }

    /// Ends the limit.
    pub(crate) fn lift(&self) {
        if self.interval_ns.swap(UNLIMITED, Relaxed) != UNLIMITED {
            self.changed.notify_waiters();
        }
    }

    /// The rate in force; 0 if there is no limit.
    pub(crate) fn per_s(&self, now: Moment) -> f64 {
        match self.interval_ns(now) {
            UNLIMITED | NEVER => 0.0,
            interval_ns => Duration::from_nanos(interval_ns).as_secs_f64().recip(),
        }
    }

    /// Those that wait.
    pub(crate) fn waiting(&self) -> u32 {
        self.waiting.load(Relaxed)
    }

    /// Lets one through if it need not wait.
    pub(crate) fn try_pass(&self, now: Moment) -> bool {
        self.interval_ns.load(Relaxed) == UNLIMITED || (self.waiting() == 0 && self.take(now).is_ok())
    }

    /// Lets one through in its turn, no later than `latest`. False if that cannot be. A rate of 0 is no answer yet:
    /// the next lease may come in time.
    pub(crate) async fn pass(&self, clock: Clock, latest: Option<Moment>) -> bool {
        let now = clock.now();
        let latest = latest.unwrap_or_else(|| now.saturating_add(LONGEST_WAIT));
        let in_line = InLine::join(&self.waiting);
        let interval_ns = self.interval_ns(now);
        let per_place_ns = if interval_ns == NEVER { 0 } else { interval_ns };
        let ahead = u64::from(in_line.ahead).saturating_mul(per_place_ns);
        if now.saturating_add(Duration::from_nanos(ahead)) > latest {
            return false;
        }
        let Ok(_turn) = timeout_at(clock.instant(latest), self.line.lock()).await else { return false };
        loop {
            let changed = self.changed.notified();
            let now = clock.now();
            let Err(at) = self.take(now) else { return true };
            if now >= latest || (at > latest && self.interval_ns(now) != NEVER) {
                return false;
            }
            tokio::select! {
                biased;
                () = clock.sleep_until(at.min(self.lease_end(now)).min(latest)) => {}
                () = changed => {}
            }
        }
    }

    /// Takes one attempt, or says when it will be there at the present rate.
    fn take(&self, now: Moment) -> Result<(), Moment> {
        let interval_ns = self.interval_ns(now);
        if interval_ns == UNLIMITED {
            return Ok(());
        }
        let now_ns = nanos(now);
        let earliest_ns = now_ns.saturating_sub(depth_ns(interval_ns, self.burst_milli.load(Relaxed)));
        let next = |taken_up_to_ns: u64| taken_up_to_ns.max(earliest_ns).saturating_add(interval_ns);
        let spend = |taken_up_to_ns| Some(next(taken_up_to_ns)).filter(|next| *next <= now_ns);
        match self.taken_up_to_ns.fetch_update(Relaxed, Relaxed, spend) {
            Ok(_) => Ok(()),
            Err(taken_up_to_ns) => Err(Duration::from_nanos(next(taken_up_to_ns))),
        }
    }

    fn interval_ns(&self, now: Moment) -> u64 {
        match self.interval_ns.load(Relaxed) {
            UNLIMITED => UNLIMITED,
            _ if nanos(now) >= self.free_at_ns.load(Relaxed) => UNLIMITED,
            _ if nanos(now) >= self.until_ns.load(Relaxed) => self.safe_interval_ns.load(Relaxed),
            interval_ns => interval_ns,
        }
    }

    /// When the rate changes by itself, if it still will.
    fn lease_end(&self, now: Moment) -> Moment {
        let changes = [&self.until_ns, &self.free_at_ns].map(|at| Duration::from_nanos(at.load(Relaxed)));
        changes.into_iter().find(|at| *at > now).unwrap_or(Moment::MAX)
    }
}

/// A place in the line.
struct InLine<'a> {
    waiting: &'a AtomicU32,
    ahead: u32,
}

impl<'a> InLine<'a> {
    fn join(waiting: &'a AtomicU32) -> Self {
        Self { waiting, ahead: waiting.fetch_add(1, Relaxed) }
    }
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        self.waiting.fetch_sub(1, Relaxed);
    }
}

/// The time per attempt; what is no rate, or none worth speaking of, lets nothing through.
fn interval_ns(per_s: f64) -> u64 {
    let interval = if per_s > 0.0 { Duration::try_from_secs_f64(per_s.recip()).ok() } else { None };
    interval.map_or(NEVER, |interval| nanos(interval).max(1))
}

/// A number of attempts in thousandths.
fn milli(attempts: f64) -> u64 {
    let milli = (attempts.clamp(0.0, 1e9) * 1000.0).round();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped; NaN becomes 0")]
    let milli = milli as u64;
    milli
}

/// What can be saved up as time: one attempt at least. The part of an attempt beyond the burst keeps the rate exact although nobody
/// comes to the nanosecond.
fn depth_ns(interval_ns: u64, burst_milli: u64) -> u64 {
    scaled(interval_ns, burst_milli.max(1000).saturating_add(1000), 1000).saturating_sub(1)
}

/// `amount` x `by` / `of`, saturating; 0 of nothing.
fn scaled(amount: u64, by: u64, of: u64) -> u64 {
    let scaled = (u128::from(amount) * u128::from(by)).checked_div(u128::from(of)).unwrap_or(0);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
