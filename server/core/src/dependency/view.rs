//! What people and tools see.

use super::Dependency;
use crate::snapshot::{DecisionCount, PoolSnapshot, Snapshot, TenantSnapshot, WindowSnapshot};
use crate::{Kind, Moment, Reason, Span, Verdict};

impl Dependency {
    /// Everything worth seeing. Costs a visit of every tenant and waiting ask.
    pub fn snapshot(&mut self, now: Moment) -> Snapshot {
        let now = self.advance(now);
        self.ledger.advance(now);
        let terms = self.feed.terms();
        let max_attempts = self.policy.max_attempts;
        let windows = self.windows.sums(now);
        let tenants = self.tenant_snapshots(now);
        Snapshot {
            now,
            pool: PoolSnapshot {
                rate: terms.rate,
                bound_by: terms.bound_by,
                tokens: self.pool.balance(now),
                burst: terms.burst,
                issued: self.pool.issued(),
                returned: self.pool.returned(),
            },
            waiting: self.queue.len() as u64,
            queue_limit: self.queue_limit(),
            hold: tenants.iter().map(|tenant| tenant.hold).max().unwrap_or(Span::ZERO),
            breaker: self.breaker.view(now),
            stale_results: self.breaker.stale_results(),
            decided: self.decision_counts(),
            totals: self.totals,
            windows: windows.map(|(name, totals)| WindowSnapshot::new(name, totals, max_attempts)),
            tenants,
            clients: self.ledger.living(),
            policy: self.policy.clone(),
        }
    }

    /// The tenants that are held, and for how long.
    pub fn holds(&mut self, now: Moment) -> Vec<(Box<str>, Span)> {
        let now = self.advance(now);
        let held = self.tenants.iter().filter(|(_, tenant)| tenant.hold_until > now);
        held.map(|(_, tenant)| (tenant.name.clone(), tenant.hold_until.from_now(now))).collect()
    }

    fn decision_counts(&self) -> Vec<DecisionCount> {
        let kinds = Kind::ALL.iter().zip(&self.decided);
        kinds
            .flat_map(|(kind, counts)| {
                Reason::ALL.iter().zip(counts).map(|(reason, count)| (*kind, *reason, *count))
            })
            .filter(|(_, _, count)| *count > 0)
            .map(|(kind, reason, count)| DecisionCount { kind, reason, count })
            .collect()
    }

    fn tenant_snapshots(&self, now: Moment) -> Vec<TenantSnapshot> {
        let waiting = self.queue.waiting_by_tenant();
        let snapshot = |(key, tenant): (_, &crate::tenants::Tenant)| {
            let decided = |verdict: Verdict| tenant.decided.get(verdict.index()).copied().unwrap_or(0);
            TenantSnapshot {
                name: tenant.name.clone(),
                weight: self.policy.weight(&tenant.name),
                waiting: waiting.get(&key).copied().unwrap_or(0),
                granted: decided(Verdict::Granted),
                shed: decided(Verdict::Shed),
                expired: decided(Verdict::Expired),
                hold: tenant.hold_until.from_now(now),
            }
        };
        let mut tenants: Vec<TenantSnapshot> = self.tenants.iter().map(snapshot).collect();
        tenants.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        tenants
    }
}
