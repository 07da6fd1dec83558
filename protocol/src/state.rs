//! `GET /v1/dependencies[/{name}]`: the state of a dependency, for people and tools.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{AskKind, BreakerState, BreakerView, FailureCounts, PolicyView, Reason};

/// Every dependency that the server knows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DependencyList {
    /// In the order of their names.
    pub dependencies: Vec<DependencyState>,
}

/// One dependency.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct DependencyState {
    /// Its name.
    pub name: String,
    /// Attempts per second that it sustains, where configured.
    pub capacity_per_s: Option<f64>,
    /// The retry pool.
    pub pool: PoolState,
    /// The delay queue.
    pub queue: QueueState,
    /// The longest hold of any tenant, in milliseconds.
    pub hold_ms: u64,
    /// The breaker.
    pub breaker: BreakerDetail,
    /// Decisions since the server started: decision, then reason, then count.
    pub decisions: DecisionCounts,
    /// Reported attempts over the last `10s`, `1m` and `5m`.
    pub windows: BTreeMap<String, Window>,
    /// The busiest hundred of those who spend here.
    pub tenants: BTreeMap<String, TenantState>,
    /// How many spend here in all.
    pub tenant_count: u64,
    /// Clients that synced within the last minute.
    pub clients: u64,
    /// The last refusals, latest first.
    pub refusals: Vec<RefusalState>,
    /// Tokens for retries that lived out their time without any client reporting an attempt for them.
    pub unreported: u64,
    /// Whether the dependency is too young to know who holds which first attempts.
    pub learning: bool,
    /// The policy as far as clients carry it out.
    pub policy: PolicyView,
}

/// One refusal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RefusalState {
    /// How long ago, in milliseconds.
    pub ago_ms: u64,
    /// Whose ask.
    pub tenant: String,
    /// For what.
    pub kind: AskKind,
    /// Why.
    pub reason: Reason,
}

/// Counts by decision, then by reason.
pub type DecisionCounts = BTreeMap<String, BTreeMap<String, u64>>;

/// The retry pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct PoolState {
    /// Refill in tokens per second.
    pub rate_per_s: f64,
    /// The term of the rate formula that is in force: `per_s`, `ratio`, `headroom`, `floor`.
    pub bound_by: String,
    /// Tokens that could be granted now.
    pub tokens: f64,
    /// Most tokens that can be saved up.
    pub burst: f64,
    /// Tokens granted since the server started.
    pub issued: f64,
    /// Tokens granted and given back unused.
    pub returned: f64,
    /// What grants should have taken from the pool: equal to `issued`, or the budget is not enforced.
    pub granted: f64,
    /// Tokens that are out.
    pub outstanding: u64,
    /// How far retries are turned down, in (0, 1].
    pub throttle: f64,
    /// What turned them down in the last second: `overload`, `retry_yield` or `latency`.
    pub throttled_by: Option<String>,
    /// Tokens that hedges could draw now.
    pub hedge_tokens: f64,
}

/// The delay queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct QueueState {
    /// Asks that wait.
    pub waiting: u64,
    /// Asks that may wait.
    pub limit: u64,
}

/// The breaker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct BreakerDetail {
    /// The state.
    pub state: BreakerState,
    /// Rises with every transition.
    pub version: u64,
    /// How long it has been in this state, in milliseconds.
    pub since_ms: u64,
    /// How long it stays open yet, in milliseconds; 0 unless open.
    pub open_for_ms: u64,
    /// Probes out.
    pub probes_out: u64,
}

/// Reported attempts over one window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct Window {
    /// Operations started.
    pub logical: u64,
    /// Attempts started.
    pub physical: u64,
    /// Operations that succeeded.
    pub success: u64,
    /// Physical / logical; absent without operations.
    pub amplification: Option<f64>,
    /// What independent failures and the policy's attempts would give; absent without attempts.
    pub expected_amplification: Option<f64>,
    /// Observed / expected amplification; absent if either is.
    pub observed_to_expected: Option<f64>,
    /// That ratio is above 1.1 with enough volume: failures are not independent, or another layer retries too.
    pub other_layers_retry: bool,
    /// Attempts per second.
    pub physical_per_s: f64,
    /// Attempts per second that the capacity leaves, negative when it is exceeded; absent without a capacity.
    pub headroom_per_s: Option<f64>,
    /// Operations per second whose expected attempts fit the capacity; absent without one.
    pub safe_arrival_per_s: Option<f64>,
    /// Failed attempts by class.
    pub failures: FailureCounts,
    /// Operations whose first attempt failed.
    pub affected: u64,
    /// Of these, operations that succeeded after all.
    pub recovered: u64,
    /// Recovered / affected; absent without affected operations.
    pub recovery_rate: Option<f64>,
}

/// One tenant of a dependency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct TenantState {
    /// Its weight in the fair queue.
    pub weight: u64,
    /// Asks that wait.
    pub waiting: u64,
    /// Asks granted since the server started.
    pub granted: u64,
    /// Asks shed.
    pub shed: u64,
    /// Asks expired.
    pub expired: u64,
    /// Its hold, in milliseconds.
    pub hold_ms: u64,
    /// Its own breaker, where tenants have their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub breaker: Option<BreakerView>,
}
