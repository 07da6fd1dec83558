//! A client that decides by itself whether to retry, by a rule.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::rules::{Moment, Rule};
use super::{Operation, Wire};
use crate::measure::{Outcome, Refusal};

/// A client with a rule. Several clients may share one: their budget is then the fleet's.
#[derive(Debug)]
pub struct Alone {
    wire: Wire,
    rule: Arc<Mutex<dyn Rule>>,
    seed: u64,
}

impl Alone {
    /// A client that follows `rule`; `seed` fixes its jitter.
    #[must_use]
    pub const fn new(wire: Wire, rule: Arc<Mutex<dyn Rule>>, seed: u64) -> Self {
        Self { wire, rule, seed }
    }

    /// The way to the dependency.
    #[must_use]
    pub const fn wire(&self) -> &Wire {
        &self.wire
    }

    /// Carries out an operation; returns whether it succeeded.
    pub async fn carry_out(&self, operation: &Operation) -> bool {
        let mut random = fastrand::Rng::with_seed(self.seed ^ operation.number().rotate_left(32));
        if !self.rule.lock().first(self.moment(&mut random)) {
            self.wire.recorder().refused(Refusal::Shed, "throttled");
            return false;
        }
        let success = self.attempts(operation, &mut random).await;
        self.rule.lock().over();
        success
    }

    async fn attempts(&self, operation: &Operation, random: &mut fastrand::Rng) -> bool {
        let mut attempt = 1;
        loop {
            let outcome = self.wire.attempt(operation, attempt).await;
            self.rule.lock().ended(self.moment(random), attempt, outcome);
            if !outcome.is_retryable() || attempt >= self.wire.max_attempts() {
                return outcome == Outcome::Success;
            }
            let Some(wait) = self.wait(operation, attempt, outcome, random) else { return false };
            tokio::time::sleep(wait).await;
            attempt += 1;
        }
    }

    /// How long to wait before the next attempt, if there may be one.
    fn wait(
        &self,
        operation: &Operation,
        attempt: u32,
        outcome: Outcome,
        random: &mut fastrand::Rng,
    ) -> Option<Duration> {
        let recorder = self.wire.recorder();
        let Some(wait) = self.rule.lock().retry(self.moment(random), attempt, outcome) else {
            recorder.refused(Refusal::Shed, "over_budget");
            return None;
        };
        if wait >= operation.time_left() {
            self.rule.lock().given_up();
            recorder.refused(Refusal::Expired, "deadline_too_short");
            return None;
        }
        Some(wait)
    }

    fn moment(&self, random: &mut fastrand::Rng) -> Moment {
        Moment { now: self.wire.recorder().now(), random: random.f64() }
    }
}
