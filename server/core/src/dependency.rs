//! The state machine of one dependency.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::allocation::Allocations;
use crate::answers::{AnswerKey, Answers};
use crate::breaker::Breaker;
use crate::feed::Feed;
use crate::jitter::Jitter;
use crate::leases::Leases;
use crate::ledger::{Difference, Ledger};
use crate::pool::{PacedPool, Pool};
use crate::queue::FairQueue;
use crate::refusals::Refusals;
use crate::ring::Windows;
use crate::snapshot::{TransitionCounts, Waits};
use crate::tenants::{TenantKey, Tenants};
use crate::throttle::Throttle;
use crate::units::scale;
use crate::{
    Advice, Ask, AskFault, AskId, Asked, Decision, Kind, MicroTokens, MicrosPerSecond, Moment, Policy,
    Reason, Report, Span, TokenId, Totals,
};

mod breakers;
mod deciding;
mod gates;
mod queueing;
mod usage;
mod view;

pub use breakers::Transition;

/// The longest hold that a dependency's Retry-After can impose: a header is a peer's word, not a command.
const LONGEST_HOLD: Span = Span::from_secs(300);

/// Everything that a decision about one dependency reads or writes.
///
/// Every method takes the present moment first; one that lies before a moment already seen counts as that one.
/// Decisions about asks that waited come out of [`take_released`](Self::take_released) after any method, and
/// what breakers did out of [`take_transitions`](Self::take_transitions).
#[derive(Clone, Debug)]
pub struct Dependency {
    policy: Arc<Policy>,
    now: Moment,
    pool: PacedPool,
    /// What hedges may draw of the pool.
    hedges: Pool,
    feed: Feed,
    throttle: Throttle,
    queue: FairQueue,
    breaker: Breaker,
    /// What the versions of new breakers start from.
    first_version: u64,
    /// Tenants whose own breaker is not closed.
    unsettled: BTreeSet<TenantKey>,
    transitions: Vec<Transition>,
    /// Transitions of all breakers, by the states before and after.
    transition_counts: TransitionCounts,
    /// First attempts per second before the breaker opened.
    rate_before: MicrosPerSecond,
    allocations: Allocations,
    leases: Leases,
    answers: Answers,
    tenants: Tenants,
    ledger: Ledger,
    totals: Totals,
    windows: Windows,
    /// Decisions by kind and reason; in shadow mode, what they would have been.
    decided: [[u64; Reason::ALL.len()]; Kind::ALL.len()],
    /// Grants of shadow mode by kind.
    shadowed: [u64; Kind::ALL.len()],
    /// What grants should have cost the pool: to be compared with what it debited.
    granted: MicroTokens,
    /// What asks that were granted after a wait have waited.
    waits: Waits,
    refusals: Refusals,
    released: Vec<(AskId, Decision)>,
    revision: u64,
    jitter: Jitter,
}

impl Dependency {
    /// A dependency that nobody has used. Its pool holds one second of the floor, never more: a restart must
    /// not hand out a fresh burst. `seed` spreads the waits that it suggests.
    #[must_use]
    pub fn new(now: Moment, policy: Arc<Policy>, seed: u64) -> Self {
        let (feed, throttle) = (Feed::new(now), Throttle::new(now));
        let terms = feed.terms(&policy, &throttle);
        let initial = policy.retry.floor.in_one_second();
        Self {
            now,
            pool: PacedPool::new(now, terms, initial),
            hedges: Pool::new(now, MicrosPerSecond::ZERO, MicroTokens::ONE, MicroTokens::ZERO),
            feed,
            throttle,
            queue: FairQueue::default(),
            breaker: Breaker::new(now, policy.breaker, Jitter::new(!seed)),
            first_version: 1,
            unsettled: BTreeSet::new(),
            transitions: Vec::new(),
            transition_counts: TransitionCounts::default(),
            rate_before: MicrosPerSecond::ZERO,
            allocations: Allocations::new(now),
            leases: Leases::default(),
            answers: Answers::default(),
            tenants: Tenants::default(),
            ledger: Ledger::new(now),
            totals: Totals::default(),
            windows: Windows::new(now),
            decided: [[0; _]; _],
            shadowed: [0; _],
            granted: MicroTokens::ZERO,
            waits: Waits::default(),
            refusals: Refusals::default(),
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
        let tenant = self.tenant(now, &ask.tenant);
        self.learn_hold(now, tenant, ask);
        if ask.kind == Kind::Retry && ask.attempt > 2 {
            self.throttle.failed_again(now);
        }
        let asked = match self.gates(now, tenant, ask) {
            // A shadow's answer is given at once; what becomes of its place in the queue answers nobody.
            Ok(window) => self.draw(now, tenant, ask, window, key.clone().filter(|_| !self.policy.shadow)),
            Err(denial) => Asked::Decided(self.deny(tenant, ask.kind, denial)),
        };
        let asked = if self.policy.shadow { self.shadow(now, tenant, ask, asked) } else { asked };
        if let Some(key) = key {
            self.remember(now, key, asked.clone());
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
            self.pool.serves_at(now, price).min(self.feed.next_roll())
        });
        [self.queue.next_change(), self.next_breaker_change(), served].into_iter().flatten().min()
    }

