//! How far retries are turned down because the dependency is overloaded.
//!
//! Once a second the level halves if, over the last five seconds and at least twenty samples, overload exceeds
//! a fifth of the attempts, or fewer than a fifth of the retries succeed, or the ninetieth percentile of the
//! latency is twice its healthy baseline; otherwise it rises by a tenth. The raw success share is not a signal:
//! thirty per cent of independent errors with capacity to spare are what retries are for.
//!
//! Reports come a second late, and a large pool can do harm within it. But a retry that fails comes back as an
//! ask for the next attempt, so the yield of retries is also seen in the asks themselves: twenty times a second
//! the level halves if, over the last half second, so few of the retries were not heard of again that a yield of a
//! fifth would not explain it.

use crate::histogram::{Histogram, count, p90_us};
use crate::ring::{Countable, Ring};
use crate::{Class, Moment, Ppm, Span, Totals};

const LOOK_BACK_S: u64 = 5;
const LEAST_SAMPLES: u64 = 20;
/// How often the asks are looked at, and how far back.
const PULSE: Span = Span::from_millis(50);
const PULSES: usize = 10;
const OVERLOAD: Ppm = Ppm::new(200_000);
const YIELD: Ppm = Ppm::new(200_000);
const STEP: u32 = 100_000;
/// Below this level only a trickle of probes is left.
const TRICKLE_BELOW: Ppm = Ppm::new(100_000);
/// Far below any level that matters, so that it recovers within a second of leaving.
const LEAST: u32 = 10_000;

/// The level and what it rests on.
#[derive(Clone, Debug)]
pub(crate) struct Throttle {
    level: Ppm,
    recent: Ring<Load>,
    baseline_us: Option<u64>,
    cause: Option<Cause>,
    tries: Ring<Tries>,
    next_pulse: Moment,
}

/// What turns retries down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Rate limits, missing slots and timeouts.
    Overload,
    /// Retries that do not succeed.
    Yield,
    /// Latency far above its healthy baseline.
    Latency,
}

impl Cause {
    /// The word as it stands in messages and labels.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Overload => "overload",
            Self::Yield => "retry_yield",
            Self::Latency => "latency",
        }
    }
}

/// Granted retries that may be asked for again, and those that were.
#[derive(Clone, Copy, Debug, Default)]
struct Tries {
    granted: u64,
    failed: u64,
}

impl Countable for Tries {
    fn add(&mut self, other: &Self) {
        self.granted = self.granted.saturating_add(other.granted);
        self.failed = self.failed.saturating_add(other.failed);
    }
}

/// Reported attempts, as far as the signals read them.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    ended: u64,
    overloaded: u64,
    /// Operations and attempts apart: a first attempt that waited for its turn is reported later than its
    /// operation, and must not be taken for a retry.
    logical: u64,
    physical: u64,
    recovered: u64,
    latency: Histogram,
}

impl Countable for Load {
    fn add(&mut self, other: &Self) {
        self.ended = self.ended.saturating_add(other.ended);
        self.overloaded = self.overloaded.saturating_add(other.overloaded);
        self.logical = self.logical.saturating_add(other.logical);
        self.physical = self.physical.saturating_add(other.physical);
        self.recovered = self.recovered.saturating_add(other.recovered);
        for (mine, theirs) in self.latency.iter_mut().zip(other.latency) {
            *mine = mine.saturating_add(theirs);
        }
    }
}

impl Throttle {
    pub(crate) fn new(now: Moment) -> Self {
        Self {
            level: Ppm::ONE,
            recent: Ring::new(now, Span::from_secs(LOOK_BACK_S), 5),
            baseline_us: None,
            cause: None,
            tries: Ring::new(now, PULSE.scaled(PULSES as u64, 1), PULSES),
            next_pulse: now,
        }
    }

    /// In (0, 1].
    pub(crate) const fn level(&self) -> Ppm {
        self.level
    }

    /// What turned retries down in the last second, if anything did.
    pub(crate) const fn cause(&self) -> Option<Cause> {
        self.cause
    }

    /// Whether so little is left that only probes go out.
    pub(crate) fn is_trickle(&self) -> bool {
        self.level < TRICKLE_BELOW
    }

    pub(crate) fn is_open(&self) -> bool {
        self.level == Ppm::ONE
    }

