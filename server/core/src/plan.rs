//! What retries cost: capacity arithmetic under independent failures (requirement R2).
//!
//! With failure rate p and at most m attempts, an operation makes E\[A\] = 1 + p + p^2 + ... + p^(m-1) attempts.
//! Nothing here feeds a decision; it answers people's questions, in floating point.

use std::fmt;

use crate::feed;
use crate::policy::RetryPolicy;
use crate::units::MICROS_PER_TOKEN;
use crate::{BoundBy, MicrosPerSecond, Policy, Ppm};

/// Most attempts that a plan lists.
pub const MOST_ATTEMPTS: u32 = 100;

/// The numbers that a plan rests on. Rates are per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Given {
    /// Logical operations, at least 0.
    pub arrival_per_s: f64,
    /// Share of attempts that fail, independently, in [0, 1].
    pub failure_rate: f64,
    /// Attempts of one operation, the first included, 1 to [`MOST_ATTEMPTS`].
    pub max_attempts: u32,
    /// Attempts that the dependency sustains, at least 0.
    pub capacity_per_s: Option<f64>,
    /// Retry tokens that a shared pool would issue, at least 0.
    pub retry_per_s: Option<f64>,
    /// Retry tokens per first attempt that succeeds, at least 0.
    pub retry_ratio: Option<f64>,
}

/// A number that a plan cannot rest on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenFault {
    /// The field of [`Given`].
    pub field: &'static str,
    /// What is wrong, and the remedy.
    pub message: String,
}

/// The answer. Rates are per second.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The numbers that it rests on.
    pub given: Given,
    /// Attempts per operation.
    pub amplification: f64,
    /// Attempts, all operations retried to the end.
    pub physical_per_s: f64,
    /// Operations that would succeed if capacity were unlimited.
    pub logical_success_per_s: f64,
    /// Attempts by number, the first attempt first.
    pub by_attempt_per_s: Vec<f64>,
    /// Most attempts while retries keep to the pool.
    pub physical_with_pool_per_s: Option<f64>,
    /// Whether the attempts fit the capacity, with every retry that clients would like.
    pub fits: Option<bool>,
    /// The same while retries keep to the pool.
    pub fits_with_pool: Option<bool>,
    /// Attempts above the capacity.
    pub excess_per_s: Option<f64>,
    /// The capacity less the attempts; negative where they do not fit.
    pub headroom_per_s: Option<f64>,
    /// Largest arrival rate whose attempts fit.
    pub safe_arrival_per_s: Option<f64>,
    /// The same whatever fails, while retries keep to the ratio; no less than without a limit.
    pub safe_arrival_by_ratio_per_s: Option<f64>,
    /// The same whatever fails, while retries keep to the pool; no less than without a limit.
    pub safe_arrival_by_pool_per_s: Option<f64>,
    /// The same if everything fails and nothing limits retries.
    pub safe_arrival_by_attempts_per_s: Option<f64>,
    /// Retries that clients would like.
    pub retry_demand_per_s: f64,
    /// Of these, above the pool: potential demand, not a prediction of the shed count.
    pub excess_retry_demand_per_s: Option<f64>,
}

/// E\[A\] for failure rate `failure_rate` (clamped to [0, 1]) and at most `max_attempts` attempts.
#[must_use]
pub fn amplification(failure_rate: f64, max_attempts: u32) -> f64 {
    by_attempt(failure_rate.clamp(0.0, 1.0), max_attempts.min(MOST_ATTEMPTS)).sum()
}

/// What the retry pool of a policy brings per second once traffic is as given, as long as nothing throttles it, and
/// the term that sets it. The given capacity and ratio take the place of the policy's own.
#[must_use]
pub fn pool(policy: &Policy, given: &Given) -> (f64, BoundBy) {
    let ratio = given.retry_ratio.map(|ratio| Ppm::new(u32::try_from(millionths(ratio)).unwrap_or(u32::MAX)));
    let retry = RetryPolicy { ratio, ..policy.retry };
    let per_s = |rate| MicrosPerSecond::from_micros(millionths(rate));
    let succeeded = per_s(given.arrival_per_s * (1.0 - given.failure_rate));
    let capacity = given.capacity_per_s.map(per_s);
    let (rate, bound_by) = feed::rate(&retry, capacity, per_s(given.arrival_per_s), succeeded);
    (rate.as_per_s(), bound_by)
}

/// Of a number that may be beyond its range: somebody else says so.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "clamped"
)]
fn millionths(number: f64) -> u64 {
    (number.clamp(0.0, 1e12) * MICROS_PER_TOKEN as f64).round() as u64
}

/// The share of operations that make attempt 1, 2, ...: 1, p, p^2, ...
fn by_attempt(failure_rate: f64, max_attempts: u32) -> impl Iterator<Item = f64> {
    std::iter::successors(Some(1.0), move |share| Some(share * failure_rate)).take(max_attempts as usize)
}

