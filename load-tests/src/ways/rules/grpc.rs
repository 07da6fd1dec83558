//! gRPC's `retryThrottling` (gRFC A6).

use std::time::Duration;

use super::{Backoff, Moment, Rule};
use crate::measure::Outcome;

/// The document's example: `maxTokens` 10, `tokenRatio` 0.1. In thousandths, as the document keeps them.
const MOST: u64 = 10_000;
const PER_SUCCESS: u64 = 100;
const PER_FAILURE: u64 = 1_000;

/// A count of tokens; retries stop while no more than half of them are left.
#[derive(Debug)]
pub struct Grpc {
    tokens: u64,
    backoff: Backoff,
}

impl Grpc {
    /// A full count.
    #[must_use]
    pub const fn new(backoff: Backoff) -> Self {
        Self { tokens: MOST, backoff }
    }
}

impl Rule for Grpc {
    fn ended(&mut self, _: Moment, _: u32, outcome: Outcome) {
        self.tokens = match outcome {
            Outcome::Success => (self.tokens + PER_SUCCESS).min(MOST),
            Outcome::Wrong => self.tokens,
            _ => self.tokens.saturating_sub(PER_FAILURE),
        };
    }

    fn retry(&mut self, moment: Moment, attempt: u32, outcome: Outcome) -> Option<Duration> {
        (self.tokens > MOST / 2).then(|| self.backoff.wait(attempt, outcome, moment.random))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fifth_failure_stops_retries_and_ten_successes_make_up_for_one() {
        let mut throttling = Grpc::new(Backoff::NONE);
        let moment = Moment { now: Duration::ZERO, random: 0.5 };
        let fail = |throttling: &mut Grpc| {
            throttling.ended(moment, 1, Outcome::Unavailable);
            throttling.retry(moment, 1, Outcome::Unavailable).is_some()
        };
        let allowed: Vec<bool> = (0..6).map(|_| fail(&mut throttling)).collect();
        assert_eq!(allowed, [true, true, true, true, false, false]);
        for _ in 0..30 {
            throttling.ended(moment, 1, Outcome::Success);
        }
        assert!(fail(&mut throttling), "4 + 3 - 1 are more than 5");
    }
}