    /// Counts what a report adds.
    pub(crate) fn count(&mut self, now: Moment, difference: &Totals) {
        let ended = difference.success.saturating_add(difference.failed_attempts());
        let overloaded = difference
            .failed(Class::RateLimited)
            .saturating_add(difference.reason_no_resources)
            .saturating_add(difference.reason_timeout);
        let load = Load {
            ended,
            // One attempt can be both rate limited and out of resources.
            overloaded: overloaded.min(ended),
            logical: difference.logical,
            physical: difference.physical,
            recovered: difference.recovered,
            latency: difference.latency,
        };
        self.recent.add(now, &load);
    }

    /// A retry was granted that is not the last of its operation.
    pub(crate) fn tried(&mut self, now: Moment) {
        self.tries.add(now, &Tries { granted: 1, failed: 0 });
    }

    /// An operation asks for another retry: the one before has failed.
    pub(crate) fn failed_again(&mut self, now: Moment) {
        self.tries.add(now, &Tries { granted: 0, failed: 1 });
    }

    /// Looks at the asks, at most twenty times a second. True if the level has changed.
    pub(crate) fn pulse(&mut self, now: Moment) -> bool {
        if now < self.next_pulse {
            return false;
        }
        self.next_pulse = now.after(PULSE);
        let Tries { granted, failed } = self.tries.sum(now);
        let in_vain = granted >= LEAST_SAMPLES && far_below_a_fifth(granted.saturating_sub(failed), granted);
        if in_vain {
            self.cause = Some(Cause::Yield);
            self.level = Ppm::new((self.level.get() / 2).max(LEAST));
        }
        in_vain
    }

    /// Ends a second, or `seconds` of them in which nothing was reported.
    pub(crate) fn tick(&mut self, now: Moment, seconds: u64) {
        let load = self.recent.sum(now);
        let p90_us = p90_us(&load.latency).filter(|_| count(&load.latency) >= LEAST_SAMPLES);
        self.cause = self.signal(&load, p90_us);
        let level = self.level.get();
        self.level = match self.cause {
            Some(_) => Ppm::new((level / 2).max(LEAST)),
            None => {
                let steps = u32::try_from(seconds.min(10)).unwrap_or(10);
                Ppm::new((level + steps * STEP).min(Ppm::ONE.get()))
            }
        };
        self.learn_baseline(p90_us);
    }

    fn signal(&self, load: &Load, p90_us: Option<u64>) -> Option<Cause> {
        let retries = load.physical.saturating_sub(load.logical);
        let doubled = |(p90, baseline): (u64, u64)| p90 > baseline.saturating_mul(2);
        if load.ended >= LEAST_SAMPLES && OVERLOAD.exceeded_by(load.overloaded, load.ended) {
            Some(Cause::Overload)
        } else if retries >= LEAST_SAMPLES && !YIELD.reached_by(load.recovered, retries) {
            Some(Cause::Yield)
        } else if p90_us.zip(self.baseline_us).is_some_and(doubled) {
            Some(Cause::Latency)
        } else {
            None
        }
    }

    /// The baseline follows healthy latency slowly. It follows unhealthy latency more slowly still, so that a
    /// dependency that has become slower for good is not throttled for ever.
    fn learn_baseline(&mut self, p90_us: Option<u64>) {
        let Some(p90) = p90_us else { return };
        let baseline = self.baseline_us.unwrap_or(p90);
        let learnt = match self.cause {
            None => baseline.saturating_mul(31).saturating_add(p90) / 32,
            Some(Cause::Latency) => baseline.saturating_mul(101) / 100,
            Some(_) => baseline,
        };
        if self.cause.is_none() || self.baseline_us.is_some() {
            self.baseline_us = Some(learnt.max(1));
        }
    }
}

/// Whether `part` of `whole` is more than two standard deviations below what a share of a fifth would give:
/// (n / 5 - k) > 2 sqrt(n x 0.2 x 0.8), in whole numbers. Twenty looks per second at half a second each would find mere
/// chance below a fifth all the time where three in ten retries succeed.
const fn far_below_a_fifth(part: u64, whole: u64) -> bool {
    let gap = whole.saturating_sub(part.saturating_mul(5)) as u128;
    gap * gap > 16 * whole as u128
}

#[cfg(test)]
mod tests;
