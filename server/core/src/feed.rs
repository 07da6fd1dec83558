//! What feeds the pool: the rate formula, recomputed once a second.
//!
//! `rate = throttle x max(floor, min(per_s, ratio x first_successes_per_s, headroom_share x (capacity - first_per_s)))`
//!
//! Deposits come from first attempts that succeed, never from starts, failures or retries: refilling on start
//! is what keeps a collapsed system collapsed. Every reported success is paid out once: over the second after
//! its report, or, where a report covers several seconds, over as many. So the ratio is exact however unevenly
//! reports arrive, and a client that comes back from a partition does not set free a burst.

use crate::policy::RetryPolicy;
use crate::throttle::Throttle;
use crate::units::{NANOS_PER_S, scale};
use crate::{BoundBy, MicroTokens, MicrosPerSecond, Moment, Policy, Ppm, Span, Totals};

/// How many past seconds the default burst and the headroom look at. Reports of one client arrive a second
/// apart, give or take; one second alone would see none and two by turns.
const LOOK_BACK: usize = 3;

/// The longest time over which a report is paid out; what it covers beyond that is too old to be paid.
const LOOK_AHEAD: usize = 8;

/// What is left of the floor while the throttle lets only probes through.
const TRICKLE: Ppm = Ppm::new(100_000);

/// The present rate and what it comes from.
#[derive(Clone, Debug)]
pub(crate) struct Feed {
    second: Moment,
    /// The running second, and those to come.
    ahead: [Second; LOOK_AHEAD],
    past: [Second; LOOK_BACK],
}

/// First attempts reported within one second.
#[derive(Clone, Copy, Debug, Default)]
struct Second {
    started: u64,
    succeeded: u64,
}

/// A refill rate, the burst that goes with it, and the term that set it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) rate: MicrosPerSecond,
    pub(crate) burst: MicroTokens,
    /// The burst was asked for, so it need not be paced.
    pub(crate) at_once: bool,
    pub(crate) bound_by: BoundBy,
}

impl Feed {
    pub(crate) fn new(now: Moment) -> Self {
        Self { second: now, ahead: [Second::default(); LOOK_AHEAD], past: [Second::default(); LOOK_BACK] }
    }

    /// Counts the first attempts of a report that covers so long.
    pub(crate) fn count(&mut self, difference: &Totals, covers: Span) {
        // Reports a second apart come a little early or late; half a second does not make them two.
        let seconds = covers.as_nanos().saturating_add(NANOS_PER_S / 2) / NANOS_PER_S;
        let slots = seconds.clamp(1, LOOK_AHEAD as u64);
        let paid = |count: u64| scale(count, slots, seconds.max(1));
        let (started, succeeded) = (paid(difference.logical), paid(difference.first_successes()));
        for (slot, second) in (0..slots).zip(&mut self.ahead) {
            // The first slots take the remainders, so that nothing is lost.
            second.started = second.started.saturating_add(part(started, slot, slots));
            second.succeeded = second.succeeded.saturating_add(part(succeeded, slot, slots));
        }
    }

    /// The terms in force under a policy and a throttle.
    pub(crate) fn terms(&self, policy: &Policy, throttle: &Throttle) -> Terms {
        terms(policy, throttle, &self.past)
    }

    /// First attempts that succeeded in the last whole second.
    pub(crate) const fn succeeded_per_s(&self) -> u64 {
        self.past[0].succeeded
    }

    /// When the running second is over.
    pub(crate) const fn next_roll(&self) -> Moment {
        self.second.after(Span::SECOND)
    }

    /// Closes the second that `now` has left behind, if any: when it ended, and how many seconds that was. To be
    /// called until it returns [`None`]; once all is `settled`, idle seconds are skipped in one step.
    pub(crate) fn roll(&mut self, now: Moment, settled: bool) -> Option<(Moment, u64)> {
        let elapsed = now.since(self.second).as_nanos() / NANOS_PER_S;
        if elapsed == 0 {
            return None;
        }
        let quiet = settled && self.ahead.iter().chain(&self.past).all(Second::is_empty);
        let step = if quiet { elapsed } else { 1 };
        self.second = self.second.after(Span::from_secs(step));
        self.past.rotate_right(1);
        self.past[0] = std::mem::take(&mut self.ahead[0]);
        self.ahead.rotate_left(1);
        Some((self.second, step))
    }
}

impl Second {
    const fn is_empty(&self) -> bool {
        self.started == 0 && self.succeeded == 0
    }
}

/// The part of `whole` that falls to one of `slots`; the parts add up to the whole.
const fn part(whole: u64, slot: u64, slots: u64) -> u64 {
    whole / slots + if slot < whole % slots { 1 } else { 0 }
}

fn terms(policy: &Policy, throttle: &Throttle, past: &[Second; LOOK_BACK]) -> Terms {
    let started = MicrosPerSecond::from_per_s(past.iter().map(|second| second.started).max().unwrap_or(0));
    let throttled = |second: &Second| {
        let (rate, bound_by) =
            rate(&policy.retry, policy.capacity, started, MicrosPerSecond::from_per_s(second.succeeded));
        // Below the least level a tenth of the floor is left, to find out whether things are better.
        let rate = if throttle.is_trickle() {
            policy.retry.floor.times(TRICKLE)
        } else {
            rate.times(throttle.level())
        };
        (rate, bound_by)
    };
    let (rate, bound_by) = throttled(&past[0]);
    let burst = policy.retry.burst.unwrap_or_else(|| {
        let recent = past.iter().map(|second| throttled(second).0).max();
        let saved = recent.unwrap_or(rate);
        // What is saved up is spent on top of the rate; together they must fit below the capacity.
        let room = policy.capacity.map(|capacity| capacity.saturating_sub(started).saturating_sub(rate));
        room.unwrap_or(saved).min(saved).in_one_second().max(MicroTokens::ONE)
    });
    Terms { rate, burst, at_once: policy.retry.burst.is_some(), bound_by }
}

/// What a pool brings as long as nothing throttles it, while so many first attempts start and succeed per second.
pub(crate) fn rate(
    retry: &RetryPolicy,
    capacity: Option<MicrosPerSecond>,
    started: MicrosPerSecond,
    succeeded: MicrosPerSecond,
) -> (MicrosPerSecond, BoundBy) {
    let RetryPolicy { per_s, ratio, floor, headroom_share, .. } = *retry;
    let fixed = per_s.map(|rate| (rate, BoundBy::PerS));
    let earned = ratio.map(|ratio| (succeeded.times(ratio).min(MicrosPerSecond::MAX), BoundBy::Ratio));
    let room =
        capacity.map(|capacity| (capacity.saturating_sub(started).times(headroom_share), BoundBy::Headroom));
    let least = [fixed, earned, room].into_iter().flatten().min_by_key(|(rate, _)| *rate);
    least.filter(|(rate, _)| *rate >= floor).unwrap_or((floor, BoundBy::Floor))
}

#[cfg(test)]
mod tests;
