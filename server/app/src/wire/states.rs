//! The state of a dependency, for people and tools.

use std::collections::BTreeMap;

use damper_core::{
    DecisionCount, MicroTokens, PoolSnapshot, RefusalSnapshot, Snapshot, TenantSnapshot, WindowSnapshot,
};
use damper_engine::Watched;
use damper_protocol::{
    BreakerDetail, DecisionCounts, DependencyState, PoolState, QueueState, RefusalState, TenantState,
    WatchDependency, Window,
};

use super::{ToWire, breaker, policy, syncs::failures};

/// Everything that is known of the dependency `name`.
pub(crate) fn state(name: &str, snapshot: &Snapshot) -> DependencyState {
    DependencyState {
        name: name.to_owned(),
        capacity_per_s: snapshot.policy.capacity().map(|rate| rate.as_per_s()),
        pool: pool(&snapshot.pool),
        queue: QueueState { waiting: snapshot.waiting, limit: whole(snapshot.queue_limit) },
        hold_ms: snapshot.hold.as_millis_ceil(),
        breaker: BreakerDetail {
            state: snapshot.breaker.state.to_wire(),
            version: snapshot.breaker.version,
            since_ms: snapshot.now.since(snapshot.breaker.since).as_millis(),
            open_for_ms: snapshot.breaker.open_for.as_millis_ceil(),
            probes_out: u64::from(snapshot.breaker.probes_out),
        },
        decisions: decisions(&snapshot.decided),
        windows: snapshot.windows.iter().map(|named| (named.name.to_owned(), window(named))).collect(),
        tenants: snapshot.tenants.iter().map(|named| (named.name.to_string(), tenant(named))).collect(),
        tenant_count: snapshot.tenant_count,
        clients: snapshot.clients,
        refusals: snapshot.refusals.iter().map(refusal).collect(),
        unreported: snapshot.unreported,
        learning: snapshot.learning,
        policy: policy(&snapshot.policy),
    }
}

/// What a watcher of `tenant` sees.
pub(crate) fn watched(name: &str, tenant: &str, watched: &Watched) -> WatchDependency {
    let of_tenant = watched.holds.iter().filter(|(held, _)| **held == *tenant);
    WatchDependency {
        dependency: name.to_owned(),
        breaker: breaker(&watched.breaker),
        holds_ms: of_tenant.map(|(held, span)| (held.to_string(), span.as_millis_ceil())).collect(),
        policy: policy(&watched.policy),
    }
}

const fn whole(tokens: MicroTokens) -> u64 {
    tokens.as_micros() / MicroTokens::ONE.as_micros()
}

fn pool(pool: &PoolSnapshot) -> PoolState {
    PoolState {
        rate_per_s: pool.rate.as_per_s(),
        bound_by: pool.bound_by.as_str().to_owned(),
        tokens: pool.tokens.as_tokens(),
        burst: pool.burst.as_tokens(),
        issued: pool.issued.as_tokens(),
        returned: pool.returned.as_tokens(),
        granted: pool.granted.as_tokens(),
        outstanding: pool.outstanding,
        throttle: pool.throttle.as_f64(),
        throttled_by: pool.throttled_by.map(|cause| cause.as_str().to_owned()),
        hedge_tokens: pool.hedge_tokens.as_tokens(),
    }
}

fn decisions(counts: &[DecisionCount]) -> DecisionCounts {
    let mut decisions: DecisionCounts = BTreeMap::new();
    for DecisionCount { kind: _, reason, count } in counts {
        let by_reason = decisions.entry(reason.verdict().as_str().to_owned()).or_default();
        *by_reason.entry(reason.as_str().to_owned()).or_default() += count;
    }
    decisions
}

fn window(window: &WindowSnapshot) -> Window {
    let WindowSnapshot { totals, .. } = window;
    Window {
        observed_to_expected: window.observed_to_expected,
        other_layers_retry: window.other_layers_retry,
        physical_per_s: window.physical_per_s,
        headroom_per_s: window.headroom_per_s,
        safe_arrival_per_s: window.safe_arrival_per_s,
        logical: totals.logical,
        physical: totals.physical,
        success: totals.success,
        amplification: window.amplification,
        expected_amplification: window.expected_amplification,
        failures: failures(totals),
        affected: totals.affected,
        recovered: totals.recovered,
        recovery_rate: window.recovery_rate,
    }
}

fn refusal(refusal: &RefusalSnapshot) -> RefusalState {
    RefusalState {
        ago_ms: refusal.ago.as_millis(),
        tenant: refusal.tenant.to_string(),
        kind: refusal.kind.to_wire(),
        reason: refusal.reason.to_wire(),
    }
}

fn tenant(tenant: &TenantSnapshot) -> TenantState {
    let TenantSnapshot { name: _, weight, waiting, granted, shed, expired, hold, breaker: own } = tenant;
    TenantState {
        weight: u64::from(*weight),
        waiting: *waiting,
        granted: *granted,
        shed: *shed,
        expired: *expired,
        hold_ms: hold.as_millis_ceil(),
        breaker: own.as_ref().map(breaker),
    }
}
