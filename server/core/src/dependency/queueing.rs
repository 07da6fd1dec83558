//! From the last gate to a token: at once, or by way of the delay queue.

use super::Dependency;
use super::gates::Denial;
use crate::answers::AnswerKey;
use crate::ask::Window;
use crate::queue::Waiting;
use crate::tenants::TenantKey;
use crate::{Ask, AskId, Asked, BreakerState, Decision, Kind, MicroTokens, Moment, Reason, Span};

/// How long clients are asked to shed locally while the queue is full, give or take a half: at a mean of four
/// asks per second and client, a fleet loads the server by its size and not by its storm.
const SUPPRESS: Span = Span::from_millis(250);

/// What a waiting ask is released with.
#[derive(Clone, Copy, Debug)]
pub(super) enum Release {
    /// A token.
    Granted,
    /// A refusal.
    Denied(Denial),
}

impl From<Denial> for Release {
    fn from(denial: Denial) -> Self {
        Self::Denied(denial)
    }
}

impl Dependency {
    /// Draws a token for an ask that has passed every other gate.
    pub(super) fn draw(
        &mut self,
        now: Moment,
        tenant: TenantKey,
        ask: &Ask,
        window: Window,
        answer_key: Option<AnswerKey>,
    ) -> Asked {
        let half_open = self.breaker_of(tenant).state() == BreakerState::HalfOpen;
        let reason = if half_open { Reason::Probe } else { Reason::WithinBudget };
        if ask.kind == Kind::First {
            // First attempts keep their own allocation and do not draw on the retry pool.
            return Asked::Decided(self.grant(now, tenant, ask.kind, reason, MicroTokens::ZERO));
        }
        let price = self.price(ask);
        if window.opens <= now && !self.queue.has_eligible() && self.take(now, ask.kind, price) {
            self.note_try(now, ask.kind, ask.attempt);
            return Asked::Decided(self.grant(now, tenant, ask.kind, reason, price));
        }
        // A hedge or a probe that would have to wait is not worth having; a hedge is not even told to come again.
        if ask.kind == Kind::Hedge {
            return Asked::Decided(self.deny(tenant, ask.kind, Reason::BudgetExhausted.into()));
        }
        if ask.decides_now() || half_open {
            let ready = self.pool.covers_at(now, self.queue.waiting_cost().saturating_add(price));
            let denial = self.denial_until(now, Reason::BudgetExhausted, ready.max(window.opens), ask);
            return Asked::Decided(self.deny(tenant, ask.kind, denial));
        }
        self.enqueue(now, tenant, ask, window, answer_key)
    }

    /// Whether a retry was in vain is told by the ask that follows it; none follows the last.
    fn note_try(&mut self, now: Moment, kind: Kind, attempt: u32) {
        if kind == Kind::Retry && attempt < self.policy.max_attempts {
            self.throttle.tried(now);
        }
    }

    /// Hedges draw on the pool like everyone, and on their own share of it besides, which closes as soon as
    /// retries are turned down. Both pay, or neither does.
    fn take(&mut self, now: Moment, kind: Kind, price: MicroTokens) -> bool {
        if kind != Kind::Hedge {
            return self.pool.take(now, price);
        }
        self.throttle.is_open()
            && self.hedges.covers(now, price)
            && self.pool.take(now, price)
            && self.hedges.take(now, price)
    }

    fn enqueue(
        &mut self,
        now: Moment,
        tenant: TenantKey,
        ask: &Ask,
        window: Window,
        answer_key: Option<AnswerKey>,
    ) -> Asked {
        let waiting = Waiting {
            tenant,
            weight: self.policy.weight(&ask.tenant),
            kind: ask.kind,
            attempt: ask.attempt,
            priority: ask.priority,
            price: self.price(ask),
            window,
            asked_at: now,
            answer_key,
        };
        let served = self.service_estimate(now, &waiting);
        if served >= window.closes {
            let denial = self.denial_until(now, Reason::NoCapacityBeforeDeadline, served, ask);
            return Asked::Decided(self.deny(tenant, ask.kind, denial));
        }
        if self.queue.waiting_cost().saturating_add(waiting.price) > self.queue_limit()
            && !self.make_room(now, &waiting)
        {
            let denial = self.denial_until(now, Reason::QueueFull, served, ask);
            return Asked::Decided(self.deny(tenant, ask.kind, denial));
        }
        let id = self.queue.push(now, waiting);
        self.drain(now);
        // A push can be served at once: its tenant's turn may come before that of asks that need more tokens.
        match self.released.iter().position(|(released, _)| *released == id) {
            Some(place) => Asked::Decided(self.released.swap_remove(place).1),
            None => Asked::Waiting(id),
        }
    }

