//! Which breaker an ask or a report meets, and what follows when one changes its state.

use super::Dependency;
use crate::allocation::{Claim, Fallback, FirstLease};
use crate::breaker::{Breaker, Force};
use crate::jitter::Jitter;
use crate::queue::Waiting;
use crate::tenants::TenantKey;
use crate::{AskId, BreakerCause, BreakerState, BreakerView, MicrosPerSecond, Moment, Report, Scope};

/// A breaker changed its state, or took over a higher version in the one it was in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    /// Whose, if tenants have their own.
    pub tenant: Option<Box<str>>,
    /// The state before the change.
    pub from: BreakerState,
    /// Why it changed.
    pub cause: BreakerCause,
    /// The breaker after the change.
    pub breaker: BreakerView,
}

impl Dependency {
    /// What breakers did since this was last called, in the order in which it happened.
    pub fn take_transitions(&mut self) -> Vec<Transition> {
        std::mem::take(&mut self.transitions)
    }

    /// Forces the breaker into a state, or releases it with [`None`]. Where tenants have their own, all of
    /// those that have been used.
    pub fn force_breaker(&mut self, now: Moment, force: Option<Force>) {
        let now = self.advance(now);
        for tenant in self.breaker_holders() {
            self.with_breaker(now, tenant, |breaker| breaker.force(now, force));
        }
    }

    /// The same, with versions of breakers that start from `version`, for a dependency that takes another's place: who
    /// saw the other's breaker must not take this one's for an older one.
    #[must_use]
    pub fn counting_from(self, version: u64) -> Self {
        Self { first_version: version, breaker: self.breaker.counting_from(version), ..self }
    }

    /// The highest version of any breaker here.
    #[must_use]
    pub fn highest_version(&self) -> u64 {
        let own = self.tenants.iter().filter_map(|(_, tenant)| tenant.breaker.as_ref());
        own.map(|breaker| breaker.version().version).fold(self.breaker.version().version, u64::max)
    }

    /// The breaker that `tenant` meets.
    pub fn breaker(&mut self, now: Moment, tenant: &str) -> BreakerView {
        let now = self.advance(now);
        let tenant = self.tenant(now, tenant);
        self.breaker_of(tenant).view(now)
    }

    pub(super) fn breaker_of(&mut self, tenant: TenantKey) -> &mut Breaker {
        if self.policy.breaker.scope == Scope::Tenant
            && let Some(spender) = self.tenants.get_mut(tenant)
        {
            let (now, policy, jitter) = (self.now, self.policy.breaker, Jitter::new(tenant.seed()));
            let new = || Breaker::new(now, policy, jitter).counting_from(self.first_version);
            return spender.breaker.get_or_insert_with(|| Box::new(new()));
        }
        &mut self.breaker
    }

    /// One step of a breaker, and everything that follows from it.
    pub(super) fn with_breaker(&mut self, now: Moment, tenant: TenantKey, step: impl FnOnce(&mut Breaker)) {
        let breaker = self.breaker_of(tenant);
        let before = breaker.version();
        step(breaker);
        if breaker.version() != before {
            self.transitioned(now, tenant, before.state);
        }
        self.drain(now);
    }

    pub(super) fn advance_breakers(&mut self, now: Moment) {
        let due = |at: Option<Moment>| at.is_some_and(|at| at <= now);
        if self.policy.breaker.scope == Scope::Dependency {
            if due(self.breaker.next_change()) {
                self.with_breaker(now, TenantKey::NOBODY, |breaker| breaker.advance(now));
            }
            return self.breaker.advance(now);
        }
        for tenant in self.unsettled.clone() {
            self.with_breaker(now, tenant, |breaker| breaker.advance(now));
        }
    }

    pub(super) fn next_breaker_change(&mut self) -> Option<Moment> {
        if self.policy.breaker.scope == Scope::Dependency {
            return self.breaker.next_change();
        }
        let tenants = self.unsettled.iter().filter_map(|tenant| self.tenants.get(*tenant));
        tenants.filter_map(|tenant| tenant.breaker.as_ref()?.next_change()).min()
    }

