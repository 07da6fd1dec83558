//! What people and tools see of a dependency.

use std::sync::Arc;

use crate::{
    BoundBy, BreakerView, Kind, MicroTokens, MicrosPerSecond, Moment, Policy, Reason, Span, Totals, plan,
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
    /// Attempts whose results came under an older breaker version and were ignored.
    pub stale_results: u64,
    /// Every count of decisions that is not zero, in the order of kinds and reasons.
    pub decided: Vec<DecisionCount>,
    /// Reports since the dependency was made.
    pub totals: Totals,
    /// Reports over the last windows, shortest first.
    pub windows: [WindowSnapshot; 3],
    /// Who spends here, by name.
    pub tenants: Vec<TenantSnapshot>,
    /// Clients that reported lately.
    pub clients: u64,
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
    /// Recovered / affected; [`None`] without affected operations.
    pub recovery_rate: Option<f64>,
}

impl WindowSnapshot {
    pub(crate) fn new(name: &'static str, totals: Totals, max_attempts: u32) -> Self {
        Self {
            name,
            totals,
            amplification: share(totals.physical, totals.logical),
            expected_amplification: failure_rate(&totals)
                .map(|failure_rate| plan::amplification(failure_rate, max_attempts)),
            recovery_rate: share(totals.recovered, totals.affected),
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recovery_rate_is_of_affected_operations_alone() {
        let totals =
            Totals { logical: 10_000, success: 9_970, affected: 100, recovered: 70, ..Totals::default() };
        assert_eq!(WindowSnapshot::new("10s", totals, 4).recovery_rate, Some(0.7));
    }

    #[test]
    fn a_quiet_window_has_no_ratios() {
        let quiet = WindowSnapshot::new("10s", Totals::default(), 4);
        assert_eq!(
            (quiet.amplification, quiet.expected_amplification, quiet.recovery_rate),
            (None, None, None)
        );
    }

    #[test]
    fn amplification_stands_beside_what_independent_failures_would_give() {
        let mut totals = Totals { logical: 1000, physical: 1300, success: 1144, ..Totals::default() };
        totals.failures[0] = 156;
        let window = WindowSnapshot::new("10s", totals, 4);
        assert_eq!(window.amplification, Some(1.3));
        let expected = window.expected_amplification.unwrap();
        assert!((expected - 1.136_128).abs() < 1e-9, "p is 156 / 1300 = 0.12: {expected}");
    }
}
