//! What goes into a decision, and what comes out.

use crate::{
    BreakerState, Class, Dispatch, FailureReason, Kind, MicroTokens, Moment, Priority, Reason, RecoveryMode,
    Span, Verdict,
};

/// One ask for a token. Spans count from the moment of the ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Makes a repeat of this ask safe; scoped to its tenant.
    pub request_id: Option<Box<str>>,
    /// Who spends.
    pub tenant: Box<str>,
    /// What for.
    pub kind: Kind,
    /// The number of the attempt that would start, from 1.
    pub attempt: u32,
    /// How the attempt before ended; [`None`] for first attempts and hedges.
    pub failure: Option<Failure>,
    /// The operation may be repeated whatever became of the attempt before.
    pub idempotent: bool,
    /// What may be done about an unknown effect.
    pub recovery_mode: Option<RecoveryMode>,
    /// Rank inside the tenant.
    pub priority: Priority,
    /// Price in whole tokens, at least 1.
    pub cost: u32,
    /// Time left for the whole operation.
    pub deadline: Span,
    /// No grant before it.
    pub earliest: Span,
    /// How long the attempt will probably take.
    pub expected: Span,
    /// Longest wait for the answer; zero decides at once. [`None`]: the policy's `max_delay`.
    pub max_wait: Option<Span>,
}

impl Ask {
    /// Whether the ask wants its answer now.
    #[must_use]
    pub(crate) fn decides_now(&self) -> bool {
        self.max_wait == Some(Span::ZERO)
    }

    /// Whether repeating the operation is safe: it declared so, the attempt before cannot have had an effect,
    /// the caller itself turned it away, or the provider recognises repeats (requirement R5).
    pub(crate) fn is_repeatable(&self) -> bool {
        self.idempotent
            || self.recovery_mode == Some(RecoveryMode::ProviderIdempotent)
            || self.failure.as_ref().is_none_or(|failure| {
                failure.caller_rejected
                    || matches!(failure.dispatch, Dispatch::NotSent | Dispatch::NotProcessed)
            })
    }
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What went wrong.
    pub class: Class,
    /// The same as a handler platform sees it.
    pub reason: Option<FailureReason>,
    /// Whether it can have had an effect.
    pub dispatch: Dispatch,
    /// The dependency said not to retry.
    pub do_not_retry: bool,
    /// The caller refused it itself.
    pub caller_rejected: bool,
    /// The dependency's Retry-After.
    pub retry_after: Option<Span>,
}

/// Why an ask cannot be decided at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AskFault {
    /// It costs more than the pool can ever hold; it would wait for ever.
    CostAboveBurst {
        /// What the pool can hold.
        burst: MicroTokens,
    },
    /// It costs nothing, so nothing would limit it.
    CostZero,
    /// A retry that does not say how the attempt before ended.
    FailureMissing,
}

/// What becomes of an ask at the moment it is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Decided.
    Decided(Decision),
    /// It waits in the delay queue; the decision comes out of a later transition under this id.
    Waiting(AskId),
}

/// A waiting ask. Unique within the dependency's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AskId(pub(crate) u64);

/// The answer to an ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The outcome.
    pub verdict: Verdict,
    /// Why.
    pub reason: Reason,
    /// The token, if granted.
    pub grant: Option<Grant>,
    /// How long the ask waited.
    pub waited: Span,
    /// When another ask may fare better, where waiting can help.
    pub retry_after: Option<Span>,
    /// Ask nothing for this dependency for so long.
    pub suppress: Span,
    /// The breaker at the moment of the decision.
    pub breaker: BreakerVersion,
    /// In shadow mode: the reason that it would have had.
    pub would_have_been: Option<Reason>,
}

/// A token: the right to start one attempt until it expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Which.
    pub token: TokenId,
    /// How long it lives.
    pub ttl: Span,
}

/// A token's number within its dependency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenId(u64);

impl TokenId {
    /// From a number that a peer sent; a wrong one is not an error but a token that nobody knows.
    #[must_use]
    pub const fn from_number(number: u64) -> Self {
        Self(number)
    }

    /// For a message.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }
}

/// The state of a breaker and the number of the transition that led to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerVersion {
    /// The state.
    pub state: BreakerState,
    /// Rises with every transition.
    pub version: u64,
}

/// The moments between which an ask can be granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) opens: Moment,
    pub(crate) closes: Moment,
}
