//! What people and tools see of a dependency.

use std::sync::Arc;

use crate::histogram::{self, Histogram};
use crate::{
    BoundBy, BreakerState, BreakerView, Cause, Kind, MicroTokens, MicrosPerSecond, Moment, Policy, Ppm,
    Reason, Span, Totals, plan,
};

/// One dependency at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// When.
    pub now: Moment,
    /// The policy in force.
    pub policy: Arc<Policy>,
    /// The retry pool.
    pub pool: PoolSnapshot,
    /// Asks that wait.
    pub waiting: u64,
    /// Tokens' worth of asks that may wait.
    pub queue_limit: MicroTokens,
    /// The longest hold of any tenant.
    pub hold: Span,
    /// The breaker.
    pub breaker: BreakerView,
    /// Transitions of all its breakers.
    pub transitions: TransitionCounts,
    /// Attempts whose results came under an older breaker version and were ignored.
    pub stale_results: u64,
    /// How long asks that were granted after a wait have waited.
    pub waits: Waits,
    /// First attempts, where clients say what they want of them.
    pub first: FirstSnapshot,
    /// Every count of decisions that is not zero, in the order of kinds and reasons.
    pub decided: Vec<DecisionCount>,
    /// Reports since the dependency was made.
    pub totals: Totals,
    /// Reports over the last windows, shortest first.
    pub windows: [WindowSnapshot; 3],
    /// The busiest of those who spend here, by name.
    pub tenants: Vec<TenantSnapshot>,
    /// How many spend here in all.
    pub tenant_count: u64,
    /// Clients that reported lately.
    pub clients: u64,
    /// The longest time since any of them reported; [`None`] without any.
    pub sync_lag: Option<Span>,
    /// The last refusals, latest first.
    pub refusals: Vec<RefusalSnapshot>,
    /// Tokens for retries that lived out their time without any client reporting an attempt for them.
    pub unreported: u64,
    /// Whether the dependency is too young to know who holds which first attempts.
    pub learning: bool,
}

/// Transitions by the state before and the state after, in the order of [`BreakerState::ALL`].
pub type TransitionCounts = [[u64; BreakerState::ALL.len()]; BreakerState::ALL.len()];

/// What waits in the delay queue came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// How many, by how long.
    pub counts: Histogram,
    /// All of them together.
    pub total: Span,
}

impl Waits {
    pub(crate) fn count(&mut self, wait: Span) {
        if let Some(count) = self.counts.get_mut(histogram::bucket(wait)) {
            *count += 1;
        }
        self.total = Span::from_nanos(self.total.as_nanos().saturating_add(wait.as_nanos()));
    }
}

/// First attempts at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FirstSnapshot {
    /// What living clients would like to start, as they said last.
    pub wanted: MicrosPerSecond,
    /// What is leased to them.
    pub allocated: MicrosPerSecond,
    /// Leases that have not ended.
    pub leases: u64,
}

/// One refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusalSnapshot {
    /// How long ago.
    pub ago: Span,
    /// Whose ask.
    pub tenant: Box<str>,
    /// For what.
    pub kind: Kind,
    /// Why.
    pub reason: Reason,
}

/// The retry pool.
#[derive(Clone, Copy, Debug)]
pub struct PoolSnapshot {
    /// Refill.
    pub rate: MicrosPerSecond,
    /// The term of the formula that set it.
    pub bound_by: BoundBy,
    /// Tokens that could be granted now.
    pub tokens: MicroTokens,
    /// Most that can be saved up.
    pub burst: MicroTokens,
    /// Granted since the dependency was made.
    pub issued: MicroTokens,
    /// Of these, given back unused.
    pub returned: MicroTokens,
    /// What grants should have taken from the pool: equal to `issued`, or the budget is not enforced.
    pub granted: MicroTokens,
    /// Tokens that are out.
    pub outstanding: u64,
    /// How far retries are turned down, in (0, 1].
    pub throttle: Ppm,
    /// What turned them down in the last second.
    pub throttled_by: Option<Cause>,
    /// What hedges could draw now.
    pub hedge_tokens: MicroTokens,
}

/// How often one decision was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecisionCount {
    /// For what.
    pub kind: Kind,
    /// The decision, by its reason.
    pub reason: Reason,
    /// How often.
    pub count: u64,
}

