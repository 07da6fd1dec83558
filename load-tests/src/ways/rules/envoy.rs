//! Envoy's `retry_budget`: so many retries at the same time as a share of the requests at the same time.

use std::time::Duration;

use super::{Backoff, Moment, Rule};
use crate::measure::Outcome;

/// `budget_percent`.
const SHARE: f64 = 0.2;
/// `min_retry_concurrency`.
const LEAST: f64 = 3.0;

/// The budget with its defaults: 20 % and 3. Retries that wait for their backoff are outstanding, and no requests.
#[derive(Debug)]
pub struct Envoy {
    active: u64,
    retries: u64,
    backoff: Backoff,
}

impl Envoy {
    /// Nothing is under way.
    #[must_use]
    pub const fn new(backoff: Backoff) -> Self {
        Self { active: 0, retries: 0, backoff }
    }
}

impl Rule for Envoy {
    fn first(&mut self, _: Moment) -> bool {
        self.active += 1;
        true
    }

    fn ended(&mut self, _: Moment, attempt: u32, _: Outcome) {
        if attempt > 1 {
            self.given_up();
        }
    }

    fn retry(&mut self, moment: Moment, attempt: u32, outcome: Outcome) -> Option<Duration> {
        let most = (SHARE * self.active as f64).max(LEAST);
        if self.retries as f64 >= most {
            return None;
        }
        self.retries += 1;
        Some(self.backoff.wait(attempt, outcome, moment.random))
    }

    fn given_up(&mut self) {
        self.retries = self.retries.saturating_sub(1);
    }

    fn over(&mut self) {
        self.active = self.active.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOMENT: Moment = Moment { now: Duration::ZERO, random: 0.5 };

    fn retries_of(active: u64) -> usize {
        let mut budget = Envoy::new(Backoff::ENVOY);
        for _ in 0..active {
            budget.first(MOMENT);
        }
        (0..active).filter(|_| budget.retry(MOMENT, 1, Outcome::Unavailable).is_some()).count()
    }

    #[test]
    fn a_fifth_of_the_requests_may_be_retried_at_a_time_or_three() {
        assert_eq!((retries_of(2), retries_of(10), retries_of(100)), (2, 3, 20));
    }

    #[test]
    fn a_retry_that_ends_makes_room() {
        let mut budget = Envoy::new(Backoff::ENVOY);
        for _ in 0..4 {
            budget.first(MOMENT);
        }
        let ask = |budget: &mut Envoy| budget.retry(MOMENT, 1, Outcome::Unavailable).is_some();
        assert_eq!([0; 4].map(|_| ask(&mut budget)), [true, true, true, false]);
        budget.ended(MOMENT, 2, Outcome::Success);
        budget.over();
        assert!(ask(&mut budget));
    }
}
