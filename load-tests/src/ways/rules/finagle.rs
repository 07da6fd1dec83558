//! Finagle's `RetryBudget`, which Linkerd's service profiles and tower use too: a fifth of a window's deposits can be
//! spent, beside a reserve that is the same for every client.

use std::time::Duration;

use super::window::Window;
use super::{Moment, Rule};
use crate::measure::Outcome;

const WINDOW: Duration = Duration::from_secs(10);
const SLICES: u32 = 10;
/// What a retry costs in deposits: a budget of 20 %.
const COST: f64 = 5.0;
/// Ten retries per second, over the window.
const RESERVE: f64 = 10.0 * 10.0 * COST;
/// The share of the balance that one request may spend.
const PER_REQUEST: f64 = 0.2;

/// The budget with its defaults: 20 %, 10 per second, 10 s. Requests that succeed deposit. Requeues do not wait.
#[derive(Debug)]
pub struct Finagle {
    balance: Window,
}

impl Default for Finagle {
    fn default() -> Self {
        Self { balance: Window::new(WINDOW, SLICES) }
    }
}

impl Rule for Finagle {
    fn ended(&mut self, moment: Moment, _: u32, outcome: Outcome) {
        if outcome == Outcome::Success {
            self.balance.add(moment.now, 1.0);
        }
    }

    fn retry(&mut self, moment: Moment, attempt: u32, _: Outcome) -> Option<Duration> {
        let balance = self.balance.sum(moment.now) + RESERVE;
        let most = (PER_REQUEST * balance / COST).ceil();
        if balance < COST || f64::from(attempt) > most {
            return None;
        }
        self.balance.add(moment.now, -COST);
        Some(Duration::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Moment {
        Moment { now: Duration::from_millis(ms), random: 0.5 }
    }

    #[test]
    fn the_reserve_can_be_spent_at_once_and_again_after_the_window() {
        let mut budget = Finagle::default();
        let spend = |budget: &mut Finagle, ms| {
            (0..1000).filter(|_| budget.retry(at(ms), 1, Outcome::Unavailable).is_some()).count()
        };
        assert_eq!(spend(&mut budget, 0), 100);
        assert_eq!(spend(&mut budget, 9_999), 0);
        assert_eq!(spend(&mut budget, 10_000), 100);
    }

    #[test]
    fn five_successes_pay_for_a_retry() {
        let mut budget = Finagle::default();
        for _ in 0..100 {
            budget.retry(at(0), 1, Outcome::Unavailable);
        }
        for _ in 0..5 {
            assert_eq!(budget.retry(at(1), 1, Outcome::Unavailable), None);
            budget.ended(at(1), 1, Outcome::Success);
        }
        assert_eq!(budget.retry(at(1), 1, Outcome::Unavailable), Some(Duration::ZERO));
    }
}
