//! Asks and their answers.

use damper_core::{Ask, Decision, Failure};
use damper_engine::Decided;
use damper_protocol::{AskRequest, AskResponse, BreakerVersion, FailureReport, WouldHaveBeen};

use super::{ToCore, ToWire, span, tenant};

/// A sound ask, apart from the name of its dependency.
pub(crate) fn ask(request: &AskRequest) -> Ask {
    Ask {
        request_id: request.request_id.as_deref().map(Into::into),
        tenant: tenant(request.tenant.as_deref()).into(),
        kind: request.kind.to_core(),
        attempt: request.attempt,
        failure: request.failure.as_ref().map(failure),
        idempotent: request.idempotent,
        recovery_mode: request.recovery_mode.map(ToCore::to_core),
        priority: request.priority.to_core(),
        cost: request.cost,
        deadline: span(request.deadline_ms),
        earliest: span(request.earliest_ms),
        expected: span(request.expected_ms),
        max_wait: request.max_wait_ms.map(span),
    }
}

fn failure(report: &FailureReport) -> Failure {
    // Who failed and the dependency's own status inform people, not decisions.
    let FailureReport {
        class,
        reason,
        dispatch,
        do_not_retry,
        caller_rejected,
        retry_after_ms,
        source: _,
        code: _,
    } = report;
    Failure {
        class: class.to_core(),
        reason: reason.map(ToCore::to_core),
        do_not_retry: *do_not_retry,
        dispatch: dispatch.to_core(),
        caller_rejected: *caller_rejected,
        retry_after: retry_after_ms.map(span),
    }
}

/// A decision.
pub(crate) fn answer(decided: Decided) -> AskResponse {
    let Decided { decision, token } = decided;
    let Decision { verdict, reason, grant, waited, retry_after, suppress, breaker, would_have_been } =
        decision;
    AskResponse {
        decision: verdict.to_wire(),
        reason: reason.to_wire(),
        token,
        token_ttl_ms: grant.map(|grant| grant.ttl.as_millis()),
        waited_ms: waited.as_millis(),
        retry_after_ms: retry_after.map(|wait| wait.as_millis_ceil()),
        suppress_ms: suppress.as_millis_ceil(),
        breaker: BreakerVersion { state: breaker.state.to_wire(), version: breaker.version },
        would_have_been: would_have_been
            .map(|reason| WouldHaveBeen { decision: reason.verdict().to_wire(), reason: reason.to_wire() }),
    }
}