    /// Serves what the pool covers, expires what is too late, and opens the windows whose time has come.
    pub(super) fn drain(&mut self, now: Moment) {
        if self.queue.len() == 0 {
            return;
        }
        while let Some((id, waiting)) = self.queue.pop_closed(now) {
            self.release(now, id, waiting, Denial::from(Reason::Expired).into());
        }
        self.queue.open_windows(now);
        while let Some((id, head)) = self.queue.head() {
            let (price, closes) = (head.price, head.window.closes);
            let hold = self.tenants.hold_until(head.tenant);
            if hold > now {
                self.postpone(now, id, hold, closes);
            } else if self.pool.take(now, price) {
                if let Some(waiting) = self.queue.serve(id) {
                    self.release(now, id, waiting, Release::Granted);
                }
            } else {
                break;
            }
        }
    }

    /// A hold that was learnt while the ask waited moves its window, or closes it.
    fn postpone(&mut self, now: Moment, id: AskId, hold: Moment, closes: Moment) {
        if hold < closes {
            self.queue.postpone(id, hold);
        } else if let Some(waiting) = self.queue.remove(id) {
            self.release(now, id, waiting, Denial::from(Reason::RetryAfterBeyondDeadline).into());
        }
    }

    /// Answers an ask that has left the queue.
    pub(super) fn release(&mut self, now: Moment, id: AskId, waiting: Waiting, release: Release) {
        let Waiting { tenant, kind, attempt, price, asked_at, answer_key, .. } = waiting;
        let reason = if now > asked_at { Reason::AfterDelay } else { Reason::WithinBudget };
        let decision = match release {
            Release::Granted => {
                self.note_try(now, kind, attempt);
                if reason == Reason::AfterDelay {
                    self.waits.count(now.since(asked_at));
                }
                self.grant(now, tenant, kind, reason, price)
            }
            Release::Denied(denial) => self.deny(tenant, kind, denial),
        };
        let decision = Decision { waited: now.since(asked_at), ..decision };
        if let Some(key) = answer_key {
            self.remember(now, key, Asked::Decided(decision.clone()));
        }
        self.released.push((id, decision));
    }

    /// When the ask would probably be served: once its window is open, and the pool has covered either
    /// everything in front of it or its own tenant's fair share of that, whichever comes first.
    fn service_estimate(&mut self, now: Moment, waiting: &Waiting) -> Moment {
        let ahead = self.queue.ahead(waiting);
        let last = ahead.of_all.saturating_add(waiting.price);
        let of_tenant = ahead.of_tenant.saturating_add(waiting.price).as_micros();
        let fair = MicroTokens::from_micros(crate::units::scale(of_tenant, ahead.total_weight, ahead.weight));
        self.pool.covers_at(now, last.min(fair)).max(waiting.window.opens)
    }

    /// What may wait: as much as the pool brings within `max_delay`, at least one token's worth.
    pub(super) fn queue_limit(&self) -> MicroTokens {
        let second = Span::SECOND.as_nanos();
        let within = crate::units::scale(
            self.pool.bank().rate().as_micros(),
            self.policy.max_delay.as_nanos(),
            second,
        );
        MicroTokens::from_micros(within).max(MicroTokens::ONE)
    }

    fn make_room(&mut self, now: Moment, newcomer: &Waiting) -> bool {
        let victim = self.queue.victim(newcomer).and_then(|id| self.queue.remove(id).map(|ask| (id, ask)));
        let Some((id, waiting)) = victim else { return false };
        self.release(now, id, waiting, Denial::from(Reason::Preempted).into());
        true
    }

    /// A refusal for want of tokens. Waiting helps if they come before the deadline; while more waits than the
    /// pool brings within `max_delay`, asking does not.
    fn denial_until(&mut self, now: Moment, reason: Reason, ready: Moment, ask: &Ask) -> Denial {
        let last_start = now.after(ask.deadline.saturating_sub(ask.expected));
        let retry_after = (ready < last_start).then(|| ready.from_now(now));
        Denial { reason, retry_after, suppress: self.suppression(self.price(ask)) }
    }

    /// How long to ask nothing, if one more ask of this price finds no place.
    pub(super) fn suppression(&mut self, price: MicroTokens) -> Span {
        let full = self.queue.waiting_cost().saturating_add(price) > self.queue_limit();
        if full { self.jitter.around(SUPPRESS) } else { Span::ZERO }
    }
}
