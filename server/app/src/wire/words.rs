//! The closed lists of words.

use damper_core as core;
use damper_protocol as wire;

/// A word of the core that peers are told.
pub(crate) trait ToWire {
    /// The protocol's list.
    type Wire;
    /// The same word.
    fn to_wire(self) -> Self::Wire;
}

/// A word that peers say.
pub(crate) trait ToCore {
    /// The core's list.
    type Core;
    /// The same word.
    fn to_core(self) -> Self::Core;
}

macro_rules! to_wire {
    ($($from:ident => $to:ident { $($word:ident,)+ })+) => {$(
        impl ToWire for core::$from {
            type Wire = wire::$to;
            fn to_wire(self) -> wire::$to {
                match self { $(Self::$word => wire::$to::$word,)+ }
            }
        }
    )+};
}

macro_rules! to_core {
    ($($from:ident => $to:ident { $($word:ident,)+ })+) => {$(
        impl ToCore for wire::$from {
            type Core = core::$to;
            fn to_core(self) -> core::$to {
                match self { $(Self::$word => core::$to::$word,)+ }
            }
        }
    )+};
}

to_wire! {
    Verdict => Decision { Granted, Shed, Expired, }
    Reason => Reason {
        WithinBudget,
        AfterDelay,
        Probe,
        Shadow,
        NotRetryable,
        AttemptsExhausted,
        AmbiguousNotRepeatable,
        DeadlineTooShort,
        RetryAfterBeyondDeadline,
        BreakerOpen,
        BreakerHalfOpen,
        AmplificationCap,
        NoCapacityBeforeDeadline,
        QueueFull,
        Preempted,
        BudgetExhausted,
        Expired,
    }
    Kind => AskKind { Retry, Hedge, First, }
    BreakerState => BreakerState { Closed, Open, HalfOpen, }
    FailMode => FailMode { Open, Closed, }
    RetryOwner => RetryOwner { Outermost, Innermost, }
    OnOpen => OnOpen { All, Retries, }
}

to_core! {
    AskKind => Kind { Retry, Hedge, First, }
    FailureClass => Class { Transient, RateLimited, Invalid, Permission, Fatal, Semantic, }
    FailureReason => FailureReason { HandlerError, Timeout, NoResources, }
    Dispatch => Dispatch { NotSent, NotProcessed, Ambiguous, Processed, }
    RecoveryMode => RecoveryMode { ProviderIdempotent, Queryable, Compensatable, Opaque, }
    Priority => Priority { Critical, Normal, Bulk, }
    BreakerState => BreakerState { Closed, Open, HalfOpen, }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_spelt_the_same_on_both_sides() {
        for reason in core::Reason::ALL {
            assert_eq!(reason.to_wire().as_str(), reason.as_str());
            assert_eq!(reason.verdict().to_wire().as_str(), reason.verdict().as_str());
        }
        for kind in wire::AskKind::ALL {
            assert_eq!(kind.to_core().as_str(), kind.as_str());
        }
        for class in wire::FailureClass::ALL {
            assert_eq!(class.to_core().as_str(), class.as_str());
        }
    }
}
