//! Cumulative counts of one dependency: atomics that only rise.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

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

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// The counts behind [`Totals`]. Operations and attempts are counted when they start, outcomes when they end.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) logical: Count,
    pub(crate) physical: Count,
    /// Attempts that ended, however they did.
    pub(crate) ended: Count,
    pub(crate) success: Count,
    pub(crate) affected: Count,
    pub(crate) recovered: Count,
    pub(crate) exhausted: Count,
    pub(crate) shed: Count,
    pub(crate) expired: Count,
    pub(crate) emergency: Count,
    pub(crate) abandoned: Count,
    pub(crate) ambiguous: Count,
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
    /// Counts a failed attempt. What the caller refused itself has no class: it says nothing about the dependency
    /// and must not move its breaker.
    pub(crate) fn failed(&self, failure: &Failure) {
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
        let ended = self.ended.get();
        self.physical.get().saturating_sub(ended)
    }

    /// Operations whose first attempt succeeded.
    pub(crate) fn first_successes(&self) -> u64 {
        let recovered = self.recovered.get();
        self.success.get().saturating_sub(recovered)
    }

    /// The counts now. Outcomes are read before starts, so that none is ahead of its start.
    pub(crate) fn snapshot(&self) -> Totals {
        let outcomes = self.outcomes();
        let physical = self.physical.get();
        Totals { physical, logical: self.logical.get(), ..outcomes }
    }

    fn outcomes(&self) -> Totals {
        Totals {
            recovered: self.recovered.get(),
            success: self.success.get(),
            affected: self.affected.get(),
            exhausted: self.exhausted.get(),
            shed: self.shed.get(),
            expired: self.expired.get(),
            emergency: self.emergency.get(),
            abandoned: self.abandoned.get(),
            ambiguous: self.ambiguous.get(),
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
        counts.failed(&failure);
        let totals = counts.snapshot();
        assert_eq!((totals.failures.transient, totals.sources.runtime, totals.reasons.timeout), (1, 1, 1));
    }

    #[test]
    fn an_own_deadline_has_no_class() {
        let counts = Counts::default();
        counts.failed(&Failure::own_deadline());
        let totals = counts.snapshot();
        assert_eq!(totals.failures, FailureCounts::default());
        assert_eq!((totals.sources.application, totals.reasons.timeout), (1, 1));
    }
}
