//! Waits between attempts.

use std::time::Duration;

use super::{Moment, Rule};
use crate::measure::Outcome;
use crate::scenario::LocalRetries;

/// A wait that grows with every retry, and how it is spread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    base_ms: f64,
    factor: f64,
    cap_ms: f64,
    jitter: Jitter,
    honours_retry_after: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Jitter {
    None,
    /// Between nothing and the wait.
    Full,
    /// So large a share above and below the wait.
    Around(f64),
}

/// Whether rules wait as their originals do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backoffs {
    /// Each its own.
    Own,
    /// None of them waits.
    None,
}

impl Backoffs {
    /// The wait that is in force for a rule whose own is `own`.
    #[must_use]
    pub const fn or(self, own: Backoff) -> Backoff {
        match self {
            Self::Own => own,
            Self::None => Backoff::NONE,
        }
    }
}

impl Backoff {
    /// No wait.
    pub const NONE: Self =
        Self { base_ms: 0.0, factor: 1.0, cap_ms: 0.0, jitter: Jitter::None, honours_retry_after: false };

    /// gRFC A6's example: 100 ms, doubling up to a second, a fifth of jitter.
    pub const GRPC: Self = Self {
        base_ms: 100.0,
        factor: 2.0,
        cap_ms: 1000.0,
        jitter: Jitter::Around(0.2),
        honours_retry_after: false,
    };

    /// Envoy's default: 25 ms, doubling up to ten times that, full jitter.
    pub const ENVOY: Self =
        Self { base_ms: 25.0, factor: 2.0, cap_ms: 250.0, jitter: Jitter::Full, honours_retry_after: false };

    /// Full jitter, doubling from `base_ms` up to the AWS SDKs' cap of 20 s.
    #[must_use]
    pub const fn aws(base_ms: f64) -> Self {
        Self { base_ms, factor: 2.0, cap_ms: 20_000.0, jitter: Jitter::Full, honours_retry_after: false }
    }

    /// That of a scenario's `[local]`.
    #[must_use]
    pub fn of(local: &LocalRetries) -> Self {
        Self {
            base_ms: local.base_ms as f64,
            factor: local.factor,
            cap_ms: local.cap_ms as f64,
            jitter: if local.jitter { Jitter::Full } else { Jitter::None },
            honours_retry_after: local.honour_retry_after,
        }
    }

    /// The wait after failed attempt `attempt`; `random` is in [0, 1).
    #[must_use]
    pub fn wait(&self, attempt: u32, outcome: Outcome, random: f64) -> Duration {
        let exponent = i32::try_from(attempt.saturating_sub(1)).unwrap_or(i32::MAX);
        let full_ms = (self.base_ms * self.factor.powi(exponent)).min(self.cap_ms);
        let spread_ms = match self.jitter {
            Jitter::None => full_ms,
            Jitter::Full => full_ms * random,
            Jitter::Around(share) => full_ms * (1.0 + share * (2.0 * random - 1.0)),
        };
        let backoff = Duration::from_secs_f64(spread_ms / 1000.0);
        match outcome {
            Outcome::RateLimited(Some(floor)) if self.honours_retry_after => backoff.max(floor),
            _ => backoff,
        }
    }
}

/// A client that waits and retries, and has no budget.
impl Rule for Backoff {
    fn retry(&mut self, moment: Moment, attempt: u32, outcome: Outcome) -> Option<Duration> {
        Some(self.wait(attempt, outcome, moment.random))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local(change: impl FnOnce(&mut LocalRetries)) -> Backoff {
        let mut retries = LocalRetries::default();
        change(&mut retries);
        Backoff::of(&retries)
    }

    #[test]
    fn the_backoff_doubles_up_to_its_cap() {
        let backoff = local(|retries| retries.jitter = false);
        let waits = [1, 2, 3, 4, 5, 6, 4000].map(|n| backoff.wait(n, Outcome::Timeout, 0.5).as_millis());
        assert_eq!(waits, [100, 200, 400, 800, 1600, 2000, 2000]);
    }

    #[test]
    fn jitter_draws_below_the_backoff_or_around_it() {
        let full = local(|_| {});
        assert_eq!(full.wait(2, Outcome::Timeout, 0.0), Duration::ZERO);
        assert_eq!(full.wait(2, Outcome::Timeout, 0.5), Duration::from_millis(100));
        let waits = [0.0, 0.5, 0.999_999].map(|random| Backoff::GRPC.wait(1, Outcome::Timeout, random));
        assert_eq!(waits.map(|wait| wait.as_millis()), [80, 100, 119]);
    }

    #[test]
    fn retry_after_is_a_floor_where_it_is_honoured() {
        let limited = Outcome::RateLimited(Some(Duration::from_secs(3)));
        let honours = local(|retries| retries.honour_retry_after = true);
        assert_eq!(honours.wait(1, limited, 0.5), Duration::from_secs(3));
        assert_eq!(local(|_| {}).wait(1, limited, 0.5), Duration::from_millis(50));
    }
}
