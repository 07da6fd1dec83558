//! Retries while no server answers: a small local budget that a fleet of any size can afford to multiply.
//!
//! The rate changes with every sync and with the traffic, and a bucket that is built anew for each rate starts
//! full. That would be a burst at the worst moment; so the rate is an argument here, and the state one number.

use std::{
    collections::VecDeque,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use damper_protocol::Emergency;
use fastrand::Rng;

use crate::{backoff::nanos, clock::Moment};

/// Most retries per second of one process on one dependency, whatever the server or the traffic would allow.
const MAX_PER_S: f64 = 1.0;

/// Retries per recent successful first attempt, where the server has not said otherwise.
const DEFAULT_RATIO: f64 = 0.1;

/// How long the last known share outlives the server's word when the dependency was in trouble then.
const FADE: Duration = Duration::from_secs(30);

/// The span over which successful first attempts are averaged.
pub(crate) const SUCCESSES_OVER: Duration = Duration::from_secs(10);

/// A token bucket of one token whose rate is given with each use. A refusal writes nothing.
#[derive(Debug, Default)]
pub(crate) struct Bucket {
    /// The moment up to which its tokens have been taken.
    taken_up_to_ns: AtomicU64,
}

impl Bucket {
    /// Takes a token if one has been earned at `per_s` tokens per second. What is earned beyond it counts for
    /// less than another token, just enough to keep the rate exact.
    pub(crate) fn take(&self, now: Moment, per_s: f64) -> bool {
        let Some(interval_ns) = interval_ns(per_s) else { return false };
        let now_ns = nanos(now);
        let spend = |taken_up_to_ns: u64| {
            let excess_ns = now_ns.checked_sub(taken_up_to_ns)?.checked_sub(interval_ns)?;
            Some(now_ns.saturating_sub(excess_ns.min(interval_ns.saturating_sub(1))))
        };
        self.taken_up_to_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, spend).is_ok()
    }

    /// Leaves a random part of a token at most. A thousand clients that lose their server in the same moment must
    /// not have a thousand tokens saved up between them. False if no token can be earned at this rate at all.
    pub(crate) fn drain(&self, now: Moment, per_s: f64, rng: &mut Rng) -> bool {
        let Some(interval_ns) = interval_ns(per_s) else { return false };
        let kept_ns = rng.u64(0..interval_ns);
        self.taken_up_to_ns.fetch_max(nanos(now).saturating_sub(kept_ns), Ordering::Relaxed);
        true
    }
}

/// The time that one token takes; `None` for rates at which none ever comes.
fn interval_ns(per_s: f64) -> Option<u64> {
    let interval = Duration::try_from_secs_f64(per_s.recip()).ok()?;
    (per_s > 0.0).then(|| nanos(interval).max(1))
}

/// The rate at which this process may retry while no server answers.
///
/// `fading_for` is how long the server has been silent, given only if the dependency was in trouble when it
/// was last heard.
pub(crate) fn rate_per_s(
    share: Option<Emergency>,
    first_successes_per_s: f64,
    fading_for: Option<Duration>,
) -> f64 {
    let ratio = share.map_or(DEFAULT_RATIO, |share| sane(share.ratio).min(1.0));
    let share = share.map_or(MAX_PER_S, |share| sane(share.per_s));
    let fade = fading_for.map_or(1.0, |age| 1.0 - (age.as_secs_f64() / FADE.as_secs_f64()).min(1.0));
    share.min(ratio * sane(first_successes_per_s)).min(MAX_PER_S) * fade
}

/// A number from a peer: anything that is not a rate is none.
fn sane(number: f64) -> f64 {
    if number.is_finite() { number.max(0.0) } else { 0.0 }
}

/// The recent rate of a count that only rises.
#[derive(Debug)]
pub(crate) struct Recent {
    span: Duration,
    samples: VecDeque<(Moment, u64)>,
}

impl Recent {
    pub(crate) fn new(span: Duration, now: Moment) -> Self {
        Self { span, samples: VecDeque::from([(now, 0)]) }
    }

    /// Takes note of the count, at most once a second, so that memory stays constant.
    pub(crate) fn sample(&mut self, now: Moment, count: u64) {
        if self.samples.back().is_none_or(|(at, _)| now.saturating_sub(*at) >= Duration::from_secs(1)) {
            self.samples.push_back((now, count));
        }
        let oldest_kept = now.saturating_sub(self.span);
        while self.samples.get(1).is_some_and(|(at, _)| *at <= oldest_kept) {
            self.samples.pop_front();
        }
    }