    /// A changed policy reaches every breaker; a changed scope starts the others anew.
    pub(super) fn configure_tenant_breakers(&mut self, now: Moment) {
        let policy = self.policy.breaker;
        if policy.scope == Scope::Dependency {
            self.unsettled.clear();
        }
        for tenant in self.tenants.iter_mut() {
            match (&mut tenant.breaker, policy.scope) {
                (Some(breaker), Scope::Tenant) => breaker.configure(now, policy),
                (place, _) => *place = None,
            }
        }
    }

    /// The client's lease of first attempts: of the capacity, and of less while a breaker is not closed or has
    /// just closed, so that closing it does not release the herd. [`None`] where nothing limits them.
    pub(super) fn lease_first_attempts(
        &mut self,
        now: Moment,
        tenant: TenantKey,
        report: &Report,
    ) -> Option<FirstLease> {
        let ramp = self.breaker_of(tenant).ramp(now);
        let capacity = self.policy.capacity;
        let mut wants = report.wants_first;
        let limit = match (ramp, self.policy.breaker.scope) {
            (None, _) => capacity,
            (Some(share), Scope::Dependency) => {
                Some(capacity.unwrap_or(MicrosPerSecond::MAX).min(self.rate_before).times(share))
            }
            // Nobody else's rate is touched, so the tenant's clients are each held to a part of their own.
            (Some(share), Scope::Tenant) => {
                wants = wants.times(share);
                Some(capacity.unwrap_or(MicrosPerSecond::MAX))
            }
        };
        let Some(limit) = limit else {
            self.allocations.clear();
            return None;
        };
        let weight = self.policy.weight(&report.tenant);
        let claim = Claim::new(tenant, weight, wants, report.has_first, ramp.is_some());
        let fallback = Fallback::new(capacity, self.rate_before);
        self.allocations.lease(now, &report.client, claim, limit, fallback)
    }

    fn transitioned(&mut self, now: Moment, tenant: TenantKey, before: BreakerState) {
        let breaker = self.breaker_of(tenant);
        let (view, cause) = (breaker.view(now), breaker.cause());
        self.count_transition(before, view.state);
        let of_tenant = self.policy.breaker.scope == Scope::Tenant;
        let owner = of_tenant.then_some(tenant);
        let name = owner.and_then(|key| self.tenants.get(key)).map(|spender| spender.name.clone());
        self.transitions.push(Transition { tenant: name, from: before, cause, breaker: view });
        if of_tenant && view.state != BreakerState::Closed {
            self.unsettled.insert(tenant);
        } else {
            self.unsettled.remove(&tenant);
        }
        if before == BreakerState::Closed {
            let [(_, _, last_ten), ..] = self.windows.sums(now);
            let seen = MicrosPerSecond::from_micros(last_ten.logical.saturating_mul(100_000));
            self.rate_before = seen.max(MicrosPerSecond::from_per_s(1));
            self.allocations.clear();
        }
        if view.state != BreakerState::Closed {
            self.shed_waiting(now, owner);
        }
    }

    fn count_transition(&mut self, from: BreakerState, to: BreakerState) {
        let counts = self.transition_counts.get_mut(from.index());
        if let Some(count) = counts.and_then(|counts| counts.get_mut(to.index()))
            && from != to
        {
            *count += 1;
        }
    }

    /// An ask that waits for a token must not outlive the breaker's closed state: it would start an attempt
    /// that the breaker forbids, or spend its window on nothing.
    fn shed_waiting(&mut self, now: Moment, tenant: Option<TenantKey>) {
        let ids = self.queue.ids_of(tenant);
        let asks: Vec<(AskId, Waiting)> =
            ids.into_iter().filter_map(|id| self.queue.remove(id).map(|ask| (id, ask))).collect();
        for (id, waiting) in asks {
            let left = waiting.window.closes.since(now);
            let denial = self.breaker_denial(now, waiting.tenant).before(left);
            self.release(now, id, waiting, denial.into());
        }
    }

    fn breaker_holders(&self) -> Vec<TenantKey> {
        if self.policy.breaker.scope == Scope::Dependency {
            return vec![TenantKey::NOBODY];
        }
        let with_breaker = self.tenants.iter().filter(|(_, tenant)| tenant.breaker.is_some());
        with_breaker.map(|(key, _)| key).collect()
    }
}
