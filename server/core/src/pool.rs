//! The retry tokens of one dependency: a token bucket with exact integer amounts and closed-form refill.
//!
//! The promise, for every interval t: `issued(t) - returned(t) <= burst + integral of rate over t`, exactly.
//! The balance is kept in femto-tokens, the product of micro-tokens per second and nanoseconds, so a refill
//! loses nothing to rounding whatever the gap, and a year of idleness costs what a nanosecond does.

use crate::feed::Terms;
use crate::units::NANOS_PER_S;
use crate::{MicroTokens, MicrosPerSecond, Moment, Span};

/// A pool whose balance cannot be spent in one instant: in any tenth of a second it issues at most a tenth of
/// what a full pool could spend within a second, so that a fleet never releases together. A burst that an
/// operator asked for may go at once.
#[derive(Clone, Debug)]
#[cfg_attr(damper_model, derive(PartialEq, Eq, Hash))]
pub(crate) struct PacedPool {
    bank: Pool,
    pace: Pool,
}

impl PacedPool {
    /// See [`Pool::new`].
    pub(crate) fn new(now: Moment, terms: Terms, initial: MicroTokens) -> Self {
        let (pace, slice) = pacing(terms);
        let bank = Pool::new(now, terms.rate, terms.burst, initial);
        Self { bank, pace: Pool::new(now, pace, slice, slice) }
    }

    /// See [`Pool::take`].
    pub(crate) fn take(&mut self, now: Moment, cost: MicroTokens) -> bool {
        let paced = cost.min(self.pace.burst);
        self.pace.covers(now, paced) && self.bank.take(now, cost) && self.pace.take(now, paced)
    }

    /// See [`Pool::give_back`]. What was not used did not load anything, so its pace comes back too.
    pub(crate) fn give_back(&mut self, now: Moment, cost: MicroTokens) {
        self.bank.give_back(now, cost);
        self.pace.give_back(now, cost);
    }

    /// See [`Pool::reshape`].
    pub(crate) fn reshape(&mut self, now: Moment, terms: Terms) {
        let (pace, slice) = pacing(terms);
        self.bank.reshape(now, terms.rate, terms.burst);
        self.pace.reshape(now, pace, slice);
    }

    /// When `amount` will have been issued if all of it is taken as soon as possible, others before the last.
    pub(crate) fn covers_at(&mut self, now: Moment, amount: MicroTokens) -> Moment {
        self.bank.covers_at(now, amount).max(self.pace.covers_at(now, amount))
    }

    /// When one ask of this price can be served.
    pub(crate) fn serves_at(&mut self, now: Moment, price: MicroTokens) -> Moment {
        let paced = price.min(self.pace.burst);
        self.bank.covers_at(now, price).max(self.pace.covers_at(now, paced))
    }

    /// The bank, for reading.
    pub(crate) const fn bank(&self) -> &Pool {
        &self.bank
    }

    pub(crate) fn balance(&mut self, now: Moment) -> MicroTokens {
        self.bank.balance(now)
    }
}

/// The rate at which a pool may be emptied, and how much of it at once.
fn pacing(Terms { rate, burst, at_once, .. }: Terms) -> (MicrosPerSecond, MicroTokens) {
    let pace = MicrosPerSecond::from_micros(rate.as_micros().saturating_add(burst.as_micros()));
    let slice = if at_once { burst } else { MicroTokens::from_micros(pace.as_micros() / 10) };
    (pace, slice.max(MicroTokens::ONE))
}

/// A token bucket. Every method refills up to the `now` that it is given first.
#[derive(Clone, Debug)]
#[cfg_attr(damper_model, derive(PartialEq, Eq, Hash))]
pub(crate) struct Pool {
    balance: Femtos,
    rate: MicrosPerSecond,
    burst: MicroTokens,
    refilled: Moment,
    issued: u128,
    returned: u128,
}

/// 10^-15 of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(damper_model, derive(Hash))]
struct Femtos(u128);

impl Femtos {
    const fn of(amount: MicroTokens) -> Self {
        Self(amount.as_micros() as u128 * NANOS_PER_S as u128)
    }

