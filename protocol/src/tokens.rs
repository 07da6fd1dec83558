//! `POST /v1/tokens`, its batch form, and the return of an unused token.

use serde::{Deserialize, Serialize};

use crate::{
    AskKind, BreakerState, Decision, Dispatch, FailureClass, FailureReason, FailureSource, Priority, Reason,
    RecoveryMode,
};

/// One ask: may this attempt start, and when?
///
/// The window of an ask is from `earliest_ms` to the last moment at which an attempt of `expected_ms` still
/// fits `deadline_ms`, or to `max_wait_ms` if that is sooner.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AskRequest {
    /// Makes a repeat of this ask safe: the same id gets the same answer and is charged once. Without one,
    /// nothing is deduplicated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// The dependency that the attempt would load.
    pub dependency: String,
    /// Who spends; the credential's only tenant, or `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// What the token is for.
    #[serde(default)]
    pub kind: AskKind,
    /// The id that all attempts of one logical operation share.
    pub operation: String,
    /// The number of the attempt that would start, from 1.
    pub attempt: u32,
    /// How the attempt before ended; required for a retry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailureReport>,
    /// The operation may be repeated whatever became of the attempt before.
    #[serde(default)]
    pub idempotent: bool,
    /// What may be done about an attempt whose effect is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery_mode: Option<RecoveryMode>,
    /// Rank inside the tenant.
    #[serde(default)]
    pub priority: Priority,
    /// Price of the attempt in tokens, from 1.
    #[serde(default = "one")]
    pub cost: u32,
    /// Time left for the whole operation, in milliseconds.
    pub deadline_ms: u64,
    /// The caller's own backoff: no grant before it, in milliseconds.
    #[serde(default)]
    pub earliest_ms: u64,
    /// How long the attempt will probably take, in milliseconds.
    #[serde(default)]
    pub expected_ms: u64,
    /// Longest wait for the answer, in milliseconds; 0 decides at once. Default: the dependency's `max_delay_ms`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_wait_ms: Option<u64>,
}

const fn one() -> u32 {
    1
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FailureReport {
    /// What went wrong.
    pub class: FailureClass,
    /// The failure as a handler platform sees it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<FailureReason>,
    /// Who failed.
    #[serde(default)]
    pub source: FailureSource,
    /// Whether the attempt can have had an effect.
    #[serde(default)]
    pub dispatch: Dispatch,
    /// The dependency said not to retry: pushback that ends the operation.
    #[serde(default)]
    pub do_not_retry: bool,
    /// The caller refused the attempt itself and told its own caller so, who may come again.
    #[serde(default)]
    pub caller_rejected: bool,
    /// The dependency's own status, for people: `503`, `UNAVAILABLE`, `ECONNRESET`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The dependency's Retry-After, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}

/// The answer to an ask. Always sent with status 200, whatever the decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AskResponse {
    /// The decision.
    pub decision: Decision,
    /// Why.
    pub reason: Reason,
    /// The token, if granted; it can be returned once while it lives.
    pub token: Option<String>,
    /// How long the token lives, in milliseconds; the attempt has to start by then.
    pub token_ttl_ms: Option<u64>,
    /// How long the ask waited in the delay queue, in milliseconds.
    pub waited_ms: u64,
    /// When another ask may fare better, in milliseconds, where waiting can help.
    pub retry_after_ms: Option<u64>,
    /// Ask nothing for this dependency for so long and shed locally, in milliseconds.
    pub suppress_ms: u64,
    /// The breaker at the moment of the decision.
    pub breaker: BreakerVersion,
    /// In shadow mode: the decision and reason that it would have been.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub would_have_been: Option<WouldHaveBeen>,
}

/// What a shadowed decision would have been.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WouldHaveBeen {
    /// The decision.
    pub decision: Decision,
    /// Why.
    pub reason: Reason,
}

/// The state of a breaker and the number of the transition that led to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BreakerVersion {
    /// The state.
    pub state: BreakerState,
    /// Rises with every transition.
    pub version: u64,
}

/// Several asks, each decided at once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BatchRequest {
    /// At most [`MAX_BATCH_ASKS`](crate::MAX_BATCH_ASKS).
    pub asks: Vec<AskRequest>,
}

/// The answers to a batch, in the order of its asks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BatchResponse {
    /// One answer for each ask.
    pub answers: Vec<AskResponse>,
}

/// Gives an unused token back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReturnRequest {
    /// The token of a granted ask.
    pub token: String,
}

/// Whether a token came back in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReturnResponse {
    /// False if the token had been returned before, had expired, or is unknown; nothing is credited then.
    pub returned: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_ask_has_the_documented_defaults() {
        let ask: AskRequest = serde_json::from_str(
            r#"{"dependency":"payments","operation":"o","attempt":2,"deadline_ms":1800,
                "failure":{"class":"transient"},"a_field_of_the_future":[1,2]}"#,
        )
        .unwrap();
        assert_eq!((ask.kind, ask.priority, ask.cost), (AskKind::Retry, Priority::Normal, 1));
        assert_eq!((ask.earliest_ms, ask.expected_ms, ask.max_wait_ms), (0, 0, None));
        let failure = ask.failure.unwrap();
        assert_eq!((failure.dispatch, failure.source), (Dispatch::Ambiguous, FailureSource::Runtime));
        assert!(!ask.idempotent && ask.request_id.is_none());
    }
}
