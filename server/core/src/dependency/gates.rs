//! The gates of an ask, in their order. All pass before anything is debited.

use super::Dependency;
use crate::ask::Window;
use crate::tenants::TenantKey;
use crate::{Ask, AskFault, BreakerState, Failure, Kind, MicroTokens, Moment, Reason, Span};

/// Why an ask is refused, and when another may fare better.
#[derive(Clone, Copy, Debug)]
pub(super) struct Denial {
    pub(super) reason: Reason,
    pub(super) retry_after: Option<Span>,
    pub(super) suppress: Span,
}

impl From<Reason> for Denial {
    fn from(reason: Reason) -> Self {
        Self { reason, retry_after: None, suppress: Span::ZERO }
    }
}

impl Denial {
    /// A refusal after which waiting helps.
    pub(super) fn until(reason: Reason, retry_after: Span) -> Self {
        Self { retry_after: Some(retry_after), ..reason.into() }
    }

    /// Suggests no wait that the deadline does not leave: it could not help.
    pub(super) fn before(self, left: Span) -> Self {
        Self { retry_after: self.retry_after.filter(|wait| *wait < left), ..self }
    }
}

impl Dependency {
    /// Whether an ask can be decided at all.
    ///
    /// # Errors
    /// It cannot; [`ask`](Self::ask) would say the same.
    pub fn check(&self, ask: &Ask) -> Result<(), AskFault> {
        let burst = self.pool.bank().burst();
        if ask.kind == Kind::Retry && ask.failure.is_none() {
            return Err(AskFault::FailureMissing);
        }
        if ask.cost == 0 {
            return Err(AskFault::CostZero);
        }
        if self.price(ask) > burst.max(MicroTokens::ONE) {
            return Err(AskFault::CostAboveBurst { burst });
        }
        Ok(())
    }

    /// Everything short of the pool. The window in which the ask may be granted, or why it may not.
    pub(super) fn gates(&mut self, now: Moment, tenant: TenantKey, ask: &Ask) -> Result<Window, Denial> {
        self.may_repeat(ask)?;
        let window = self.window(now, tenant, ask)?;
        let breaker = self.breaker_of(tenant);
        if breaker.state() != BreakerState::Closed && !breaker.has_probe() {
            let denial = self.breaker_denial(now, tenant);
            return Err(denial.before(ask.deadline.saturating_sub(ask.expected)));
        }
        self.within_amplification_cap(now, tenant, ask)?;
        Ok(window)
    }

    /// The price of an ask. Where the attempt before was dear to the dependency, so is the next one.
    pub(super) fn price(&self, ask: &Ask) -> MicroTokens {
        let factor = match (&ask.failure, ask.kind) {
            (Some(failure), Kind::Retry) => self.policy.retry.cost.after(failure),
            _ => 1,
        };
        MicroTokens::from_tokens(u64::from(ask.cost).saturating_mul(u64::from(factor)))
    }

    fn within_amplification_cap(&mut self, now: Moment, tenant: TenantKey, ask: &Ask) -> Result<(), Denial> {
        let Some(extra) = self.policy.extra_attempts(&ask.tenant) else { return Ok(()) };
        let at_cap = self.tenants.get_mut(tenant).is_some_and(|spender| spender.is_at_cap(now, extra));
        if at_cap && ask.kind == Kind::Retry { Err(Reason::AmplificationCap.into()) } else { Ok(()) }
    }

    pub(super) fn breaker_denial(&mut self, now: Moment, tenant: TenantKey) -> Denial {
        let view = self.breaker_of(tenant).view(now);
        match view.state {
            BreakerState::Open => Denial::until(Reason::BreakerOpen, view.open_for),
            _ => Reason::BreakerHalfOpen.into(),
        }
    }

    fn may_repeat(&self, ask: &Ask) -> Result<(), Denial> {
        let repeats = ask.kind == Kind::Retry;
        let pointless = |failure: &Failure| failure.do_not_retry || !failure.class.is_retryable();
        if repeats && ask.failure.as_ref().is_some_and(pointless) {
            Err(Reason::NotRetryable.into())
        } else if ask.attempt > self.policy.max_attempts {
            Err(Reason::AttemptsExhausted.into())
        } else if repeats && !ask.is_repeatable() {
            Err(Reason::AmbiguousNotRepeatable.into())
        } else {
            Ok(())
        }
    }

    /// The moments at which a token could start an attempt that still fits the deadline. An ask that wants its
    /// answer now has spent its backoff itself, so its `earliest` does not count.
    fn window(&self, now: Moment, tenant: TenantKey, ask: &Ask) -> Result<Window, Denial> {
        let backoff = if ask.decides_now() { now } else { now.after(ask.earliest) };
        let last_start = now.after(ask.deadline.saturating_sub(ask.expected));
        if backoff >= last_start {
            return Err(Reason::DeadlineTooShort.into());
        }
        let hold = if ask.kind == Kind::Retry { self.held_until(now, tenant, ask) } else { now };
        if hold >= last_start {
            return Err(Reason::RetryAfterBeyondDeadline.into());
        }
        let opens = backoff.max(hold);
        let closes = last_start.min(now.after(ask.max_wait.unwrap_or(self.policy.max_delay)));
        if ask.decides_now() && opens > now {
            return Err(Denial::until(Reason::BudgetExhausted, opens.from_now(now)));
        }
        if opens >= closes && !ask.decides_now() {
            return Err(Denial::until(Reason::NoCapacityBeforeDeadline, opens.from_now(now)));
        }
        Ok(Window { opens, closes })
    }

    /// The later of the ask's own Retry-After and its tenant's hold. The own one counts in full; the hold that
    /// others learn from it is capped.
    fn held_until(&self, now: Moment, tenant: TenantKey, ask: &Ask) -> Moment {
        let own = ask.failure.as_ref().and_then(|failure| failure.retry_after).unwrap_or(Span::ZERO);
        self.tenants.hold_until(tenant).max(now.after(own))
    }
}
