//! How an operation ends that does not succeed.

use std::{error::Error, fmt, time::Duration};

use damper_protocol::{Dispatch, Reason, RecoveryMode};

use crate::Failure;

/// Declares the reasons once: the enum, [`StopReason::as_str`] and [`StopReason::ALL`].
macro_rules! stop_reasons {
    ($($(#[$meta:meta])* $variant:ident = $word:literal,)+) => {
        /// Why an operation ended without success. A closed list: every operation that fails has exactly one.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum StopReason { $($(#[$meta])* $variant,)+ }

        impl StopReason {
            /// Every reason, in the order of its declaration.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// The reason as it stands in logs and labels.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }
        }
    };
}

stop_reasons! {
    /// The failure's class, the dependency or the classifier says that a retry cannot help.
    NotRetryable = "not_retryable",
    /// A classifier says that the error is none: the operation counts as a success.
    NotAFailure = "not_a_failure",
    /// The last attempt may have taken effect, and a repeat could do harm.
    AmbiguousNotRepeatable = "ambiguous_not_repeatable",
    /// All attempts are used up.
    AttemptsExhausted = "attempts_exhausted",
    /// The caller's hook forbade another attempt.
    DroppedByHook = "dropped_by_hook",
    /// Ten connections of a stream in a row have brought nothing: a fault.
    NoProgress = "no_progress",
    /// The deadline leaves no room for the wait and another attempt.
    DeadlineTooShort = "deadline_too_short",
    /// The deadline passed while an attempt was running.
    DeadlineExceeded = "deadline_exceeded",
    /// The dependency asked for a pause that outlasts the deadline.
    RetryAfterBeyondDeadline = "retry_after_beyond_deadline",
    /// The breaker is open.
    BreakerOpen = "breaker_open",
    /// The breaker is half-open and this attempt is not among its probes.
    BreakerHalfOpen = "breaker_half_open",
    /// The leased rate of first attempts leaves no room for this one before its deadline.
    FirstAttemptsExhausted = "first_attempts_exhausted",
    /// The server said not to ask for a while.
    Suppressed = "suppressed",
    /// Another layer owns the retries of this operation.
    NotRetryOwner = "not_retry_owner",
    /// Refused: the tenant's amplification is at its cap.
    AmplificationCap = "amplification_cap",
    /// Refused: the budget will not have a token in time.
    NoCapacityBeforeDeadline = "no_capacity_before_deadline",
    /// Refused: the delay queue is full.
    QueueFull = "queue_full",
    /// Refused: a more urgent ask took the place in the delay queue.
    Preempted = "preempted",
    /// Refused: the budget is empty.
    BudgetExhausted = "budget_exhausted",
    /// The ask waited in the delay queue until its window closed.
    Expired = "expired",
    /// Refused for a reason that this version does not know.
    RefusedOtherwise = "refused_otherwise",
    /// The server does not accept this client's asks: a mistake in the set-up, not an outage.
    AskRejected = "ask_rejected",
    /// No server answered, and the emergency budget is empty. It has nothing for hedges.
    EmergencyExhausted = "emergency_exhausted",
    /// No server answered in time, and the dependency fails closed.
    FailClosed = "fail_closed",
    /// The server has been away for a while, and the dependency fails closed.
    CircuitOpen = "circuit_open",
    /// Retries are switched off.
    RetriesOff = "retries_off",
    /// The client is shut down.
    ShutDown = "shut_down",
}

impl StopReason {
    /// True if the operation was refused to protect the dependency, or the fleet's budget: it may be tried again
    /// later, but not now. A server that passes this on answers 429.
    #[must_use]
    pub const fn is_refusal(self) -> bool {
        matches!(
            self,
            Self::FirstAttemptsExhausted
                | Self::Suppressed
                | Self::AmplificationCap
                | Self::NoCapacityBeforeDeadline
                | Self::QueueFull
                | Self::Preempted
                | Self::BudgetExhausted
                | Self::Expired
                | Self::RefusedOtherwise
                | Self::EmergencyExhausted
                | Self::RetryAfterBeyondDeadline
        )
    }

    /// True if a repeat by anybody would be in vain, or may do harm.
    pub(crate) const fn is_final(self) -> bool {
        matches!(self, Self::NotRetryable | Self::AmbiguousNotRepeatable | Self::DroppedByHook)
    }

    /// True if the dependency cannot be used at the moment, or nobody may say so. A server that passes this on
    /// answers 503.
    #[must_use]
    pub const fn is_unavailable(self) -> bool {
        matches!(
            self,
            Self::BreakerOpen
                | Self::BreakerHalfOpen
                | Self::FailClosed
                | Self::CircuitOpen
                | Self::AskRejected
                | Self::ShutDown
                | Self::NoProgress
        )
    }

    /// True if there was not enough time. A server that passes this on answers 504.
    #[must_use]
    pub const fn is_timeout(self) -> bool {
        matches!(self, Self::DeadlineTooShort | Self::DeadlineExceeded)
    }
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl From<Reason> for StopReason {
    /// The server's reason for a refusal.
    fn from(reason: Reason) -> Self {
        match reason {
            Reason::NotRetryable => Self::NotRetryable,
            Reason::AttemptsExhausted => Self::AttemptsExhausted,
            Reason::AmbiguousNotRepeatable => Self::AmbiguousNotRepeatable,
            Reason::NotRetryOwner => Self::NotRetryOwner,
            Reason::DeadlineTooShort => Self::DeadlineTooShort,
            Reason::RetryAfterBeyondDeadline => Self::RetryAfterBeyondDeadline,
            Reason::BreakerOpen => Self::BreakerOpen,
            Reason::BreakerHalfOpen => Self::BreakerHalfOpen,
            Reason::AmplificationCap => Self::AmplificationCap,
            Reason::NoCapacityBeforeDeadline => Self::NoCapacityBeforeDeadline,
            Reason::QueueFull => Self::QueueFull,
            Reason::Preempted => Self::Preempted,
            Reason::BudgetExhausted => Self::BudgetExhausted,
            Reason::Expired => Self::Expired,
            Reason::WithinBudget
            | Reason::AfterDelay
            | Reason::Probe
            | Reason::Shadow
            | Reason::Unrecognised => Self::RefusedOtherwise,
        }
    }
}

/// An operation that did not succeed. Its [`source`](Error::source) is the caller's own error, or its
/// [`Failure`] where there is none.
#[derive(Debug)]
#[non_exhaustive]
pub struct CallError<E> {
    /// Why it ended.
    pub reason: StopReason,
    /// What went wrong last. Where no attempt was made it is the refusal: rejected by the caller itself and never
    /// sent. `None` only where a classifier says that nothing has failed.
    pub failure: Option<Box<Failure>>,
    /// Attempts that were started.
    pub attempts: u32,
    /// The error of the last attempt that ended by itself; `None` if none did.
    pub last: Option<E>,
    /// The operation may have taken effect, and nobody knows: some attempt was sent, no answer came, and the
    /// operation is not declared a mere read.
    pub ambiguous: bool,
    /// What may be done about that: the declared recovery mode, if the effect is unknown and one was declared.
    pub recovery: Option<RecoveryMode>,
    /// When it may fare better, as far as that is known: the dependency's pause, or what the server or its breaker
    /// said to a refusal. 366 days at most, so that it can be added to any clock.
    pub retry_after: Option<Duration>,
    /// Nobody further out may retry it.
    pub(crate) forbids_retries: bool,
    /// The failed attempts, the latest 16 of them, oldest first.
    pub history: Vec<Past>,
}

/// A failed attempt of an operation that did not succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Past {
    /// Its number, from 1.
    pub attempt: u32,
    /// What went wrong.
    pub failure: Failure,
    /// How long it took.
    pub took: Duration,
}

impl<E> CallError<E> {
    /// Splits the caller's own error off.
    #[cfg(any(feature = "tower", feature = "reqwest-middleware"))]
    pub(crate) fn split<F>(self) -> (CallError<F>, Option<E>) {
        let Self {
            reason,
            failure,
            attempts,
            last,
            ambiguous,
            recovery,
            retry_after,
            forbids_retries,
            history,
        } = self;
        let rest = CallError {
            reason,
            failure,
            attempts,
            last: None,
            ambiguous,
            recovery,
            retry_after,
            forbids_retries,
            history,
        };
        (rest, last)
    }

    /// True if retries were spent here or further in, if whoever answered has forbidden them, or if a repeat would be in
    /// vain or may do harm: a service that passes the failure on has to forbid its own caller to retry
    /// ([`refuse_retries`](crate::refuse_retries)), or attempts multiply, and a failure that is for good looks like
    /// one that passes. The axum response does.
    #[must_use]
    pub const fn forbids_retries(&self) -> bool {
        self.forbids_retries
    }

    /// True if the last attempt provably had no effect, or none was made.
    #[must_use]
    pub fn had_no_effect(&self) -> bool {
        !self.ambiguous
            && self.failure.as_ref().is_some_and(|failure| failure.dispatch != Dispatch::Processed)
    }
}

impl<E> fmt::Display for CallError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.failure, self.attempts) {
            (_, 0) => write!(f, "not attempted: {}", self.reason),
            (None, attempts) => write!(f, "{} after {attempts} attempts", self.reason),
            (Some(failure), 1) => write!(f, "{} after 1 attempt: {failure}", self.reason),
            (Some(failure), attempts) => write!(f, "{} after {attempts} attempts: {failure}", self.reason),
        }
    }
}