/// Reports over one window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WindowSnapshot {
    /// The window's name: `10s`, `1m` or `5m`.
    pub name: &'static str,
    /// What was reported.
    pub totals: Totals,
    /// Physical / logical; [`None`] without operations.
    pub amplification: Option<f64>,
    /// What independent failures and the policy's attempts would give; [`None`] without attempts.
    pub expected_amplification: Option<f64>,
    /// Amplification / expected amplification.
    pub observed_to_expected: Option<f64>,
    /// The ratio is above 1.1 with enough volume: failures are not independent, or another layer retries too.
    pub other_layers_retry: bool,
    /// Recovered / affected; [`None`] without affected operations.
    pub recovery_rate: Option<f64>,
    /// Attempts per second.
    pub physical_per_s: f64,
    /// Attempts per second that the capacity leaves; negative when it is exceeded, [`None`] without a capacity.
    pub headroom_per_s: Option<f64>,
    /// Operations per second whose expected attempts fit the capacity; [`None`] without one.
    pub safe_arrival_per_s: Option<f64>,
}

/// Operations without which a ratio proves nothing.
const ENOUGH_OPERATIONS: u64 = 100;

/// How far observed amplification may exceed the expected one before somebody should look.
const NESTED_ABOVE: f64 = 1.1;

impl WindowSnapshot {
    pub(crate) fn new(name: &'static str, totals: Totals, length: Span, policy: &Policy) -> Self {
        let amplification = share(totals.physical, totals.logical);
        let expected_amplification = failure_rate(&totals)
            .map(|failure_rate| plan::amplification(failure_rate, policy.max_attempts()));
        let observed_to_expected =
            amplification.zip(expected_amplification).map(|(observed, expected)| observed / expected);
        let enough = totals.logical >= ENOUGH_OPERATIONS;
        let physical_per_s = share(totals.physical, length.as_millis().max(1)).unwrap_or(0.0) * 1000.0;
        let capacity = policy.capacity().map(MicrosPerSecond::as_per_s);
        Self {
            name,
            totals,
            amplification,
            expected_amplification,
            observed_to_expected,
            other_layers_retry: enough && observed_to_expected.is_some_and(|ratio| ratio > NESTED_ABOVE),
            recovery_rate: share(totals.recovered, totals.affected),
            physical_per_s,
            headroom_per_s: capacity.map(|capacity| capacity - physical_per_s),
            safe_arrival_per_s: capacity.map(|capacity| capacity / expected_amplification.unwrap_or(1.0)),
        }
    }
}

/// The share of ended attempts that failed; [`None`] without ended attempts.
fn failure_rate(totals: &Totals) -> Option<f64> {
    let failed = totals.failed_attempts();
    share(failed, failed.saturating_add(totals.success))
}

#[expect(clippy::cast_precision_loss, reason = "for display")]
fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// One tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantSnapshot {
    /// Its name.
    pub name: Box<str>,
    /// Its weight in the fair queue.
    pub weight: u32,
    /// Its asks that wait.
    pub waiting: u64,
    /// Its asks that were granted.
    pub granted: u64,
    /// Its asks that were shed.
    pub shed: u64,
    /// Its asks that expired.
    pub expired: u64,
    /// Its hold.
    pub hold: Span,
    /// Its own breaker, where tenants have their own.
    pub breaker: Option<BreakerView>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PolicyDraft;

    fn window(totals: Totals) -> WindowSnapshot {
        let draft = PolicyDraft { capacity_per_s: Some(130.0), ..PolicyDraft::default() };
        WindowSnapshot::new("10s", totals, Span::from_secs(10), &Policy::new(&draft).unwrap())
    }

    #[test]
    fn the_recovery_rate_is_of_affected_operations_alone() {
        let totals =
            Totals { logical: 10_000, success: 9_970, affected: 100, recovered: 70, ..Totals::default() };
        assert_eq!(window(totals).recovery_rate, Some(0.7));
    }

    #[test]
    fn a_quiet_window_has_no_ratios() {
        let quiet = window(Totals::default());
        assert_eq!(
            (quiet.amplification, quiet.expected_amplification, quiet.recovery_rate),
            (None, None, None)
        );
    }

    #[test]
    fn amplification_stands_beside_what_independent_failures_would_give() {
        let mut totals = Totals { logical: 1000, physical: 1300, success: 1144, ..Totals::default() };
        totals.failures[0] = 156;
        let window = window(totals);
        assert_eq!(window.amplification, Some(1.3));
        let expected = window.expected_amplification.unwrap();
        assert!((expected - 1.136_128).abs() < 1e-9, "p is 156 / 1300 = 0.12: {expected}");
        assert!(window.other_layers_retry, "{:?}", window.observed_to_expected);
        assert_eq!((window.physical_per_s, window.headroom_per_s), (130.0, Some(0.0)));
        assert_eq!(format!("{:.3}", window.safe_arrival_per_s.unwrap()), "114.424");
    }

    #[test]
    fn a_few_operations_prove_no_other_layer() {
        let totals = Totals { logical: 99, physical: 297, success: 99, ..Totals::default() };
        assert!(!window(totals).other_layers_retry);
    }
}
