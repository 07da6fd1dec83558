//! The closed lists of words of the domain. They are the words of the protocol, which the edge maps one to
//! one: a variant that is missing on either side does not compile.

/// Declares a list of words once: the enum, `as_str` and `ALL`.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$variant_meta])* $variant,)+ }

        impl $name {
            /// Every word of the list, in the order of its declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The word as it stands in logs and labels.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }

            /// The word's place in [`ALL`](Self::ALL).
            #[must_use]
            pub const fn index(self) -> usize {
                self as usize
            }
        }
    };
}

words! {
    /// What an ask wants a token for.
    Kind {
        /// Another attempt after a failed one.
        Retry = "retry",
        /// A second copy of a slow attempt.
        Hedge = "hedge",
        /// A first attempt, as a probe of a half-open breaker.
        First = "first",
    }
}

words! {
    /// The outcome of an ask.
    Verdict {
        /// The attempt may start.
        Granted = "granted",
        /// It may not.
        Shed = "shed",
        /// Its window closed while it waited.
        Expired = "expired",
    }
}

words! {
    /// Why a decision is what it is.
    Reason {
        /// Granted at once from the pool.
        WithinBudget = "within_budget",
        /// Granted after a wait in the delay queue.
        AfterDelay = "after_delay",
        /// Granted as a test of a half-open breaker.
        Probe = "probe",
        /// Granted because the dependency is in shadow mode.
        Shadow = "shadow",
        /// The failure's class says that a retry cannot help.
        NotRetryable = "not_retryable",
        /// The operation has used all its attempts.
        AttemptsExhausted = "attempts_exhausted",
        /// The last attempt may have taken effect and must not be repeated.
        AmbiguousNotRepeatable = "ambiguous_not_repeatable",
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
        /// No token will be free before the window closes.
        NoCapacityBeforeDeadline = "no_capacity_before_deadline",
        /// The delay queue is full.
        QueueFull = "queue_full",
        /// Another ask took this one's place in the delay queue.
        Preempted = "preempted",
        /// The pool is empty and the ask does not wait.
        BudgetExhausted = "budget_exhausted",
        /// The window closed while the ask waited.
        Expired = "expired",
    }
}

impl Reason {
    /// The outcome that this reason explains.
    #[must_use]
    pub const fn verdict(self) -> Verdict {
        match self {
            Self::WithinBudget | Self::AfterDelay | Self::Probe | Self::Shadow => Verdict::Granted,
            Self::Expired => Verdict::Expired,
            _ => Verdict::Shed,
        }
    }
}

words! {
    /// What went wrong with an attempt.
    Class {
        /// Passing trouble.
        Transient = "transient",
        /// The dependency limits us.
        RateLimited = "rate_limited",
        /// The request is wrong.
        Invalid = "invalid",
        /// Not allowed.
        Permission = "permission",
        /// The dependency is broken.
        Fatal = "fatal",
        /// A well-formed wrong answer.
        Semantic = "semantic",
    }
}

impl Class {
    /// Whether a retry can help at all (requirement R4).
    #[must_use]
    pub const fn is_retryable(self) -> bool {
        matches!(self, Self::Transient | Self::RateLimited)
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
    Dispatch {
        /// It provably never left.
        NotSent = "not_sent",
        /// It arrived and provably was not processed.
        NotProcessed = "not_processed",
        /// Unknown.
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
        /// Nothing can be known.
        Opaque = "opaque",
    }
}

words! {
    /// The rank of an ask inside its tenant.
    Priority {
        /// A person waits for it.
        Critical = "critical",
        /// The usual.
        Normal = "normal",
        /// Work that can be done later.
        Bulk = "bulk",
    }
}

words! {
    /// The state of a breaker.
    BreakerState {
        /// Attempts pass.
        Closed = "closed",
        /// Attempts fail at once.
        Open = "open",
        /// A few probes pass.
        HalfOpen = "half_open",
    }
}

words! {
    /// Why a breaker is in its state.
    BreakerCause {
        /// It is new.
        Fresh = "fresh",
        /// The share of failed attempts.
        FailureShare = "failure_share",
        /// Failures in a row.
        ConsecutiveFailures = "consecutive_failures",
        /// The share of slow attempts.
        SlowShare = "slow_share",
        /// Its time of being open is over.
        OpenTimeOver = "open_time_over",
        /// A probe failed.
        ProbeFailed = "probe_failed",
        /// Enough probes succeeded.
        ProbesSucceeded = "probes_succeeded",
        /// An operator forced or released it.
        Operator = "operator",
        /// A client saw it so under another life of the server.
        ClientMemory = "client_memory",
    }
}

words! {
    /// What clients do about retries while no server answers.
    FailMode {
        /// Retry within the emergency limiter.
        Open = "open",
        /// Do not retry.
        Closed = "closed",
    }
}

words! {
    /// Which of several nested layers owns an operation's retries.
    RetryOwner {
        /// The outermost layer that claims them.
        Outermost = "outermost",
        /// The layer next to the dependency.
        Innermost = "innermost",
    }
}

words! {
    /// For whom a breaker is.
    Scope {
        /// Everyone.
        Dependency = "dependency",
        /// Each tenant has its own.
        Tenant = "tenant",
    }
}

words! {
    /// What an open breaker stops.
    OnOpen {
        /// First attempts and retries.
        All = "all",
        /// Retries alone.
        Retries = "retries",
    }
}

words! {
    /// The term of the rate formula that is in force.
    BoundBy {
        /// The plain fixed pool.
        PerS = "per_s",
        /// The share of first-attempt successes.
        Ratio = "ratio",
        /// The room that first attempts leave below the capacity.
        Headroom = "headroom",
        /// The least rate of the whole fleet.
        Floor = "floor",
    }
}