impl Given {
    /// Every number that is not in its range.
    #[must_use]
    pub fn faults(&self) -> Vec<GivenFault> {
        let mut faults = Vec::new();
        let mut require = |field, value: &dyn fmt::Display, holds: bool, range: &str| {
            if !holds {
                faults.push(GivenFault { field, message: format!("is {value}; give {range}") });
            }
        };
        let rate = |rate: f64| (0.0..=1e12).contains(&rate);
        const RATE: &str = "a rate per second from 0 to 1e12";
        require("arrival_per_s", &self.arrival_per_s, rate(self.arrival_per_s), RATE);
        let share = (0.0..=1.0).contains(&self.failure_rate);
        require("failure_rate", &self.failure_rate, share, "a share from 0 to 1");
        let attempts = (1..=MOST_ATTEMPTS).contains(&self.max_attempts);
        require("max_attempts", &self.max_attempts, attempts, "1 to 100, the first attempt included");
        let optional = [
            ("capacity_per_s", self.capacity_per_s, RATE, 1e12),
            ("retry_per_s", self.retry_per_s, RATE, 1e12),
            ("retry_ratio", self.retry_ratio, "a ratio from 0 to 1000", 1000.0),
        ];
        for (field, value, range, most) in optional {
            if let Some(value) = value {
                require(field, &value, (0.0..=most).contains(&value), range);
            }
        }
        faults
    }
}

impl Plan {
    /// What the given numbers come to.
    ///
    /// # Errors
    /// Every number that is not in its range.
    pub fn new(given: Given) -> Result<Self, Vec<GivenFault>> {
        let faults = given.faults();
        if faults.is_empty() { Ok(Self::of(given)) } else { Err(faults) }
    }

    /// The same for 1, 2, ... up to the given number of attempts.
    #[must_use]
    pub fn table(&self) -> Vec<Self> {
        (1..=self.given.max_attempts)
            .map(|max_attempts| Self::of(Given { max_attempts, ..self.given }))
            .collect()
    }

