//! A breaker in each client, as in Brooker's comparison of retry policies (2022): retries stop while a tenth of the
//! client's attempts fail.

use std::time::Duration;

use super::window::Window;
use super::{Backoff, Moment, Rule};
use crate::measure::Outcome;

const WINDOW: Duration = Duration::from_secs(10);
const SLICES: u32 = 10;
const SHARE: f64 = 0.1;

/// The breaker. First attempts always pass.
#[derive(Debug)]
pub struct Breaker {
    ended: Window,
    failed: Window,
    backoff: Backoff,
}

impl Breaker {
    /// A breaker that has seen nothing.
    #[must_use]
    pub fn new(backoff: Backoff) -> Self {
        Self { ended: Window::new(WINDOW, SLICES), failed: Window::new(WINDOW, SLICES), backoff }
    }
}

impl Rule for Breaker {
    fn ended(&mut self, moment: Moment, _: u32, outcome: Outcome) {
        self.ended.add(moment.now, 1.0);
        if outcome.is_retryable() {
            self.failed.add(moment.now, 1.0);
        }
    }

    fn retry(&mut self, moment: Moment, attempt: u32, outcome: Outcome) -> Option<Duration> {
        let closed = self.failed.sum(moment.now) < SHARE * self.ended.sum(moment.now);
        closed.then(|| self.backoff.wait(attempt, outcome, moment.random))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_stop_while_a_tenth_fails() {
        let mut breaker = Breaker::new(Backoff::NONE);
        let at = |s| Moment { now: Duration::from_secs(s), random: 0.5 };
        for _ in 0..19 {
            breaker.ended(at(0), 1, Outcome::Success);
        }
        breaker.ended(at(0), 1, Outcome::Unavailable);
        assert!(breaker.retry(at(0), 1, Outcome::Unavailable).is_some());
        breaker.ended(at(0), 2, Outcome::Unavailable);
        breaker.ended(at(0), 1, Outcome::Unavailable);
        assert_eq!(breaker.retry(at(0), 1, Outcome::Unavailable), None, "3 of 22");
    }
}
