//! The flaky dependency as a state machine over `now`, which is always the time since it started.

use std::time::Duration;

use super::AccountLimit;
use crate::scenario::Dependency;
use crate::units::whole;

/// What becomes of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is worked off and answered at that moment: 200, or 503 for the dependency's own failure.
    Answered {
        /// When.
        at: Duration,
        /// Whether with 200.
        success: bool,
    },
    /// 503 at once: the queue is full.
    QueueFull,
    /// 429 at once: the account is over its limit.
    Limited {
        /// The Retry-After.
        retry_after_s: u64,
    },
}

/// The dependency's state.
#[derive(Debug)]
pub struct Model {
    dependency: Dependency,
    seed: u64,
    account: Option<AccountLimit>,
    service_time: Duration,
    busy_until: Duration,
}

impl Model {
    /// A dependency that nobody has called yet.
    #[must_use]
    pub fn new(dependency: &Dependency, seed: u64) -> Self {
        Self {
            account: dependency.account.as_ref().map(AccountLimit::new),
            service_time: Duration::from_secs_f64(1.0 / dependency.capacity_per_s),
            busy_until: Duration::ZERO,
            dependency: dependency.clone(),
            seed,
        }
    }

    /// Takes an attempt that arrives at `now`.
    pub fn arrive(&mut self, now: Duration, operation: u64, attempt: u32) -> Verdict {
        self.busy_until = self.busy_until.max(now);
        if let Some(Err(retry_after_s)) = self.account.as_mut().map(|account| account.take(now)) {
            self.pay_for_refusal();
            return Verdict::Limited { retry_after_s };
        }
        if self.queued(now) >= self.dependency.queue_limit {
            self.pay_for_refusal();
            return Verdict::QueueFull;
        }
        self.busy_until += self.service_time;
        let at = self.busy_until + Duration::from_millis(self.dependency.latency_ms);
        let share = self.dependency.failure_share(now);
        Verdict::Answered { at, success: draw(self.seed, operation, attempt) >= share }
    }

    /// Attempts that wait or are being worked off at `now`.
    #[must_use]
    pub fn queued(&self, now: Duration) -> u64 {
        let attempts = self.busy_until.saturating_sub(now).as_secs_f64() * self.dependency.capacity_per_s;
        // An attempt that is partly worked off is still there; a rounding error is not.
        whole((attempts - 1e-6).ceil())
    }

    fn pay_for_refusal(&mut self) {
        self.busy_until += self.service_time.mul_f64(self.dependency.refusal_cost);
    }
}

/// A number in [0, 1) that depends on nothing but its arguments (SplitMix64).
fn draw(seed: u64, operation: u64, attempt: u32) -> f64 {
    let mut bits = seed;
    for part in [operation, u64::from(attempt)] {
        bits = bits.wrapping_add(part).wrapping_add(0x9e37_79b9_7f4a_7c15);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
    }
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Account, Phase};

    fn dependency() -> Dependency {
        Dependency {
            name: "d".to_owned(),
            capacity_per_s: 100.0,
            queue_limit: 20,
            latency_ms: 30,
            refusal_cost: 0.0,
            account: None,
            phases: vec![],
        }
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn answered(verdict: Verdict) -> Duration {
        match verdict {
            Verdict::Answered { at, .. } => at,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn latency_grows_with_the_queue_until_it_is_full_and_falls_as_it_drains() {
        let mut model = Model::new(&dependency(), 1);
        for n in 0..20_u64 {
            assert_eq!(answered(model.arrive(ms(0), n, 1)), ms(30 + 10 * (n + 1)));
        }
        assert_eq!(model.arrive(ms(0), 20, 1), Verdict::QueueFull);
        assert_eq!(answered(model.arrive(ms(100), 21, 1)), ms(30 + 210), "ten are done, ten wait");
        assert_eq!(answered(model.arrive(ms(5000), 22, 1)), ms(5040), "idle time is not saved up");
    }

    #[test]
    fn capacity_bounds_what_is_answered_whatever_arrives() {
        let mut model = Model::new(&dependency(), 1);
        let answers =
            (0..3000_u64).filter(|n| matches!(model.arrive(ms(*n), *n, 1), Verdict::Answered { .. })).count();
        assert!((300..=321).contains(&answers), "100/s over 3 s and a queue of 20: {answers}");
    }

    #[test]
    fn refusals_take_their_share_of_the_capacity() {
        let answers = |refusal_cost| {
            let mut model = Model::new(&Dependency { refusal_cost, ..dependency() }, 1);
            (0..3000_u64).filter(|n| matches!(model.arrive(ms(*n), *n, 1), Verdict::Answered { .. })).count()
        };
        assert!(answers(0.05) < answers(0.0) * 7 / 10, "{} of {}", answers(0.05), answers(0.0));
    }

    #[test]
    fn failures_follow_the_seed_and_the_phase_alone() {
        let phases = vec![
            Phase { from_s: 0.0, failure_share: 0.0 },
            Phase { from_s: 10.0, failure_share: 0.12 },
            Phase { from_s: 1000.0, failure_share: 1.0 },
        ];
        let flaky = Dependency { phases, capacity_per_s: 1000.0, ..dependency() };
        let failures = |seed, from_s: u64| -> Vec<u64> {
            let mut model = Model::new(&flaky, seed);
            (0..50_000_u64)
                .filter(|n| {
                    let now = Duration::from_secs(from_s) + ms(*n);
                    matches!(model.arrive(now, *n, 1), Verdict::Answered { success: false, .. })
                })
                .collect()
        };
        assert_eq!(failures(1, 10), failures(1, 20), "the time within a phase does not matter");
        assert_ne!(failures(1, 10), failures(2, 10));
        let share = failures(1, 10).len() as f64 / 50_000.0;
        assert!((share - 0.12).abs() < 0.006, "four standard errors: {share}");
        assert_eq!(failures(1, 2000).len(), 50_000);
        assert!(Model::new(&flaky, 1).arrive(ms(9_999), 1, 1) != Verdict::QueueFull);
    }

    #[test]
    fn attempts_of_one_operation_fail_independently() {
        let both = (0..100_000).filter(|n| draw(1, *n, 1) < 0.2 && draw(1, *n, 2) < 0.2).count();
        assert!((3_750..=4_250).contains(&both), "0.2 x 0.2 of 100,000: {both}");
    }

    #[test]
    fn the_account_is_asked_before_the_queue() {
        let account = Some(Account { per_s: 5.0, window_ms: 1000, counts_refused: true });
        let mut model = Model::new(&Dependency { account, ..dependency() }, 1);
        for n in 0..5 {
            answered(model.arrive(ms(n), n, 1));
        }
        assert_eq!(model.arrive(ms(6), 6, 1), Verdict::Limited { retry_after_s: 1 });
        assert!(model.queued(ms(6)) <= 5, "a refusal is not queued");
    }
}
