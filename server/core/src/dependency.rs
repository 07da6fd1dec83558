//! The state machine of one dependency.

use std::sync::Arc;

use crate::answers::{AnswerKey, Answers};
use crate::breaker::{Breaker, Force};
use crate::feed::Feed;
use crate::jitter::Jitter;
use crate::leases::Leases;
use crate::ledger::Ledger;
use crate::pool::Pool;
use crate::queue::FairQueue;
use crate::ring::Windows;
use crate::tenants::{TenantKey, Tenants};
use crate::{
    Advice, Ask, AskFault, AskId, Asked, BreakerState, BreakerView, Decision, Grant, Kind, MicroTokens,
    Moment, Policy, Reason, Report, Span, TokenId, Totals,
};

mod gates;
mod queueing;
mod view;

/// The longest hold that a dependency's Retry-After can impose: a header is a peer's word, not a command.
const LONGEST_HOLD: Span = Span::from_secs(300);

/// Everything that a decision about one dependency reads or writes.
///
/// Every method takes the present moment first; one that lies before a moment already seen counts as that one.
/// Decisions about asks that waited come out of [`take_released`](Self::take_released) after any method.
#[derive(Clone, Debug)]
pub struct Dependency {
    policy: Arc<Policy>,
    now: Moment,
    pool: Pool,
    feed: Feed,
    queue: FairQueue,
    breaker: Breaker,
    leases: Leases,
    answers: Answers,
    tenants: Tenants,
    ledger: Ledger,
    totals: Totals,
    windows: Windows,
    /// Decisions by kind and reason.
    decided: [[u64; Reason::ALL.len()]; Kind::ALL.len()],
    released: Vec<(AskId, Decision)>,
    revision: u64,
    jitter: Jitter,
}

impl Dependency {
    /// A dependency that nobody has used. Its pool holds one second of the floor, never more: a restart must
    /// not hand out a fresh burst. `seed` spreads the waits that it suggests.
    #[must_use]
    pub fn new(now: Moment, policy: Arc<Policy>, seed: u64) -> Self {
        let feed = Feed::new(now, &policy);
        let terms = feed.terms();
        let initial = policy.retry.floor.in_one_second();
        Self {
            now,
            pool: Pool::new(now, terms.rate, terms.burst, initial),
            feed,
            queue: FairQueue::default(),
            breaker: Breaker::new(now, policy.breaker, Jitter::new(!seed)),
            leases: Leases::default(),
            answers: Answers::default(),
            tenants: Tenants::default(),
            ledger: Ledger::new(now),
            totals: Totals::default(),
            windows: Windows::new(now),
            decided: [[0; _]; _],
            released: Vec::new(),
            revision: 0,
            jitter: Jitter::new(seed),
            policy,
        }
    }

    /// Decides an ask, or lets it wait in the delay queue.
    ///
    /// # Errors
    /// An ask that can never be decided; nothing is charged or counted.
    pub fn ask(&mut self, now: Moment, ask: &Ask) -> Result<Asked, AskFault> {
        let now = self.advance(now);
        self.check(ask)?;
        let key = ask.request_id.as_ref().map(|id| AnswerKey::new(&ask.tenant, id));
        if let Some(known) = key.as_ref().and_then(|key| self.answers.get(key)) {
            return Ok(known.clone());
        }
        let queue = &self.queue;
        let tenant = self.tenants.key(now, &ask.tenant, |key| queue.waits(key));
        self.learn_hold(now, tenant, ask);
        let asked = match self.gates(now, tenant, ask) {
            Ok(window) => self.draw(now, tenant, ask, window, key.clone()),
            Err(denial) => Asked::Decided(self.deny(tenant, ask.kind, denial)),
        };
        if let Some(key) = key {
            self.answers.keep(now, key, asked.clone());
        }
        Ok(asked)
    }

    /// Takes a waiting ask out of the queue: its client went away. It costs nothing, and nothing is answered.
    pub fn cancel(&mut self, now: Moment, id: AskId) {
        let now = self.advance(now);
        if let Some(waiting) = self.queue.remove(id) {
            if let Some(key) = waiting.answer_key {
                self.answers.forget(&key);
            }
            self.drain(now);
        }
    }

    /// Does what time alone brings: expiries, releases, breaker timeouts.
    pub fn poll(&mut self, now: Moment) {
        self.advance(now);
    }

    /// When to [`poll`](Self::poll) next; [`None`] while time alone brings nothing.
    pub fn next_wakeup(&mut self) -> Option<Moment> {
        let now = self.now;
        let served = self.queue.head().map(|(_, ask)| ask.price).map(|price| {
            // A rate of zero may rise when the second is over.
            self.pool.covers_at(now, price).min(self.feed.next_roll())
        });
        [self.queue.next_change(), self.breaker.next_change(), served].into_iter().flatten().min()
    }

    /// The decisions about asks that waited, since this was last called.
    pub fn take_released(&mut self) -> Vec<(AskId, Decision)> {
        std::mem::take(&mut self.released)
    }

    /// Gives an unused token back, once, while it lives. False if it was not out; nothing is credited then.
    pub fn return_token(&mut self, now: Moment, token: TokenId) -> bool {
        let now = self.advance(now);
        let Some(cost) = self.leases.give_back(now, token) else { return false };
        self.breaker.return_probe(token);
        if cost > MicroTokens::ZERO {
            self.pool.give_back(now, cost);
            self.drain(now);
        }
        true
    }