    fn brought_by(rate: MicrosPerSecond, span: Span) -> Self {
        Self(u128::from(rate.as_micros()) * u128::from(span.as_nanos()))
    }

    fn whole_micros(self) -> MicroTokens {
        MicroTokens::from_micros(u64::try_from(self.0 / u128::from(NANOS_PER_S)).unwrap_or(u64::MAX))
    }
}

impl Pool {
    /// A pool that holds `initial`, or `burst` if that is less.
    pub(crate) fn new(now: Moment, rate: MicrosPerSecond, burst: MicroTokens, initial: MicroTokens) -> Self {
        let balance = Femtos::of(initial.min(burst));
        Self { balance, rate, burst, refilled: now, issued: 0, returned: 0 }
    }

    /// Debits `cost` if the balance covers it: the check and the debit are one step.
    pub(crate) fn take(&mut self, now: Moment, cost: MicroTokens) -> bool {
        self.refill(now);
        let cost_femtos = Femtos::of(cost);
        let covered = self.balance >= cost_femtos;
        if covered {
            self.balance.0 -= cost_femtos.0;
            self.issued = self.issued.saturating_add(u128::from(cost.as_micros()));
        }
        covered
    }

    /// Credits an unused token, up to the burst.
    pub(crate) fn give_back(&mut self, now: Moment, cost: MicroTokens) {
        self.refill(now);
        self.returned = self.returned.saturating_add(u128::from(cost.as_micros()));
        self.balance = Femtos(self.balance.0.saturating_add(Femtos::of(cost).0)).min(Femtos::of(self.burst));
    }

    /// From `now` on refills at `rate` up to `burst`. The balance is kept and clamped, never raised.
    pub(crate) fn reshape(&mut self, now: Moment, rate: MicrosPerSecond, burst: MicroTokens) {
        self.refill(now);
        self.rate = rate;
        self.burst = burst;
        self.balance = self.balance.min(Femtos::of(burst));
    }

    /// When the balance will cover `amount` if nothing is taken until then; amounts above the burst count too,
    /// since others will be served in between. [`Moment::NEVER`] if the rate brings it never.
    pub(crate) fn covers_at(&mut self, now: Moment, amount: MicroTokens) -> Moment {
        self.refill(now);
        let missing = Femtos::of(amount).0.saturating_sub(self.balance.0);
        match (missing, u128::from(self.rate.as_micros())) {
            (0, _) => now,
            (_, 0) => Moment::NEVER,
            (missing, rate) => {
                let nanos = u64::try_from(missing.div_ceil(rate)).unwrap_or(u64::MAX);
                self.refilled.after(Span::from_nanos(nanos))
            }
        }
    }

    pub(crate) fn balance(&mut self, now: Moment) -> MicroTokens {
        self.refill(now);
        self.balance.whole_micros()
    }

    /// Whether [`take`](Self::take) would succeed.
    pub(crate) fn covers(&mut self, now: Moment, cost: MicroTokens) -> bool {
        self.refill(now);
        self.balance >= Femtos::of(cost)
    }

    pub(crate) const fn rate(&self) -> MicrosPerSecond {
        self.rate
    }

    pub(crate) const fn burst(&self) -> MicroTokens {
        self.burst
    }

    /// Everything ever granted.
    pub(crate) fn issued(&self) -> MicroTokens {
        MicroTokens::from_micros(u64::try_from(self.issued).unwrap_or(u64::MAX))
    }

    /// Everything ever given back.
    pub(crate) fn returned(&self) -> MicroTokens {
        MicroTokens::from_micros(u64::try_from(self.returned).unwrap_or(u64::MAX))
    }

    fn refill(&mut self, now: Moment) {
        let earned = Femtos::brought_by(self.rate, now.since(self.refilled));
        self.refilled = self.refilled.max(now);
        self.balance = Femtos(self.balance.0.saturating_add(earned.0)).min(Femtos::of(self.burst));
    }
}

#[cfg(test)]
mod tests;
