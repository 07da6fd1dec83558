//! The standard retry mode of the AWS SDKs, as smithy-rs has it.

use std::time::Duration;

use super::{Backoff, Backoffs, Moment, Rule};
use crate::measure::Outcome;

const FULL: u64 = 500;

/// A token bucket that starts full. A first attempt that succeeds brings one token back, a retry that succeeds what
/// it cost.
#[derive(Debug)]
pub struct Aws {
    tokens: u64,
    costs: Costs,
    transient: Backoff,
    throttled: Backoff,
}

#[derive(Debug)]
struct Costs {
    transient: u64,
    timeout: u64,
    throttled: u64,
}

impl Aws {
    /// Version 2.0: 5 tokens, 10 for timeouts; waits from 1 s.
    #[must_use]
    pub const fn v2_0(backoffs: Backoffs) -> Self {
        let wait = backoffs.or(Backoff::aws(1000.0));
        let costs = Costs { transient: 5, timeout: 10, throttled: 5 };
        Self { tokens: FULL, costs, transient: wait, throttled: wait }
    }

    /// Version 2.1: 14 tokens, 5 where throttled; waits from 50 ms, from 1 s where throttled.
    #[must_use]
    pub const fn v2_1(backoffs: Backoffs) -> Self {
        let costs = Costs { transient: 14, timeout: 14, throttled: 5 };
        let (transient, throttled) = (backoffs.or(Backoff::aws(50.0)), backoffs.or(Backoff::aws(1000.0)));
        Self { tokens: FULL, costs, transient, throttled }
    }
}

impl Rule for Aws {
    fn ended(&mut self, _: Moment, attempt: u32, outcome: Outcome) {
        if outcome == Outcome::Success {
            // What the last failure was is not kept; most are transient.
            let reward = if attempt > 1 { self.costs.transient } else { 1 };
            self.tokens = (self.tokens + reward).min(FULL);
        }
    }

    fn retry(&mut self, moment: Moment, attempt: u32, outcome: Outcome) -> Option<Duration> {
        let (cost, backoff) = match outcome {
            Outcome::Timeout => (self.costs.timeout, self.transient),
            Outcome::RateLimited(_) => (self.costs.throttled, self.throttled),
            _ => (self.costs.transient, self.transient),
        };
        self.tokens = self.tokens.checked_sub(cost)?;
        Some(backoff.wait(attempt, outcome, moment.random))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOMENT: Moment = Moment { now: Duration::ZERO, random: 0.5 };

    fn free_retries(mut bucket: Aws, outcome: Outcome) -> usize {
        (0..1000).filter(|_| bucket.retry(MOMENT, 1, outcome).is_some()).count()
    }

    #[test]
    fn the_bucket_starts_full() {
        assert_eq!(free_retries(Aws::v2_0(Backoffs::Own), Outcome::Unavailable), 100);
        assert_eq!(free_retries(Aws::v2_0(Backoffs::Own), Outcome::Timeout), 50);
        assert_eq!(free_retries(Aws::v2_1(Backoffs::Own), Outcome::Unavailable), 35);
        assert_eq!(free_retries(Aws::v2_1(Backoffs::Own), Outcome::RateLimited(None)), 100);
    }

    #[test]
    fn a_retry_that_succeeds_has_cost_nothing() {
        let mut bucket = Aws::v2_1(Backoffs::None);
        bucket.retry(MOMENT, 1, Outcome::Unavailable);
        bucket.ended(MOMENT, 2, Outcome::Success);
        assert_eq!(free_retries(bucket, Outcome::Unavailable), 35);
    }
}