    /// The rate up to now. Less than a second of history counts as a second.
    pub(crate) fn per_s(&self, now: Moment, count: u64) -> f64 {
        let (since, base) = self.samples.front().copied().unwrap_or((now, count));
        let elapsed = now.saturating_sub(since).as_secs_f64().max(1.0);
        #[expect(clippy::cast_precision_loss, reason = "a rate needs no more than 52 bits")]
        let counted = count.saturating_sub(base) as f64;
        counted / elapsed
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn taken(bucket: &Bucket, per_s: f64, from_ms: u64, to_ms: u64, step_ms: usize) -> usize {
        (from_ms..to_ms).step_by(step_ms).filter(|ms| bucket.take(Duration::from_millis(*ms), per_s)).count()
    }

    #[test]
    fn the_sustained_rate_is_exact_whatever_the_demand() {
        for per_s in [1.0, 2.0, 5.0] {
            for step_ms in [1, 7, 33] {
                let bucket = Bucket::default();
                taken(&bucket, per_s, 0, 10_000, step_ms);
                let tokens = taken(&bucket, per_s, 10_000, 110_000, step_ms);
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
                let expected = (per_s * 100.0) as usize;
                assert!(tokens.abs_diff(expected) <= 1, "{per_s}/s every {step_ms} ms gave {tokens}");
            }
        }
    }

    #[test]
    fn an_hour_of_hammering_gets_the_rate_to_the_token() {
        for (per_s, expected) in [(1.0, 3600), (2.0, 7200), (5.0, 18_000)] {
            let bucket = Bucket::default();
            taken(&bucket, per_s, 0, 10_000, 3);
            let tokens = taken(&bucket, per_s, 10_000, 3_610_000, 3);
            assert!(tokens.abs_diff(expected) <= 1, "{per_s}/s gave {tokens}");
        }
    }

    #[test]
    fn a_year_saves_up_one_token() {
        let bucket = Bucket::default();
        let year = Duration::from_secs(366 * 86_400);
        assert_eq!((0..100).filter(|_| bucket.take(year, 1.0)).count(), 1);
    }

    #[test]
    fn a_raised_rate_frees_no_burst() {
        let bucket = Bucket::default();
        let later = Duration::from_secs(10);
        assert!(bucket.take(later, 0.1));
        assert_eq!((0..100).filter(|_| bucket.take(later, 1000.0)).count(), 0);
    }

    #[test]
    fn a_low_rate_does_not_outlive_itself() {
        let bucket = Bucket::default();
        assert!(bucket.drain(Duration::from_secs(1), 0.001, &mut fastrand::Rng::with_seed(1)));
        assert!(bucket.take(Duration::from_secs(2), 1.0));
    }

    #[test]
    fn a_fleet_that_loses_its_server_has_the_rate_and_no_burst() {
        let mut rng = fastrand::Rng::with_seed(11);
        let (lost_at, per_s) = (Duration::from_secs(1000), 0.07);
        let fleet: Vec<Bucket> = (0..1000).map(|_| Bucket::default()).collect();
        assert!(fleet.iter().all(|bucket| bucket.drain(lost_at, per_s, &mut rng)));
        let within = |seconds: u64| {
            let taken = |bucket: &&Bucket| bucket.take(lost_at + Duration::from_secs(seconds), per_s);
            fleet.iter().filter(taken).count()
        };
        let taken: usize = (0..=10).map(within).sum();
        assert!((600..=800).contains(&taken), "{taken} instead of 700");
    }

    #[test]
    fn b19_degenerate_rates_grant_nothing() {
        for per_s in [0.0, -1.0, f64::NAN, f64::NEG_INFINITY, f64::MIN_POSITIVE, -0.0] {
            assert!(!Bucket::default().take(Duration::from_secs(9), per_s), "{per_s}");
        }
    }

    #[test]
    fn the_rate_is_the_least_of_three() {
        let share = |per_s, ratio| Some(Emergency { per_s, ratio, ..Default::default() });
        let cases = [
            (None, 5.0, None, 0.5),
            (None, 500.0, None, 1.0),
            (None, 0.0, None, 0.0),
            (share(0.2, 0.1), 100.0, None, 0.2),
            (share(50.0, 0.1), 100.0, None, 1.0),
            (share(0.0, 0.1), 100.0, None, 0.0),
            (share(9.0, 0.05), 10.0, None, 0.5),
            (share(f64::NAN, f64::INFINITY), 10.0, None, 0.0),
            (None, 500.0, Some(15), 0.5),
            (None, 500.0, Some(30), 0.0),
            (None, 500.0, Some(3000), 0.0),
        ];
        for (share, successes, silent_s, expected) in cases {
            let rate = rate_per_s(share, successes, silent_s.map(Duration::from_secs));
            assert!((rate - expected).abs() < 1e-9, "{share:?} {successes} {silent_s:?}: {rate}");
        }
    }

    #[test]
    fn successes_count_for_ten_seconds() {
        let mut recent = Recent::new(SUCCESSES_OVER, Duration::ZERO);
        for second in 1..=20 {
            recent.sample(Duration::from_secs(second), second * 10);
        }
        assert!((recent.per_s(Duration::from_secs(20), 200) - 10.0).abs() < 1e-9);
        for second in 21..=35 {
            recent.sample(Duration::from_secs(second), 200);
        }
        assert!(recent.per_s(Duration::from_secs(35), 200) < 1e-9);
        assert!(recent.samples.len() <= 12);
    }

    proptest! {
        #[test]
        fn no_input_leaves_the_range(per_s: f64, ratio: f64, successes: f64, silent: u64) {
            let rate = rate_per_s(Some(Emergency { per_s, ratio, ..Default::default() }), successes, Some(Duration::from_secs(silent)));
            prop_assert!((0.0..=MAX_PER_S).contains(&rate));
        }
    }
}