impl<E: Error + 'static> Error for CallError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        let failure = || self.failure.as_deref().map(|failure| failure as &(dyn Error + 'static));
        self.last.as_ref().map(|error| error as &(dyn Error + 'static)).or_else(failure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_said_once() {
        let mut words: Vec<&str> = StopReason::ALL.iter().map(|reason| reason.as_str()).collect();
        words.sort_unstable();
        let count = words.len();
        words.dedup();
        assert_eq!(words.len(), count);
    }

    #[test]
    fn a_refusal_keeps_the_server_s_word() {
        let granted = [Reason::WithinBudget, Reason::AfterDelay, Reason::Probe, Reason::Shadow];
        for reason in Reason::ALL {
            let stop = StopReason::from(*reason);
            if granted.contains(reason) || *reason == Reason::Unrecognised {
                assert_eq!(stop, StopReason::RefusedOtherwise);
            } else {
                assert_eq!(stop.as_str(), reason.as_str());
            }
        }
    }

    #[test]
    fn the_source_is_the_caller_s_own_error() {
        let error = CallError {
            reason: StopReason::NotRetryable,
            failure: Some(Box::new(Failure::unclassified())),
            attempts: 1,
            last: Some(fmt::Error),
            ambiguous: true,
            recovery: None,
            retry_after: None,
            forbids_retries: false,
            history: Vec::new(),
        };
        assert!(error.source().unwrap().is::<fmt::Error>());
        assert_eq!(error.to_string(), "not_retryable after 1 attempt: invalid failure (unclassified)");
    }
}
