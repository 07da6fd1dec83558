//! Token buckets: each client's own as Brooker (2022) has it, and one for the whole fleet.

use std::time::Duration;

use super::{Backoff, Moment, Rule};
use crate::measure::Outcome;

const PER_CALL: f64 = 0.1;

/// A bucket of retry tokens.
#[derive(Debug)]
pub struct Bucket {
    tokens: f64,
    most: f64,
    /// Refill beside the deposits.
    per_s: f64,
    refilled: Duration,
    /// Whether calls deposit when they start, and not when they succeed.
    on_start: bool,
    backoff: Backoff,
}

impl Bucket {
    /// A client's own: a tenth of a token for each call that starts, five tokens at most, full at the start.
    #[must_use]
    pub const fn own(backoff: Backoff) -> Self {
        Self { tokens: 5.0, most: 5.0, per_s: 0.0, refilled: Duration::ZERO, on_start: true, backoff }
    }

    /// The fleet's: a tenth of a token for each first attempt that succeeds and ten per second beside them, a hundred
    /// tokens at most.
    #[must_use]
    pub const fn shared(backoff: Backoff) -> Self {
        let (per_s, most) = (10.0, 100.0);
        Self { tokens: most, most, per_s, refilled: Duration::ZERO, on_start: false, backoff }
    }

    fn deposit(&mut self, tokens: f64) {
        self.tokens = (self.tokens + tokens).min(self.most);
    }
}

impl Rule for Bucket {
    fn first(&mut self, _: Moment) -> bool {
        if self.on_start {
            self.deposit(PER_CALL);
        }
        true
    }

    fn ended(&mut self, _: Moment, attempt: u32, outcome: Outcome) {
        if !self.on_start && attempt == 1 && outcome == Outcome::Success {
            self.deposit(PER_CALL);
        }
    }

    fn retry(&mut self, moment: Moment, attempt: u32, outcome: Outcome) -> Option<Duration> {
        let passed = moment.now.saturating_sub(self.refilled);
        self.refilled = self.refilled.max(moment.now);
        self.deposit(passed.as_secs_f64() * self.per_s);
        if self.tokens < 1.0 {
            return None;
        }
        self.tokens -= 1.0;
        Some(self.backoff.wait(attempt, outcome, moment.random))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: u64) -> Moment {
        Moment { now: Duration::from_secs(s), random: 0.5 }
    }

    fn spend(bucket: &mut Bucket, s: u64) -> usize {
        (0..1000).filter(|_| bucket.retry(at(s), 1, Outcome::Unavailable).is_some()).count()
    }

    #[test]
    fn a_tenth_of_the_calls_pays_for_retries_up_to_a_cap() {
        let mut bucket = Bucket::own(Backoff::NONE);
        assert_eq!(spend(&mut bucket, 0), 5);
        for _ in 0..31 {
            bucket.first(at(0));
        }
        assert_eq!(spend(&mut bucket, 1), 3);
        for _ in 0..1000 {
            bucket.first(at(1));
        }
        assert_eq!(spend(&mut bucket, 100), 5);
    }

    #[test]
    fn the_fleets_bucket_is_fed_by_successes_and_by_time() {
        let mut bucket = Bucket::shared(Backoff::NONE);
        assert_eq!(spend(&mut bucket, 0), 100);
        assert_eq!(spend(&mut bucket, 1), 10);
        for _ in 0..21 {
            bucket.first(at(1));
            bucket.ended(at(1), 1, Outcome::Success);
            bucket.ended(at(1), 2, Outcome::Success);
        }
        assert_eq!(spend(&mut bucket, 1), 2);
    }
}
