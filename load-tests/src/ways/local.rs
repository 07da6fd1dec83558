//! The way `local`: each client retries by itself, with backoff and jitter, and knows nothing of the others.

use std::time::Duration;

use super::{Operation, Wire};
use crate::measure::{Outcome, Refusal};
use crate::scenario::LocalRetries;

/// A client with its own retries.
#[derive(Debug)]
pub struct Local {
    wire: Wire,
    retries: LocalRetries,
    seed: u64,
}

impl Local {
    /// A client that retries so; `seed` fixes its jitter.
    #[must_use]
    pub const fn new(wire: Wire, retries: LocalRetries, seed: u64) -> Self {
        Self { wire, retries, seed }
    }

    /// The way to the dependency.
    #[must_use]
    pub const fn wire(&self) -> &Wire {
        &self.wire
    }

    /// Carries out an operation; returns whether it succeeded.
    pub async fn carry_out(&self, operation: &Operation) -> bool {
        let mut random = fastrand::Rng::with_seed(self.seed ^ operation.number().rotate_left(32));
        let mut attempt = 1;
        loop {
            let outcome = self.wire.attempt(operation, attempt).await;
            if outcome == Outcome::Success {
                return true;
            }
            if attempt >= self.retries.max_attempts {
                return false;
            }
            let wait = wait(&self.retries, attempt, outcome, random.f64());
            if wait >= operation.time_left() {
                self.wire.recorder().refused(Refusal::Expired, "deadline_too_short");
                return false;
            }
            tokio::time::sleep(wait).await;
            attempt += 1;
        }
    }
}

/// The wait after failed attempt `attempt`; `random` is in [0, 1).
fn wait(retries: &LocalRetries, attempt: u32, outcome: Outcome, random: f64) -> Duration {
    let exponent = i32::try_from(attempt.saturating_sub(1)).unwrap_or(i32::MAX);
    let backoff_ms = (retries.base_ms as f64 * retries.factor.powi(exponent)).min(retries.cap_ms as f64);
    let jittered_ms = if retries.jitter { backoff_ms * random } else { backoff_ms };
    let backoff = Duration::from_secs_f64(jittered_ms / 1000.0);
    match outcome {
        Outcome::RateLimited(Some(floor)) if retries.honour_retry_after => backoff.max(floor),
        _ => backoff,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_backoff_doubles_up_to_its_cap() {
        let retries = LocalRetries { jitter: false, ..LocalRetries::default() };
        let waits = [1, 2, 3, 4, 5, 6, 4000].map(|n| wait(&retries, n, Outcome::Timeout, 0.5).as_millis());
        assert_eq!(waits, [100, 200, 400, 800, 1600, 2000, 2000]);
    }

    #[test]
    fn full_jitter_draws_between_zero_and_the_backoff() {
        let retries = LocalRetries::default();
        assert_eq!(wait(&retries, 2, Outcome::Timeout, 0.0), Duration::ZERO);
        assert_eq!(wait(&retries, 2, Outcome::Timeout, 0.5), Duration::from_millis(100));
    }

    #[test]
    fn retry_after_is_a_floor_where_it_is_honoured() {
        let limited = Outcome::RateLimited(Some(Duration::from_secs(3)));
        let honours = LocalRetries { honour_retry_after: true, ..LocalRetries::default() };
        assert_eq!(wait(&honours, 1, limited, 0.5), Duration::from_secs(3));
        assert_eq!(wait(&LocalRetries::default(), 1, limited, 0.5), Duration::from_millis(50));
    }
}
