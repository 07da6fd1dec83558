//! Cumulative counts of one dependency: atomics that only rise.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use damper_protocol::{
    FailureClass, FailureCounts, FailureReason, FailureSource, ReasonCounts, SourceCounts, Totals,
};

use crate::Failure;

/// One count.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn up(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    /// The count before this one: a number that no one else gets.
    pub(crate) fn next(&self) -> u64 {
        self.0.fetch_add(1, Relaxed)
    }

    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Buckets of a [`Histogram`]: bounds of 1, 2, 4 ... 65 536 ms, and the rest.
const BUCKETS: usize = 18;

/// Durations by bucket.
#[derive(Debug, Default)]
pub(crate) struct Histogram([Count; BUCKETS]);

impl Histogram {
    pub(crate) fn record(&self, duration: Duration) {
        if let Some(count) = self.0.get(bucket(duration)) {
            count.up();
        }
    }

    fn total(&self) -> u64 {
        self.0.iter().fold(0, |sum, count| sum.saturating_add(count.get()))
    }

    /// Both together, without trailing zeros.
    fn with(&self, other: &Self) -> Vec<u64> {
        let both = self.0.iter().zip(&other.0);
        let mut counts: Vec<u64> = both.map(|(one, other)| one.get().saturating_add(other.get())).collect();
        let used = counts.iter().rposition(|count| *count > 0).map_or(0, |last| last.saturating_add(1));
        counts.truncate(used);
        counts
    }
}

/// The first bucket whose bound is not below the duration.
fn bucket(duration: Duration) -> usize {
    // Without the 128 bits of `as_nanos`, whose division every call would pay for.
    let part_ms = u64::from(duration.subsec_nanos().div_ceil(1_000_000));
    let ms = duration.as_secs().saturating_mul(1000).saturating_add(part_ms);
    let bits = u64::BITS.saturating_sub(ms.saturating_sub(1).leading_zeros());
    usize::try_from(bits).unwrap_or(BUCKETS).min(BUCKETS - 1)
}

/// How long an attempt that succeeds probably takes: a moving average that follows the last dozen or so.
///
/// Concurrent updates may overwrite each other: one sample more or less does not matter to an estimate.
#[derive(Debug, Default)]
pub(crate) struct Estimate(AtomicU64);

impl Estimate {
    pub(crate) fn record(&self, duration: Duration) {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX).clamp(1, 1 << 56);
        let before = self.0.load(Relaxed);
        let after = if before == 0 { micros } else { before - before / 8 + micros / 8 };
        self.0.store(after.max(1), Relaxed);
    }

    /// Zero while nothing is known.
    pub(crate) fn get(&self) -> Duration {
        Duration::from_micros(self.0.load(Relaxed))
    }
}

/// The counts behind [`Totals`]. Operations and attempts are counted when they start, outcomes when they end.
///
/// An ordinary call pays for two: one when it starts, one when it ends.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Operations whose first attempt started with them.
    pub(crate) prompt: Count,
    /// Operations that were held up at first, or made no attempt.
    pub(crate) held_up: Count,
    /// Attempts that started later than their operations.
    pub(crate) further: Count,
    /// Attempts that have ended and have no latency: those whose caller went away, or that panicked, and the
    /// connections of streams.
    pub(crate) untimed: Count,
    /// How long the attempts took that made their operations succeed.
    pub(crate) succeeded: Histogram,
    /// How long the others took.
    pub(crate) failed: Histogram,
    /// Operations that succeeded otherwise: streams, and those of which a query said that they have taken effect.
    pub(crate) untimed_success: Count,
    pub(crate) affected: Count,
    pub(crate) recovered: Count,
    pub(crate) exhausted: Count,
    pub(crate) shed: Count,
    pub(crate) expired: Count,
    pub(crate) emergency: Count,
    pub(crate) abandoned: Count,
    pub(crate) ambiguous: Count,
    pub(crate) foreign: Count,
    pub(crate) slow: Count,
    pub(crate) recovery: Histogram,
    transient: Count,
    rate_limited: Count,
    invalid: Count,
    permission: Count,
    fatal: Count,
    semantic: Count,
    application: Count,
    runtime: Count,
    handler_error: Count,
    timeout: Count,
    no_resources: Count,
}

impl Counts {
    /// Operations.
    pub(crate) fn logical(&self) -> u64 {
        self.prompt.get().saturating_add(self.held_up.get())
    }

    fn physical(&self) -> u64 {
        self.prompt.get().saturating_add(self.further.get())
    }

    fn success(&self) -> u64 {
        self.succeeded.total().saturating_add(self.untimed_success.get())
    }

