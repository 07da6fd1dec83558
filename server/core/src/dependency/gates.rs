//! The gates of an ask, in their order. All pass before anything is debited.

use super::Dependency;
use crate::ask::Window;
use crate::tenants::TenantKey;
use crate::{Ask, AskFault, BreakerState, Kind, MicroTokens, Moment, Reason, Span};

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
}

impl Dependency {
    pub(super) fn check(&self, ask: &Ask) -> Result<(), AskFault> {
        let burst = self.pool.burst();
        if ask.kind == Kind::Retry && ask.failure.is_none() {
            return Err(AskFault::FailureMissing);
        }
        if ask.price() > burst.max(MicroTokens::ONE) {
            return Err(AskFault::CostAboveBurst { burst });
        }
        Ok(())
    }

    /// Everything short of the pool. The window in which the ask may be granted, or why it may not.
    pub(super) fn gates(&mut self, now: Moment, tenant: TenantKey, ask: &Ask) -> Result<Window, Denial> {
        self.may_repeat(ask)?;
        let window = self.window(now, tenant, ask)?;
        match self.breaker.state() {
            BreakerState::Closed => Ok(window),
            BreakerState::HalfOpen if self.breaker.has_probe() => Ok(window),
            _ => Err(self.breaker_denial(now)),
        }
    }

    pub(super) fn breaker_denial(&self, now: Moment) -> Denial {
        let view = self.breaker.view(now);
        match view.state {
            BreakerState::Open => Denial::until(Reason::BreakerOpen, view.open_for),
            _ => Reason::BreakerHalfOpen.into(),
        }
    }

    fn may_repeat(&self, ask: &Ask) -> Result<(), Denial> {
        let repeats = ask.kind == Kind::Retry;
        if repeats && ask.failure.as_ref().is_some_and(|failure| !failure.class.is_retryable()) {
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
