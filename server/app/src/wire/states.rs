//! The state of a dependency, for people and tools.

use std::collections::BTreeMap;

use damper_core::{DecisionCount, MicroTokens, PoolSnapshot, Snapshot, TenantSnapshot, WindowSnapshot};
use damper_engine::Watched;
use damper_protocol::{
    BreakerDetail, DecisionCounts, DependencyState, PoolState, QueueState, TenantState, WatchDependency,
    Window,
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
        clients: snapshot.clients,
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
    let WindowSnapshot { name: _, totals, amplification, expected_amplification, recovery_rate } = window;
    Window {
        logical: totals.logical,
        physical: totals.physical,
        success: totals.success,
        amplification: *amplification,
        expected_amplification: *expected_amplification,
        failures: failures(totals),
        affected: totals.affected,
        recovered: totals.recovered,
        recovery_rate: *recovery_rate,
    }
}

fn tenant(tenant: &TenantSnapshot) -> TenantState {
    let TenantSnapshot { name: _, weight, waiting, granted, shed, expired, hold } = *tenant;
    TenantState { weight: u64::from(weight), waiting, granted, shed, expired, hold_ms: hold.as_millis_ceil() }
}
