//! The flaky dependency as a state machine over `now`, which is always the time since it started.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use super::AccountLimit;
use crate::scenario::{Dependency, Phase, Spread};
use crate::units::whole;

/// What becomes of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is worked off and answered at that moment.
    Answered {
        /// When.
        at: Duration,
        /// How.
        reply: Reply,
    },
    /// 503 at once: the queue is full.
    QueueFull,
    /// 429 at once: the account is over its limit.
    Limited {
        /// The Retry-After.
        retry_after_s: u64,
    },
}

/// What a dependency says that has done its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// 200.
    Good,
    /// 503: its own failure.
    Failed,
    /// 200 with a wrong answer.
    Wrong,
}

/// The dependency's state.
#[derive(Debug)]
pub struct Model {
    dependency: Dependency,
    seed: u64,
    poison_share: f64,
    account: Option<AccountLimit>,
    busy_until: Duration,
    /// When the attempts under way end; kept only if their number matters.
    under_way: BinaryHeap<Reverse<Duration>>,
}

/// Draws about the same attempt that must not depend on each other.
mod about {
    pub(super) const REPLY: u64 = 0;
    pub(super) const LATENCY: u64 = 0x6c61_7465_6e63_7900;
    pub(super) const POISON: u64 = 0x706f_6973_6f6e_0000;
}

impl Model {
    /// A dependency that nobody has called yet.
    #[must_use]
    pub fn new(dependency: &Dependency, seed: u64) -> Self {
        Self {
            account: dependency.account.as_ref().map(AccountLimit::new),
            busy_until: Duration::ZERO,
            under_way: BinaryHeap::new(),
            dependency: dependency.clone(),
            seed,
            poison_share: 0.0,
        }
    }

    /// The same, with so large a share of operations whose attempts all fail.
    #[must_use]
    pub fn with_poison(self, poison_share: f64) -> Self {
        Self { poison_share, ..self }
    }

    /// Takes an attempt that arrives at `now`.
    pub fn arrive(&mut self, now: Duration, operation: u64, attempt: u32) -> Verdict {
        let phase = self.dependency.phase(now);
        let service_time = self.service_time(&phase);
        self.busy_until = self.busy_until.max(now);
        if let Some(Err(retry_after_s)) = self.account.as_mut().map(|account| account.take(now)) {
            self.busy_until += service_time.mul_f64(self.dependency.refusal_cost);
            return Verdict::Limited { retry_after_s };
        }
        if self.queued(now) >= self.dependency.queue_limit {
            self.busy_until += service_time.mul_f64(self.dependency.refusal_cost);
            return Verdict::QueueFull;
        }
        self.busy_until += service_time;
        let at = self.busy_until + self.latency(now, &phase, operation, attempt);
        if self.dependency.collapse_ms > 0 {
            self.under_way.push(Reverse(at));
        }
        Verdict::Answered { at, reply: self.reply(&phase, operation, attempt) }
    }

    /// Attempts that wait or are being worked off at `now`.
    #[must_use]
    pub fn queued(&self, now: Duration) -> u64 {
        let service_time = self.service_time(&self.dependency.phase(now));
        let attempts = self.busy_until.saturating_sub(now).as_secs_f64() / service_time.as_secs_f64();
        // An attempt that is partly worked off is still there; a rounding error is not.
        whole((attempts - 1e-6).ceil())
    }

    fn service_time(&self, phase: &Phase) -> Duration {
        Duration::from_secs_f64(1.0 / phase.capacity_per_s.unwrap_or(self.dependency.capacity_per_s))
    }

    fn latency(&mut self, now: Duration, phase: &Phase, operation: u64, attempt: u32) -> Duration {
        while self.under_way.peek().is_some_and(|Reverse(end)| *end <= now) {
            self.under_way.pop();
        }
        let base = Duration::from_millis(phase.latency_ms.unwrap_or(self.dependency.latency_ms));
        let base = match self.dependency.latency {
            Spread::Fixed => base,
            Spread::Exponential => {
                base.mul_f64(-(1.0 - draw(self.seed ^ about::LATENCY, operation, attempt)).ln())
            }
        };
        let crowd = u64::try_from(self.under_way.len()).unwrap_or(u64::MAX);
        base + Duration::from_millis(self.dependency.collapse_ms.saturating_mul(crowd))
    }