    /// The decisions about asks that waited, since this was last called.
    pub fn take_released(&mut self) -> Vec<(AskId, Decision)> {
        std::mem::take(&mut self.released)
    }

    /// Gives an unused token back, once, while it lives. False if it was not out; nothing is credited then.
    pub fn return_token(&mut self, now: Moment, token: TokenId) -> bool {
        let now = self.advance(now);
        let Some(lease) = self.leases.give_back(now, token) else { return false };
        if let Some(key) = lease.answer_key {
            self.answers.forget(&key);
        }
        self.breaker_of(lease.tenant).return_probe(token);
        if lease.cost > MicroTokens::ZERO {
            self.pool.give_back(now, lease.cost);
            self.drain(now);
        }
        if lease.kind == Kind::Hedge {
            self.hedges.give_back(now, lease.cost);
        }
        true
    }

    /// Takes a client's report and tells it what it may do.
    pub fn sync(&mut self, now: Moment, report: &Report) -> Advice {
        let now = self.advance(now);
        let Difference { totals: difference, covers } = self.ledger.difference(now, report);
        self.totals.add(&difference);
        self.windows.add(now, &difference);
        if let Some(covers) = covers {
            self.feed.count(&difference, covers);
            self.throttle.count(now, &difference);
        }
        let tenant = self.tenant(now, &report.tenant);
        let is_capped = self.policy.extra_attempts(&report.tenant).is_some();
        if let Some(spender) = self.tenants.get_mut(tenant) {
            spender.counts.count_report(&difference);
            if is_capped {
                spender.count_logical(now, difference.logical);
            }
        }
        let signal = if covers.is_some() { difference } else { Totals::default() };
        let learning = self.allocations.is_learning(now);
        self.with_breaker(now, tenant, |breaker| {
            if learning {
                breaker.adopt(now, report);
            }
            breaker.report(now, tenant, report, &signal);
        });
        Advice {
            first: self.lease_first_attempts(now, tenant, report),
            learning: self.allocations.is_learning(now),
            emergency_per_s: self.emergency_share(),
            throttled: !self.throttle.is_open(),
            breaker: self.breaker_of(tenant).view(now),
            hold: self.tenants.hold_until(tenant).from_now(now),
            suppress: self.suppression(MicroTokens::ONE),
            policy: Arc::clone(&self.policy),
        }
    }

    /// Adopts a changed policy. Balances are kept and clamped, never refilled; waiting asks keep their places.
    pub fn configure(&mut self, now: Moment, policy: Arc<Policy>) {
        let now = self.advance(now);
        self.policy = policy;
        self.revision += 1;
        self.reshape(now);
        self.breaker.configure(now, self.policy.breaker);
        self.configure_tenant_breakers(now);
        self.drain(now);
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
        while let Some((ended, seconds)) = self.feed.roll(now, self.throttle.is_open()) {
            self.throttle.tick(ended, seconds);
            self.reshape(ended);
        }
        if self.throttle.pulse(now) {
            self.reshape(now);
        }
        self.leases.advance(now);
        self.answers.advance(now);
        self.advance_breakers(now);
        self.drain(now);
        now
    }

    /// Gives the pools the rates that hold from `now` on.
    fn reshape(&mut self, now: Moment) {
        self.pool.reshape(now, self.feed.terms(&self.policy, &self.throttle));
        let ratio = u64::from(self.policy.retry.hedge_ratio.get());
        let hedges = MicrosPerSecond::from_micros(scale(self.feed.succeeded_per_s(), ratio, 1));
        self.hedges.reshape(now, hedges, hedges.in_one_second().max(MicroTokens::ONE));
    }

    fn tenant(&mut self, now: Moment, name: &str) -> TenantKey {
        let (queue, unsettled) = (&self.queue, &self.unsettled);
        self.tenants.key(now, name, |key| queue.waits(key) || unsettled.contains(&key))
    }

    /// One living client's part of the present rate.
    fn emergency_share(&self) -> MicrosPerSecond {
        let share = self.pool.bank().rate().as_micros() / self.ledger.living().max(1);
        MicrosPerSecond::from_micros(share)
    }

    fn learn_hold(&mut self, now: Moment, tenant: TenantKey, ask: &Ask) {
        let told = ask.failure.as_ref().filter(|failure| failure.class.is_retryable());
        let wait = told.and_then(|failure| failure.retry_after);
        let (Some(wait), Some(tenant)) = (wait, self.tenants.get_mut(tenant)) else { return };
        // A longer hold replaces a shorter one, never the reverse.
        let (before, after) = (tenant.hold_until, now.after(wait.min(LONGEST_HOLD)));
        tenant.hold_until = before.max(after);
        let news = before <= now || after.since(before) > Span::SECOND;
        self.revision += u64::from(after > before && news);
    }
}

#[cfg(test)]
mod tests;
