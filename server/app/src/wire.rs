//! Between the words of the protocol and those of the core. Both change for their own reasons; here they meet,
//! and a variant or a field that one of them gains does not compile until it is answered for.

pub(crate) mod asks;
pub(crate) mod plans;
pub(crate) mod states;
pub(crate) mod syncs;
mod words;

use damper_core::{BreakerView, Policy, Span};
use damper_protocol as wire;

pub(crate) use words::{ToCore, ToWire};

/// The tenant of a message that names none.
pub(crate) const DEFAULT_TENANT: &str = "default";

/// The tenant of a message.
pub(crate) fn tenant(named: Option<&str>) -> &str {
    named.unwrap_or(DEFAULT_TENANT)
}

const fn span(ms: u64) -> Span {
    Span::from_millis(ms)
}

/// The breaker as clients need it.
pub(crate) fn breaker(view: &BreakerView) -> wire::BreakerView {
    let BreakerView { state, version, since: _, open_for, probes_out: _ } = *view;
    wire::BreakerView { state: state.to_wire(), version, open_for_ms: open_for.as_millis_ceil() }
}

/// The policy as far as clients carry it out.
pub(crate) fn policy(policy: &Policy) -> wire::PolicyView {
    wire::PolicyView {
        max_attempts: policy.max_attempts(),
        max_delay_ms: policy.max_delay().as_millis(),
        fail_mode: policy.fail_mode().to_wire(),
        retry_owner: policy.retry_owner().to_wire(),
        on_open: policy.on_open().to_wire(),
        shadow: policy.shadow(),
        slow_call_ms: policy.slow_call().map(Span::as_millis),
    }
}