    fn reply(&self, phase: &Phase, operation: u64, attempt: u32) -> Reply {
        if draw(self.seed ^ about::POISON, operation, 0) < self.poison_share {
            return Reply::Failed;
        }
        let drawn = draw(self.seed ^ about::REPLY, operation, attempt);
        if drawn < phase.failure_share {
            Reply::Failed
        } else if drawn < phase.failure_share + phase.wrong_share {
            Reply::Wrong
        } else {
            Reply::Good
        }
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
    use crate::scenario::Account;

    fn dependency() -> Dependency {
        Dependency {
            name: "d".to_owned(),
            capacity_per_s: 100.0,
            queue_limit: 20,
            latency_ms: 30,
            latency: Spread::Fixed,
            collapse_ms: 0,
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
        let phase = |from_s, failure_share| Phase { from_s, failure_share, ..Phase::default() };
        let phases = vec![phase(0.0, 0.0), phase(10.0, 0.12), phase(1000.0, 1.0)];
        let flaky = Dependency { phases, capacity_per_s: 1000.0, ..dependency() };
        let failures = |seed, from_s: u64| -> Vec<u64> {
            let mut model = Model::new(&flaky, seed);
            (0..50_000_u64)
                .filter(|n| {
                    let now = Duration::from_secs(from_s) + ms(*n);
                    matches!(model.arrive(now, *n, 1), Verdict::Answered { reply: Reply::Failed, .. })
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

    #[test]
    fn latency_collapses_under_concurrency_and_recovers_when_the_crowd_has_gone() {
        let slow = Dependency { capacity_per_s: 1e5, latency_ms: 1000, collapse_ms: 10, ..dependency() };
        let mut model = Model::new(&Dependency { queue_limit: 1000, ..slow }, 1);
        let first = answered(model.arrive(ms(0), 0, 1));
        assert_eq!(first.as_millis(), 1000, "nobody else is there");
        for n in 1..100 {
            model.arrive(ms(0), n, 1);
        }
        assert_eq!(answered(model.arrive(ms(500), 100, 1)).as_millis(), 500 + 1000 + 10 * 100);
        assert_eq!(answered(model.arrive(ms(10_000), 101, 1)).as_millis(), 11_000);
    }

    #[test]
    fn exponential_latencies_have_their_mean() {
        let latency = Spread::Exponential;
        let wide = Dependency { capacity_per_s: 1e5, latency_ms: 100, latency, ..dependency() };
        let mut model = Model::new(&wide, 1);
        let took = |n: u64| answered(model.arrive(ms(n * 1000), n, 1)).as_secs_f64() - n as f64;
        let mean = (0..10_000).map(took).sum::<f64>() / 10_000.0;
        assert!((mean - 0.1).abs() < 0.004, "four standard errors: {mean}");
    }

    #[test]
    fn a_phase_may_slow_it_down_and_cut_its_capacity() {
        let brown =
            Phase { from_s: 10.0, capacity_per_s: Some(10.0), latency_ms: Some(500), ..Phase::default() };
        let mut model = Model::new(&Dependency { phases: vec![brown], ..dependency() }, 1);
        assert_eq!(answered(model.arrive(ms(0), 0, 1)), ms(40));
        assert_eq!(answered(model.arrive(ms(10_000), 1, 1)), ms(10_600));
    }

    #[test]
    fn a_poisoned_operation_fails_in_every_attempt_and_a_wrong_answer_is_no_failure() {
        let wrong = Phase { wrong_share: 0.5, ..Phase::default() };
        let wide = Dependency { capacity_per_s: 1e5, phases: vec![wrong], ..dependency() };
        let mut model = Model::new(&wide, 1).with_poison(0.1);
        let mut reply = |operation, attempt| match model.arrive(ms(operation * 10), operation, attempt) {
            Verdict::Answered { reply, .. } => reply,
            other => panic!("{other:?}"),
        };
        let replies: Vec<[Reply; 3]> =
            (0..2000).map(|operation| [1, 2, 3].map(|attempt| reply(operation, attempt))).collect();
        let poisoned = replies.iter().filter(|replies| replies[0] == Reply::Failed).count();
        assert!((150..=250).contains(&poisoned), "{poisoned}");
        for replies in replies {
            assert!(replies[0] != Reply::Failed || replies == [Reply::Failed; 3], "{replies:?}");
        }
    }
}