    /// Counts a failed attempt. What the caller refused itself has no class: it says nothing about the dependency
    /// and must not move its breaker.
    pub(crate) fn failure(&self, failure: &Failure) {
        if !failure.caller_rejected {
            self.class(failure.class).up();
        }
        match failure.source {
            FailureSource::Application => self.application.up(),
            FailureSource::Runtime => self.runtime.up(),
        }
        match failure.reason {
            Some(FailureReason::HandlerError) => self.handler_error.up(),
            Some(FailureReason::Timeout) => self.timeout.up(),
            Some(FailureReason::NoResources) => self.no_resources.up(),
            None => {}
        }
    }

    fn class(&self, class: FailureClass) -> &Count {
        match class {
            FailureClass::Transient => &self.transient,
            FailureClass::RateLimited => &self.rate_limited,
            FailureClass::Invalid => &self.invalid,
            FailureClass::Permission => &self.permission,
            FailureClass::Fatal => &self.fatal,
            FailureClass::Semantic => &self.semantic,
        }
    }

    /// Attempts started and not ended.
    pub(crate) fn in_flight(&self) -> u64 {
        let timed = self.succeeded.total().saturating_add(self.failed.total());
        let ended = timed.saturating_add(self.untimed.get());
        self.physical().saturating_sub(ended)
    }

    /// Operations whose first attempt succeeded.
    pub(crate) fn first_successes(&self) -> u64 {
        let recovered = self.recovered.get();
        self.success().saturating_sub(recovered)
    }

    /// The counts now. Outcomes are read before starts, so that none is ahead of its start.
    pub(crate) fn snapshot(&self) -> Totals {
        let outcomes = self.outcomes();
        let physical = self.physical();
        Totals { physical, logical: self.logical(), ..outcomes }
    }

    fn outcomes(&self) -> Totals {
        Totals {
            recovered: self.recovered.get(),
            success: self.success(),
            affected: self.affected.get(),
            exhausted: self.exhausted.get(),
            shed: self.shed.get(),
            expired: self.expired.get(),
            emergency: self.emergency.get(),
            abandoned: self.abandoned.get(),
            ambiguous: self.ambiguous.get(),
            foreign: self.foreign.get(),
            slow: self.slow.get(),
            latency: self.succeeded.with(&self.failed),
            recovery: self.recovery.with(&Histogram::default()),
            failures: FailureCounts {
                transient: self.transient.get(),
                rate_limited: self.rate_limited.get(),
                invalid: self.invalid.get(),
                permission: self.permission.get(),
                fatal: self.fatal.get(),
                semantic: self.semantic.get(),
            },
            sources: SourceCounts { application: self.application.get(), runtime: self.runtime.get() },
            reasons: ReasonCounts {
                handler_error: self.handler_error.get(),
                timeout: self.timeout.get(),
                no_resources: self.no_resources.get(),
            },
            ..Totals::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_counted_on_each_axis() {
        let counts = Counts::default();
        let failure = Failure::new(FailureClass::Transient).with_reason(FailureReason::Timeout);
        counts.failure(&failure);
        let totals = counts.snapshot();
        assert_eq!((totals.failures.transient, totals.sources.runtime, totals.reasons.timeout), (1, 1, 1));
    }

    #[test]
    fn an_own_deadline_has_no_class() {
        let counts = Counts::default();
        counts.failure(&Failure::own_deadline());
        let totals = counts.snapshot();
        assert_eq!(totals.failures, FailureCounts::default());
        assert_eq!((totals.sources.application, totals.reasons.timeout), (1, 1));
    }

    #[test]
    fn durations_fall_into_doubling_buckets() {
        let cases =
            [(0, 0), (1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (65_536, 16), (65_537, 17), (u64::MAX, 17)];
        for (ms, expected) in cases {
            assert_eq!(bucket(Duration::from_millis(ms)), expected, "{ms} ms");
        }
        assert_eq!(bucket(Duration::from_nanos(1_000_001)), 1, "more than a millisecond");
        assert_eq!(bucket(Duration::MAX), 17);
        let histogram = Histogram::default();
        assert_eq!(histogram.with(&Histogram::default()), [0_u64; 0]);
        histogram.record(Duration::from_millis(3));
        assert_eq!(histogram.with(&Histogram::default()), [0, 0, 1], "trailing zeros are left out");
    }

    #[test]
    fn the_estimate_follows_and_never_overflows() {
        let estimate = Estimate::default();
        assert_eq!(estimate.get(), Duration::ZERO);
        estimate.record(Duration::from_millis(80));
        assert_eq!(estimate.get(), Duration::from_millis(80), "the first sample is all there is");
        for _ in 0..50 {
            estimate.record(Duration::from_millis(8));
        }
        assert!((8000..9000).contains(&estimate.get().as_micros()), "{:?}", estimate.get());
        estimate.record(Duration::MAX);
        estimate.record(Duration::ZERO);
        assert!(estimate.get() < Duration::MAX);
    }
}
