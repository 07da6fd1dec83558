//! The closed lists of words that messages, logs, metrics and dashboards share.

use serde::{Deserialize, Serialize};

/// Declares a list of words once: the enum, its snake_case wire form, [`as_str`](Reason::as_str) and `ALL`.
/// Each word is taken as a token, because the OpenAPI derive does not see through a captured literal.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $word:tt,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        pub enum $name { $($(#[$variant_meta])* #[serde(rename = $word)] $variant,)+ }

        impl $name {
            /// Every word of the list, in the order of its declaration.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// The word as it stands in messages, logs and labels.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

words! {
    /// What an ask wants a token for.
    #[derive(Default)]
    AskKind {
        /// Another attempt of an operation whose last attempt failed.
        #[default]
        Retry = "retry",
        /// A second copy of an attempt that is slow, not failed.
        Hedge = "hedge",
        /// A first attempt; only needed as a probe of a half-open breaker.
        First = "first",
    }
}

words! {
    /// What an operator makes of a breaker.
    ForcedBreaker {
        /// Open until it is released.
        Open = "open",
        /// Closed until it is released.
        Closed = "closed",
        /// Released: it decides by itself again. One that was open lets probes test the dependency first.
        Auto = "auto",
    }
}

words! {
    /// The answer to an ask.
    Decision {
        /// The attempt may start now, within the token's time to live.
        Granted = "granted",
        /// The attempt may not run; the reason says why.
        Shed = "shed",
        /// The ask waited in the delay queue until its window closed.
        Expired = "expired",
    }
}

words! {
    /// Why a decision is what it is. A closed list; a client treats a word that it does not know as
    /// [`Reason::Unrecognised`] and goes by the decision alone.
    Reason {
        /// Granted at once from the pool.
        WithinBudget = "within_budget",
        /// Granted after a wait in the delay queue.
        AfterDelay = "after_delay",
        /// Granted as one of the few attempts that test a half-open breaker.
        Probe = "probe",
        /// Granted because the dependency is in shadow mode.
        Shadow = "shadow",
        /// The failure's class says that a retry cannot help.
        NotRetryable = "not_retryable",
        /// The operation has used all its attempts.
        AttemptsExhausted = "attempts_exhausted",
        /// The last attempt may have taken effect and must not be repeated.
        AmbiguousNotRepeatable = "ambiguous_not_repeatable",
        /// Another layer owns the retries of this operation.
        NotRetryOwner = "not_retry_owner",
        /// The deadline leaves no room for the backoff and an attempt.
        DeadlineTooShort = "deadline_too_short",
        /// The dependency asked for a pause that outlasts the deadline.
        RetryAfterBeyondDeadline = "retry_after_beyond_deadline",
        /// The breaker is open.
        BreakerOpen = "breaker_open",
        /// The breaker is half-open and all its probes are out.
        BreakerHalfOpen = "breaker_half_open",
        /// The tenant's amplification is at its cap.
        AmplificationCap = "amplification_cap",
        /// The pool will not have a token for this ask before its window closes.
        NoCapacityBeforeDeadline = "no_capacity_before_deadline",
        /// The delay queue is full.
        QueueFull = "queue_full",
        /// A more urgent ask took this one's place in the delay queue.
        Preempted = "preempted",
        /// The pool is empty and the ask does not wait.
        BudgetExhausted = "budget_exhausted",
        /// The window closed while the ask waited.
        Expired = "expired",
        /// A word of a newer server.
        #[serde(other)]
        Unrecognised = "unrecognised",
    }
}

words! {
    /// What went wrong with an attempt.
    FailureClass {
        /// Passing trouble: 503, reset, timeout. Retried if the operation is safe to repeat.
        Transient = "transient",
        /// The dependency limits us: 429. Retried slowly, honouring Retry-After.
        RateLimited = "rate_limited",
        /// The request itself is wrong: 400, schema error. Never retried.
        Invalid = "invalid",
        /// Not allowed: 401, 403, policy. Never retried.
        Permission = "permission",
        /// The dependency is broken. Not retried; the breaker counts it.
        Fatal = "fatal",
        /// A success status with a wrong answer. A retry is pointless.
        Semantic = "semantic",
    }
}

words! {
    /// Who failed.
    #[derive(Default)]
    FailureSource {
        /// The caller's own code.
        Application = "application",
        /// The platform, the network, or waiting for a free slot.
        #[default]
        Runtime = "runtime",
    }
}

words! {
    /// The failure as a handler platform sees it.
    FailureReason {
        /// The handler returned an error.
        HandlerError = "handler_error",
        /// The attempt took too long.
        Timeout = "timeout",
        /// There was no free slot for the attempt.
        NoResources = "no_resources",
    }
}

words! {
    /// Whether the failed attempt can have had an effect.
    #[derive(Default)]
    Dispatch {
        /// It provably never left.
        NotSent = "not_sent",
        /// It arrived and provably was not processed.
        NotProcessed = "not_processed",
        /// It may have been processed; no answer came.
        #[default]
        Ambiguous = "ambiguous",
        /// It was processed.
        Processed = "processed",
    }
}

words! {
    /// What an operation with an unknown effect allows.
    RecoveryMode {
        /// The provider recognises a repeat by its key.
        ProviderIdempotent = "provider_idempotent",
        /// Whether it took effect can be asked for.
        Queryable = "queryable",
        /// It can be undone.
        Compensatable = "compensatable",
        /// Nothing can be known; never repeated.
        Opaque = "opaque",
    }
}

words! {
    /// The rank of an ask inside its tenant. It never outranks another tenant.
    #[derive(Default)]
    Priority {
        /// A person waits for it.
        Critical = "critical",
        /// The usual.
        #[default]
        Normal = "normal",
        /// Work that can be done later.
        Bulk = "bulk",
    }
}

words! {
    /// The state of a dependency's breaker.
    #[derive(Default)]
    BreakerState {
        /// Attempts pass.
        #[default]
        Closed = "closed",
        /// Attempts fail at once.
        Open = "open",
        /// A few probes pass.
        HalfOpen = "half_open",
    }
}

words! {
    /// What a client does about retries while no server answers.
    #[derive(Default)]
    FailMode {
        /// Retry within the emergency limiter.
        #[default]
        Open = "open",
        /// Do not retry. First attempts are never affected.
        Closed = "closed",
    }
}

words! {
    /// Which of several nested layers owns an operation's retries.
    #[derive(Default)]
    RetryOwner {
        /// The outermost layer that claims them.
        #[default]
        Outermost = "outermost",
        /// The layer next to the dependency.
        Innermost = "innermost",
    }
}

words! {
    /// What an open breaker stops.
    #[derive(Default)]
    OnOpen {
        /// First attempts and retries.
        #[default]
        All = "all",
        /// Retries alone, so that a partial outage is not made total.
        Retries = "retries",
    }
}

words! {
    /// How far a server's decisions can be trusted at the moment.
    #[derive(Default)]
    Mode {
        /// Fully.
        #[default]
        Normal = "normal",
        /// Just started: it honours what clients say they hold.
        Learning = "learning",
        /// It decides without its shared store, with a smaller budget.
        Degraded = "degraded",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wire_form_of_a_word_is_its_as_str() {
        for reason in Reason::ALL {
            let json = serde_json::to_string(reason).unwrap();
            assert_eq!(json, format!("\"{reason}\""));
            assert_eq!(serde_json::from_str::<Reason>(&json).unwrap(), *reason);
        }
    }

    #[test]
    fn a_reason_of_a_newer_server_is_not_an_error() {
        assert_eq!(serde_json::from_str::<Reason>("\"solar_flare\"").unwrap(), Reason::Unrecognised);
    }
}
