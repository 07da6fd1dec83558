//! What people and tools see.

use super::Dependency;
use super::usage::keep_busiest;
use crate::refusals::Refusal;
use crate::snapshot::{
    DecisionCount, FirstSnapshot, PoolSnapshot, RefusalSnapshot, Snapshot, TenantSnapshot, WindowSnapshot,
};
use crate::{BreakerState, BreakerView, Kind, Moment, Reason, Span, Verdict};

/// Most tenants in a snapshot; a page about a hundred thousand helps nobody.
const TENANTS_SHOWN: usize = 100;

impl Dependency {
    /// Everything worth seeing. Costs a visit of every tenant and waiting ask.
    pub fn snapshot(&mut self, now: Moment) -> Snapshot {
        let now = self.advance(now);
        self.ledger.advance(now);
        let terms = self.feed.terms(&self.policy, &self.throttle);
        let windows = self.windows.sums(now);
        let window = |(name, length, totals)| WindowSnapshot::new(name, totals, length, &self.policy);
        let windows = windows.map(window);
        let tenants = self.tenant_snapshots(now);
        Snapshot {
            now,
            pool: PoolSnapshot {
                rate: terms.rate,
                bound_by: terms.bound_by,
                tokens: self.pool.balance(now),
                burst: terms.burst,
                issued: self.pool.bank().issued(),
                returned: self.pool.bank().returned(),
                granted: self.granted,
                outstanding: self.leases.outstanding(),
                throttle: self.throttle.level(),
                throttled_by: self.throttle.cause(),
                hedge_tokens: self.hedges.balance(now),
            },
            waiting: self.queue.len() as u64,
            queue_limit: self.queue_limit(),
            hold: self
                .tenants
                .iter()
                .map(|(_, tenant)| tenant.hold_until.from_now(now))
                .max()
                .unwrap_or(Span::ZERO),
            breaker: self.overall_breaker(now),
            transitions: self.transition_counts,
            stale_results: self.stale_results(),
            waits: self.waits,
            first: self.first_snapshot(now),
            decided: self.decision_counts(),
            totals: self.totals,
            windows,
            tenants,
            tenant_count: self.tenants.len() as u64,
            clients: self.ledger.living(),
            sync_lag: self.ledger.longest_silence(now),
            refusals: self.refusal_snapshots(now),
            unreported: self.unreported(),
            learning: self.allocations.is_learning(now),
            policy: self.policy.clone(),
        }
    }

    fn stale_results(&self) -> u64 {
        let own = self.tenants.iter().filter_map(|(_, tenant)| tenant.breaker.as_ref());
        own.fold(self.breaker.stale_results(), |sum, breaker| sum.saturating_add(breaker.stale_results()))
    }

    fn first_snapshot(&self, now: Moment) -> FirstSnapshot {
        let (allocated, leases) = self.allocations.live(now);
        FirstSnapshot { wanted: self.ledger.wanted(now), allocated, leases }
    }

    fn unreported(&self) -> u64 {
        let reported = self.totals.retries().saturating_sub(self.totals.emergency);
        self.leases.expired_retries().saturating_sub(reported)
    }

    fn refusal_snapshots(&self, now: Moment) -> Vec<RefusalSnapshot> {
        let snapshot = |refusal: &Refusal| RefusalSnapshot {
            ago: now.since(refusal.at),
            tenant: self.tenants.get(refusal.tenant).map_or("".into(), |tenant| tenant.name.clone()),
            kind: refusal.kind,
            reason: refusal.reason,
        };
        self.refusals.iter().rev().map(snapshot).collect()
    }

    /// The breaker, or the least closed one where tenants have their own.
    pub fn overall_breaker(&mut self, now: Moment) -> BreakerView {
        let now = self.advance(now);
        let own = self.tenants.iter().filter_map(|(_, tenant)| tenant.breaker.as_ref());
        let rank = |view: &BreakerView| match view.state {
            BreakerState::Closed => 0,
            BreakerState::HalfOpen => 1,
            BreakerState::Open => 2,
        };
        let worst = own.map(|breaker| breaker.view(now)).max_by_key(|view| (rank(view), view.version));
        worst.unwrap_or_else(|| self.breaker.view(now))
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
            .chain(Kind::ALL.iter().zip(&self.shadowed).map(|(kind, count)| (*kind, Reason::Shadow, *count)))
            .filter(|(_, _, count)| *count > 0)
            .map(|(kind, reason, count)| DecisionCount { kind, reason, count })
            .collect()
    }

    fn tenant_snapshots(&self, now: Moment) -> Vec<TenantSnapshot> {
        let waiting = self.queue.waiting_by_tenant();
        let snapshot = |(key, tenant): (_, &crate::tenants::Tenant)| {
            let decided = |verdict: Verdict| tenant.counts.decided.get(verdict.index()).copied().unwrap_or(0);
            TenantSnapshot {
                name: tenant.name.clone(),
                weight: self.policy.weight(&tenant.name),
                waiting: waiting.get(&key).copied().unwrap_or(0),
                granted: decided(Verdict::Granted),
                shed: decided(Verdict::Shed),
                expired: decided(Verdict::Expired),
                hold: tenant.hold_until.from_now(now),
                breaker: tenant.breaker.as_ref().map(|breaker| breaker.view(now)),
            }
        };
        let mut busiest: Vec<_> = self.tenants.iter().collect();
        keep_busiest(&mut busiest, TENANTS_SHOWN, |(_, tenant)| tenant.counts.decided.iter().sum());
        let mut tenants: Vec<TenantSnapshot> = busiest.into_iter().map(snapshot).collect();
        tenants.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        tenants
    }
}
