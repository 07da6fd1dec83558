//! The figures of a trial that need more than counts by second.

use std::time::Duration;

use damper_protocol::BreakerState;

use super::trial::Trial;
use crate::measure::{Reading, Span};
use crate::scenario::Measure;
use crate::units::ratio;

/// So many good seconds in a row are a recovery.
const GOOD_SECONDS: usize = 10;
const GOOD: f64 = 0.95;

/// Seconds over which a tenant's part is judged.
const FAIR_WINDOW: usize = 10;

impl Trial {
    /// A figure over these seconds; `None` if nothing happened that it could be taken from. `over_s` is when the
    /// trouble is over.
    pub(super) fn reading(
        &self,
        measure: Measure,
        from: usize,
        until: usize,
        over_s: Option<u64>,
    ) -> Option<Reading> {
        match measure {
            Measure::RecoveryS => self.recovery_s(over_s?).map(Reading::plain),
            Measure::FairShareLeast => self.fair_share_least(from, until).map(Reading::plain),
            Measure::HalfOpenWorst => self.half_open_worst().map(|count| Reading::plain(count as f64)),
            Measure::FirstAfterClose => self.after_close(1).map(Reading::plain),
            Measure::RampS => self.ramp_s().map(Reading::plain),
            Measure::ObservedToExpected => {
                self.server.as_ref()?.windows.get("1m")?.observed_to_expected.map(Reading::plain)
            }
            _ => self.span(from, until).reading(measure),
        }
    }

    /// Over the whole trial, its last answers belong to it.
    pub(super) fn span(&self, from: usize, until: usize) -> Span<'_> {
        if from == 0 && until >= self.arriving {
            return Span::of_run(&self.seconds, self.arriving);
        }
        Span::over(self.seconds.get(from..until.min(self.seconds.len())).unwrap_or_default())
    }

    /// Seconds until the fleet is well again; those of the whole rest if it never is.
    fn recovery_s(&self, over_s: u64) -> Option<f64> {
        let over = usize::try_from(over_s).ok()?;
        let rest = self.seconds.get(over..self.arriving.min(self.seconds.len()))?;
        let good = |seconds: &[crate::measure::Second]| {
            let total: crate::measure::Second = seconds.iter().sum();
            ratio(total.fulfilled, total.offered).is_none_or(|share| share >= GOOD)
        };
        let recovered = rest.windows(GOOD_SECONDS).position(good);
        Some(recovered.unwrap_or(rest.len()) as f64)
    }

    /// Tenant 0 is the one that asks for too much.
    fn fair_share_least(&self, from: usize, until: usize) -> Option<f64> {
        let tenants = self.retries_by_tenant.len();
        let sum = |tenant: &[u64], start: usize| -> u64 { tenant.iter().skip(start).take(FAIR_WINDOW).sum() };
        let least_from = |start: usize| {
            let all: u64 = self.retries_by_tenant.iter().map(|tenant| sum(tenant, start)).sum();
            let fair = ratio(all, tenants as u64).filter(|fair| *fair > 0.0)?;
            let others = self.retries_by_tenant.iter().skip(1);
            others.map(|tenant| sum(tenant, start) as f64 / fair).min_by(f64::total_cmp)
        };
        let last = until.saturating_sub(FAIR_WINDOW);
        (from..=last).filter_map(least_from).min_by(f64::total_cmp)
    }

    fn arrived_within(&self, from: Duration, until: Duration) -> usize {
        let before = |moment: Duration| self.arrivals.partition_point(|at| *at < moment);
        before(until).saturating_sub(before(from))
    }

    fn half_open_worst(&self) -> Option<usize> {
        let end = Duration::from_secs(self.arriving as u64);
        let next = self.breaker.iter().skip(1).map(|(at, _)| *at).chain([end]);
        let stages = self.breaker.iter().zip(next).filter(|((_, state), _)| *state == BreakerState::HalfOpen);
        stages.map(|((from, _), until)| self.arrived_within(*from, until)).max()
    }

    /// Attempts in second number `second` after the breaker closed for good, by those of a second before it opened.
    fn after_close(&self, second: u32) -> Option<f64> {
        let (opened, _) = self.breaker.iter().find(|(_, state)| *state == BreakerState::Open)?;
        let (closed, state) = self.breaker.last()?;
        if *state != BreakerState::Closed {
            return None;
        }
        // The last seconds before it opened are those of the outage, with all its retries.
        let calm = opened.saturating_sub(Duration::from_secs(20));
        let before = self.arrived_within(calm, calm + Duration::from_secs(10)) as f64 / 10.0;
        let from = *closed + Duration::from_secs(u64::from(second - 1));
        Some(self.arrived_within(from, from + Duration::from_secs(1)) as f64 / before)
    }

    fn ramp_s(&self) -> Option<f64> {
        let full = |second: &u32| self.after_close(*second).is_some_and(|share| share >= GOOD);
        self.after_close(1)?;
        let longest = u32::try_from(self.arriving).unwrap_or(u32::MAX);
        (1..=longest).find(full).map(|second| f64::from(second - 1))
    }
}