    /// Takes a client's report and tells it what it may do.
    pub fn sync(&mut self, now: Moment, report: &Report) -> Advice {
        let now = self.advance(now);
        let difference = self.ledger.difference(now, report);
        self.totals.add(&difference);
        self.windows.add(now, &difference);
        self.feed.count(&difference);
        self.breaker.report(now, report, &difference);
        self.shed_unless_closed(now);
        let queue = &self.queue;
        let tenant = self.tenants.key(now, &report.tenant, |key| queue.waits(key));
        Advice {
            emergency_per_s: self.emergency_share(),
            breaker: self.breaker.view(now),
            hold: self.tenants.hold_until(tenant).from_now(now),
            policy: Arc::clone(&self.policy),
        }
    }

    /// Adopts a changed policy. Balances are kept and clamped, never refilled; waiting asks keep their places.
    pub fn configure(&mut self, now: Moment, policy: Arc<Policy>) {
        let now = self.advance(now);
        self.policy = policy;
        self.revision += 1;
        self.feed.reconsider(&self.policy);
        let terms = self.feed.terms();
        self.pool.reshape(now, terms.rate, terms.burst);
        self.breaker.configure(now, self.policy.breaker);
        self.drain(now);
    }

    /// Forces the breaker into a state, or releases it with [`None`].
    pub fn force_breaker(&mut self, now: Moment, force: Option<Force>) {
        let now = self.advance(now);
        self.breaker.force(now, force);
        self.shed_unless_closed(now);
    }

    /// The breaker now.
    pub fn breaker(&mut self, now: Moment) -> BreakerView {
        let now = self.advance(now);
        self.breaker.view(now)
    }

    /// Rises with every transition of the breaker.
    #[must_use]
    pub const fn breaker_version(&self) -> u64 {
        self.breaker.version().version
    }

    /// Rises when watchers should look again: another policy, or a hold that is new or over a second longer.
    #[must_use]
    pub const fn revision(&self) -> u64 {
        self.revision
    }

    /// The policy in force.
    #[must_use]
    pub const fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// Brings every part up to `now`, in the order in which the moments in between would have.
    fn advance(&mut self, now: Moment) -> Moment {
        let now = now.max(self.now);
        self.now = now;
        while let Some((since, terms)) = self.feed.roll(now, &self.policy) {
            self.pool.reshape(since, terms.rate, terms.burst);
        }
        self.leases.advance(now);
        self.answers.advance(now);
        self.breaker.advance(now);
        self.drain(now);
        now
    }

    /// One living client's part of the present rate.
    fn emergency_share(&self) -> crate::MicrosPerSecond {
        let share = self.pool.rate().as_micros() / self.ledger.living().max(1);
        crate::MicrosPerSecond::from_micros(share)
    }

    fn learn_hold(&mut self, now: Moment, tenant: TenantKey, ask: &Ask) {
        let wait = ask.failure.as_ref().and_then(|failure| failure.retry_after);
        let (Some(wait), Some(tenant)) = (wait, self.tenants.get_mut(tenant)) else { return };
        // A longer hold replaces a shorter one, never the reverse.
        let (before, after) = (tenant.hold_until, now.after(wait.min(LONGEST_HOLD)));
        tenant.hold_until = before.max(after);
        let news = before <= now || after.since(before) > Span::SECOND;
        self.revision += u64::from(after > before && news);
    }

    fn grant(
        &mut self,
        now: Moment,
        tenant: TenantKey,
        kind: Kind,
        reason: Reason,
        paid: MicroTokens,
    ) -> Decision {
        let ttl = self.policy.token_ttl;
        let token = self.leases.grant(paid, now.after(ttl));
        if reason == Reason::Probe {
            self.breaker.lease_probe(now, token);
        }
        let grant = Some(Grant { token, ttl });
        self.decide(tenant, kind, Decision { grant, ..self.decision(reason) })
    }

    fn deny(&mut self, tenant: TenantKey, kind: Kind, denial: gates::Denial) -> Decision {
        let decision = Decision {
            retry_after: denial.retry_after,
            suppress: denial.suppress,
            ..self.decision(denial.reason)
        };
        self.decide(tenant, kind, decision)
    }

    fn decision(&self, reason: Reason) -> Decision {
        Decision {
            verdict: reason.verdict(),
            reason,
            grant: None,
            waited: Span::ZERO,
            retry_after: None,
            suppress: Span::ZERO,
            breaker: self.breaker.version(),
        }
    }

    /// Counts a decision.
    fn decide(&mut self, tenant: TenantKey, kind: Kind, decision: Decision) -> Decision {
        let by_reason = self.decided.get_mut(kind.index());
        if let Some(count) = by_reason.and_then(|counts| counts.get_mut(decision.reason.index())) {
            *count += 1;
        }
        let tenant = self.tenants.get_mut(tenant);
        if let Some(count) = tenant.and_then(|tenant| tenant.decided.get_mut(decision.verdict.index())) {
            *count += 1;
        }
        decision
    }

    /// An ask that waits for a token must not outlive the breaker's closed state: it would start an attempt
    /// that the breaker forbids, or spend its window on nothing.
    fn shed_unless_closed(&mut self, now: Moment) {
        if self.breaker.state() == BreakerState::Closed {
            return self.drain(now);
        }
        while let Some((id, waiting)) = self.queue.pop_any() {
            let denial = self.breaker_denial(now);
            self.release(now, id, waiting, denial.into());
        }
    }
}

#[cfg(test)]
mod tests;