    fn of(given: Given) -> Self {
        let Given { arrival_per_s, failure_rate, max_attempts, capacity_per_s, retry_per_s, retry_ratio } =
            given;
        let shares = by_attempt(failure_rate, max_attempts);
        let by_attempt_per_s: Vec<f64> = shares.map(|share| share * arrival_per_s).collect();
        let amplification = amplification(failure_rate, max_attempts);
        let physical_per_s = arrival_per_s * amplification;
        // The sum of nothing is -0.0.
        let retry_demand_per_s = by_attempt_per_s.iter().skip(1).sum::<f64>() + 0.0;
        // A refused retry takes its later ones with it, so this is a bound, not what to expect.
        let with_pool = retry_per_s.map(|pool| arrival_per_s + retry_demand_per_s.min(pool));
        // However much a budget allows, no operation makes more attempts than these.
        let by_attempts = |capacity: f64| capacity / f64::from(max_attempts);
        let unanswered = std::iter::repeat_n(failure_rate, max_attempts as usize).product::<f64>();
        Self {
            given,
            amplification,
            physical_per_s,
            logical_success_per_s: arrival_per_s * (1.0 - unanswered),
            by_attempt_per_s,
            physical_with_pool_per_s: with_pool,
            fits: capacity_per_s.map(|capacity| physical_per_s <= capacity),
            fits_with_pool: capacity_per_s.zip(with_pool).map(|(capacity, attempts)| attempts <= capacity),
            excess_per_s: capacity_per_s.map(|capacity| (physical_per_s - capacity).max(0.0)),
            headroom_per_s: capacity_per_s.map(|capacity| capacity - physical_per_s),
            safe_arrival_per_s: capacity_per_s.map(|capacity| capacity / amplification),
            safe_arrival_by_ratio_per_s: capacity_per_s
                .zip(retry_ratio)
                .map(|(capacity, ratio)| (capacity / (1.0 + ratio)).max(by_attempts(capacity))),
            safe_arrival_by_pool_per_s: capacity_per_s
                .zip(retry_per_s)
                .map(|(capacity, pool)| (capacity - pool).max(by_attempts(capacity))),
            safe_arrival_by_attempts_per_s: capacity_per_s.map(by_attempts),
            retry_demand_per_s,
            excess_retry_demand_per_s: retry_per_s.map(|pool| (retry_demand_per_s - pool).max(0.0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chapter() -> Plan {
        let given = Given {
            arrival_per_s: 120.0,
            failure_rate: 0.12,
            max_attempts: 4,
            capacity_per_s: Some(130.0),
            retry_per_s: Some(10.0),
            retry_ratio: Some(0.1),
        };
        Plan::new(given).unwrap()
    }

    #[test]
    fn the_table_of_r2_to_the_printed_digits() {
        let printed: Vec<String> = chapter()
            .table()
            .iter()
            .map(|row| {
                let Plan { amplification, physical_per_s, logical_success_per_s, fits, .. } = row;
                format!("{amplification:.6} {physical_per_s:.3} {logical_success_per_s:.3} {}", fits.unwrap())
            })
            .collect();
        let expected = [
            "1.000000 120.000 105.600 true",
            "1.120000 134.400 118.272 false",
            "1.134400 136.128 119.793 false",
            "1.136128 136.335 119.975 false",
        ];
        assert_eq!(printed, expected);
    }

    #[test]
    fn the_figures_of_r2_around_the_table() {
        let plan = chapter();
        assert_eq!(format!("{:.5}", plan.physical_per_s), "136.33536");
        assert_eq!(format!("{:.5}", plan.excess_per_s.unwrap()), "6.33536");
        assert_eq!(format!("{:.3}", plan.safe_arrival_per_s.unwrap()), "114.424");
        assert_eq!(format!("{:.5}", plan.retry_demand_per_s), "16.33536");
        assert_eq!(format!("{:.5}", plan.excess_retry_demand_per_s.unwrap()), "6.33536");
        let by_attempt: Vec<String> = plan.by_attempt_per_s.iter().map(|rate| format!("{rate:.5}")).collect();
        assert_eq!(by_attempt, ["120.00000", "14.40000", "1.72800", "0.20736"]);
    }

    #[test]
    fn a_pool_caps_the_retries_of_every_row_at_what_it_issues() {
        let rows = chapter().table();
        let with_pool =
            rows.iter().map(|row| (row.physical_with_pool_per_s.unwrap(), row.fits_with_pool.unwrap()));
        assert_eq!(
            with_pool.collect::<Vec<_>>(),
            [(120.0, true), (130.0, true), (130.0, true), (130.0, true)]
        );
        let given = Given { retry_per_s: Some(10.001), ..chapter().given };
        assert_eq!(Plan::new(given).unwrap().fits_with_pool, Some(false));
        let given = Given { retry_per_s: Some(20.0), ..given };
        let plan = Plan::new(given).unwrap();
        assert_eq!(plan.physical_with_pool_per_s, Some(plan.physical_per_s), "no more than clients want");
        let none = Plan::new(Given { retry_per_s: None, ..given }).unwrap();
        assert_eq!((none.physical_with_pool_per_s, none.fits_with_pool), (None, None));
    }

    #[test]
    fn the_pool_of_a_policy_is_what_its_terms_come_to_under_the_given_traffic() {
        const HEADROOM: Option<f64> = Some(130.0);
        let traffic = Given { retry_per_s: None, retry_ratio: None, capacity_per_s: None, ..chapter().given };
        for (per_s, ratio, capacity_per_s, expected) in [
            (Some(10.0), None, None, (10.0, BoundBy::PerS)),
            (Some(10.0), Some(0.05), None, (5.28, BoundBy::Ratio)),
            (None, Some(0.1), None, (10.56, BoundBy::Ratio)),
            (None, Some(1.0), HEADROOM, (8.0, BoundBy::Headroom)),
            (Some(10.0), None, Some(100.0), (1.0, BoundBy::Floor)),
        ] {
            let mut draft = crate::PolicyDraft { capacity_per_s, ..Default::default() };
            (draft.retry.per_s, draft.retry.ratio) = (per_s, ratio);
            let policy = Policy::new(&draft).unwrap();
            let given = Given { retry_ratio: ratio, capacity_per_s, ..traffic };
            assert_eq!(pool(&policy, &given), expected);
        }
        let idle = Given { arrival_per_s: 0.0, retry_ratio: Some(0.1), ..traffic };
        assert_eq!(pool(&Policy::default(), &idle), (1.0, BoundBy::Floor));
        let junk =
            Given { arrival_per_s: f64::NAN, failure_rate: -1e300, retry_ratio: Some(f64::MAX), ..traffic };
        assert_eq!(pool(&Policy::default(), &junk), (1.0, BoundBy::Floor));
    }

    #[test]
    fn the_lines_that_a_planner_draws() {
        let plan = chapter();
        let digits = |rate: Option<f64>| format!("{:.3}", rate.unwrap());
        assert_eq!(digits(plan.headroom_per_s), "-6.335");
        assert_eq!(digits(plan.safe_arrival_by_ratio_per_s), "118.182", "130 / 1.1");
        assert_eq!(digits(plan.safe_arrival_by_pool_per_s), "120.000", "130 - 10");
        assert_eq!(digits(plan.safe_arrival_by_attempts_per_s), "32.500", "130 / 4");
    }

    #[test]
    fn a_dependency_that_always_fails_multiplies_by_the_attempts() {
        assert_eq!(amplification(1.0, 4), 4.0);
        assert_eq!(amplification(0.0, 4), 1.0);
        assert_eq!(amplification(f64::INFINITY, u32::MAX), 100.0);
    }

    #[test]
    fn every_number_out_of_range_is_named() {
        let given = Given {
            arrival_per_s: f64::NAN,
            failure_rate: 1.5,
            max_attempts: 0,
            capacity_per_s: Some(-1.0),
            retry_per_s: Some(f64::INFINITY),
            retry_ratio: Some(-0.1),
        };
        let fields: Vec<&str> = Plan::new(given).unwrap_err().iter().map(|fault| fault.field).collect();
        assert_eq!(
            fields,
            ["arrival_per_s", "failure_rate", "max_attempts", "capacity_per_s", "retry_per_s", "retry_ratio"]
        );
    }
}
