//! The messages that peers send, and the checks that their types leave open.

use damper_protocol::admin::ForceRequest;
use damper_protocol::{
    AskKind, AskRequest, BatchRequest, BreakerState, Dispatch, FailureClass, FailureReason, FailureSource,
    ForcedBreaker, MAX_DURATION_MS, Priority, RecoveryMode, ReturnRequest, SyncDependency, SyncRequest,
    name_fault,
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::Presence::{Defaulted, Optional, Required};
use super::{COUNT, Field, Presence, Rule, Shape};

/// What a peer sends as a body.
pub(crate) trait Message: DeserializeOwned {
    /// What it has to look like.
    const SHAPE: &'static Shape;
    /// Most bytes.
    const MOST_BYTES: usize;
    /// JSON arrays that a usual message has. One that has more is compared with the shape first: serde would
    /// take a list for an object.
    const ARRAYS: usize;

    /// Whether everything is in the range that the shape gives it: the quick form of asking for no faults.
    fn is_sound(&self) -> bool;
}

const KIB: usize = 1024;

macro_rules! words {
    ($list:ty) => {
        Rule::Word(|| <$list>::ALL.iter().map(|word| word.as_str()).collect())
    };
}

const DURATION: Rule = Rule::Whole { least: 0, most: MAX_DURATION_MS };
const FROM_ONE: Rule = Rule::Whole { least: 1, most: u32::MAX as u64 };

const fn field(name: &'static str, presence: Presence, rule: Rule) -> Field {
    Field { name, presence, rule }
}

const fn shape(fields: &'static [Field]) -> Shape {
    Shape { fields, also: |_| None }
}

const FAILURE: &Shape = &shape(&[
    field("class", Required, words!(FailureClass)),
    field("reason", Optional, words!(FailureReason)),
    field("source", Defaulted, words!(FailureSource)),
    field("dispatch", Defaulted, words!(Dispatch)),
    field("do_not_retry", Defaulted, Rule::Flag),
    field("caller_rejected", Defaulted, Rule::Flag),
    field("code", Optional, Rule::Text),
    field("retry_after_ms", Optional, DURATION),
]);

const ASK: &Shape = &Shape {
    fields: &[
        field("request_id", Optional, Rule::Name),
        field("dependency", Required, Rule::Name),
        field("tenant", Optional, Rule::Name),
        field("kind", Defaulted, words!(AskKind)),
        field("operation", Required, Rule::Name),
        field("attempt", Required, FROM_ONE),
        field("failure", Optional, Rule::Object(FAILURE)),
        field("idempotent", Defaulted, Rule::Flag),
        field("recovery_mode", Optional, words!(RecoveryMode)),
        field("priority", Defaulted, words!(Priority)),
        field("cost", Defaulted, FROM_ONE),
        field("deadline_ms", Required, DURATION),
        field("earliest_ms", Defaulted, DURATION),
        field("expected_ms", Defaulted, DURATION),
        field("max_wait_ms", Optional, DURATION),
    ],
    also: |ask| missing_class(ask).then_some(("/failure/class", "is required for a retry")),
};

/// A retry that does not say how the attempt before ended.
fn missing_class(ask: &Map<String, Value>) -> bool {
    let is_retry = ask.get("kind").is_none_or(|kind| kind == AskKind::Retry.as_str());
    is_retry && ask.get("failure").is_none_or(Value::is_null)
}

const FAILURES: &Shape = &shape(&[
    field("transient", Defaulted, COUNT),
    field("rate_limited", Defaulted, COUNT),
    field("invalid", Defaulted, COUNT),
    field("permission", Defaulted, COUNT),
    field("fatal", Defaulted, COUNT),
    field("semantic", Defaulted, COUNT),
]);

const TOTALS: &Shape = &shape(&[
    field("logical", Defaulted, COUNT),
    field("physical", Defaulted, COUNT),
    field("success", Defaulted, COUNT),
    field("failures", Defaulted, Rule::Object(FAILURES)),
    field(
        "sources",
        Defaulted,
        Rule::Object(&shape(&[field("application", Defaulted, COUNT), field("runtime", Defaulted, COUNT)])),
    ),
    field(
        "reasons",
        Defaulted,
        Rule::Object(&shape(&[
            field("handler_error", Defaulted, COUNT),
            field("timeout", Defaulted, COUNT),
            field("no_resources", Defaulted, COUNT),
        ])),
    ),
    field("affected", Defaulted, COUNT),
    field("recovered", Defaulted, COUNT),
    field("exhausted", Defaulted, COUNT),
    field("shed", Defaulted, COUNT),
    field("expired", Defaulted, COUNT),
    field("emergency", Defaulted, COUNT),
    field("abandoned", Defaulted, COUNT),
    field("ambiguous", Defaulted, COUNT),
    field("foreign", Defaulted, COUNT),
    field("slow", Defaulted, COUNT),
    field("latency", Defaulted, Rule::Counts),
    field("recovery", Defaulted, Rule::Counts),
]);

const SYNCED: &Shape = &shape(&[
    field("wants_first_per_s", Defaulted, Rule::Rate),
    field("has_first_per_s", Defaulted, Rule::Rate),
    field("in_flight", Defaulted, COUNT),
    field("breaker_version", Defaulted, COUNT),
    field("breaker_state", Optional, words!(BreakerState)),
    field("totals", Defaulted, Rule::Object(TOTALS)),
    field("acked", Optional, Rule::Object(TOTALS)),
    field(
        "probes",
        Optional,
        Rule::List(&shape(&[field("token", Required, Rule::Text), field("success", Required, Rule::Flag)])),
    ),
]);

const SYNC: &Shape = &shape(&[
    field(
        "client",
        Required,
        Rule::Object(&shape(&[
            field("id", Required, Rule::Name),
            field("incarnation", Required, Rule::Name),
            field("name", Optional, Rule::Name),
            field("version", Optional, Rule::Name),
        ])),
    ),
    field("tenant", Optional, Rule::Name),
    field("epoch", Optional, Rule::Text),
    field("dependencies", Defaulted, Rule::Named(SYNCED)),
]);

fn is_name(name: &str) -> bool {
    name_fault(name).is_none()
}

fn is_name_or_absent(name: Option<&String>) -> bool {
    name.is_none_or(|name| is_name(name))
}

impl Message for AskRequest {
    const SHAPE: &'static Shape = ASK;
    const MOST_BYTES: usize = 64 * KIB;
    const ARRAYS: usize = 0;

    fn is_sound(&self) -> bool {
        let failure = self.failure.as_ref();
        let durations = [self.deadline_ms, self.earliest_ms, self.expected_ms, self.max_wait_ms.unwrap_or(0)];
        is_name(&self.dependency)
            && is_name(&self.operation)
            && is_name_or_absent(self.tenant.as_ref())
            && is_name_or_absent(self.request_id.as_ref())
            && self.attempt > 0
            && self.cost > 0
            && durations.iter().all(|ms| *ms <= MAX_DURATION_MS)
            && failure.and_then(|failure| failure.retry_after_ms).is_none_or(|ms| ms <= MAX_DURATION_MS)
            && (failure.is_some() || self.kind != AskKind::Retry)
    }
}

impl Message for BatchRequest {
    const SHAPE: &'static Shape = &shape(&[field("asks", Required, Rule::List(ASK))]);
    const MOST_BYTES: usize = 1024 * KIB;
    const ARRAYS: usize = 1;

    fn is_sound(&self) -> bool {
        self.asks.iter().all(Message::is_sound)
    }
}

impl Message for ReturnRequest {
    const SHAPE: &'static Shape = &shape(&[field("token", Required, Rule::Text)]);
    const MOST_BYTES: usize = 64 * KIB;
    const ARRAYS: usize = 0;

    fn is_sound(&self) -> bool {
        true
    }
}

impl Message for ForceRequest {
    const SHAPE: &'static Shape = &shape(&[field("force", Required, words!(ForcedBreaker))]);
    const MOST_BYTES: usize = 64 * KIB;
    const ARRAYS: usize = 0;

    fn is_sound(&self) -> bool {
        true
    }
}

impl Message for SyncRequest {
    const SHAPE: &'static Shape = SYNC;
    const MOST_BYTES: usize = 1024 * KIB;
    const ARRAYS: usize = 0;

    fn is_sound(&self) -> bool {
        let client = &self.client;
        is_name(&client.id)
            && is_name(&client.incarnation)
            && is_name_or_absent(client.name.as_ref())
            && is_name_or_absent(client.version.as_ref())
            && is_name_or_absent(self.tenant.as_ref())
            && self.dependencies.iter().all(|(name, synced)| is_name(name) && has_rates(synced))
    }
}

fn has_rates(synced: &SyncDependency) -> bool {
    synced.wants_first_per_s >= 0.0 && synced.has_first_per_s >= 0.0
}
