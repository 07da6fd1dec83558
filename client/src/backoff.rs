//! The one backoff: exponential with full jitter.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    time::Duration,
};

use fastrand::Rng;

/// Waits that double with every retry up to a cap, and the jitter that spreads a fleet over each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Backoff {
    pub(crate) base: Duration,
    pub(crate) cap: Duration,
}

impl Backoff {
    /// The longest wait before retry number `retry`, counted from 1.
    pub(crate) fn ceiling(self, retry: u32) -> Duration {
        let doublings = retry.saturating_sub(1);
        let factor = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX);
        self.base.saturating_mul(factor).min(self.cap)
    }

    /// A wait before retry number `retry`: uniform between nothing and the ceiling.
    pub(crate) fn delay(self, retry: u32, rng: &mut Rng) -> Duration {
        uniform(self.ceiling(retry), rng)
    }
}

/// A random source that no other process shares. The seed comes from the operating system: the generator's own is
/// made of the time and the thread, which a fleet that starts as one has in common.
pub(crate) fn fresh_rng() -> Rng {
    Rng::with_seed(RandomState::new().build_hasher().finish())
}

/// Uniform in [0, `most`].
pub(crate) fn uniform(most: Duration, rng: &mut Rng) -> Duration {
    Duration::from_nanos(rng.u64(0..=nanos(most)))
}

/// The whole nanoseconds of a duration, saturating after 584 years.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CALLS: Backoff = Backoff { base: Duration::from_millis(250), cap: Duration::from_secs(5) };

    #[test]
    fn the_ceiling_doubles_up_to_the_cap() {
        let ceilings: Vec<u128> = (1..=7).map(|retry| CALLS.ceiling(retry).as_millis()).collect();
        assert_eq!(ceilings, [250, 500, 1000, 2000, 4000, 5000, 5000]);
    }

    #[test]
    fn b06_no_retry_number_overflows() {
        for retry in [0, 1, 31, 32, 33, 62, 63, 64, 1023, 1024, 1025, u32::MAX] {
            let expected = if retry < 6 { CALLS.base } else { CALLS.cap };
            assert_eq!(CALLS.ceiling(retry), expected, "{retry}");
        }
    }

    #[test]
    fn the_mean_of_the_jitter_is_half_the_ceiling() {
        let mut rng = fastrand::Rng::with_seed(7);
        let total: Duration = (0..10_000).map(|_| CALLS.delay(3, &mut rng)).sum();
        let mean_ms = (total / 10_000).as_millis();
        assert!((485..=515).contains(&mean_ms), "{mean_ms}");
    }

    #[test]
    fn no_two_sources_agree() {
        let firsts: std::collections::HashSet<u64> = (0..1000).map(|_| fresh_rng().u64(..)).collect();
        assert_eq!(firsts.len(), 1000);
    }

    /// The largest distance of sorted samples in [0, 1] from the uniform distribution, times the root of their
    /// number (Kolmogorov, Smirnov): below 1.63 in 99 of 100 cases if they are uniform.
    fn kolmogorov_smirnov(mut samples: Vec<f64>) -> f64 {
        samples.sort_unstable_by(f64::total_cmp);
        #[expect(clippy::cast_precision_loss)]
        let count = samples.len() as f64;
        #[expect(clippy::cast_precision_loss)]
        let distance = |(index, sample): (usize, &f64)| {
            (sample - index as f64 / count).abs().max(((index + 1) as f64 / count - sample).abs())
        };
        samples.iter().enumerate().map(distance).fold(0.0, f64::max) * count.sqrt()
    }

    #[test]
    fn c2_full_jitter_is_uniform() {
        let mut rng = fastrand::Rng::with_seed(2026);
        for retry in [1, 3, 40] {
            let ceiling = CALLS.ceiling(retry).as_secs_f64();
            let samples = (0..10_000).map(|_| CALLS.delay(retry, &mut rng).as_secs_f64() / ceiling).collect();
            let distance = kolmogorov_smirnov(samples);
            assert!(distance < 1.63, "retry {retry}: {distance}");
        }
        let equal_jitter = (0..10_000).map(|_| 0.5 + rng.f64() / 2.0).collect();
        assert!(kolmogorov_smirnov(equal_jitter) > 10.0, "the test can tell");
    }

    #[test]
    fn c2_ten_thousand_attempts_of_a_thousand_set_ups_stay_in_bounds() {
        let mut rng = fastrand::Rng::with_seed(7);
        for _ in 0..1000 {
            let (base, cap) = (Duration::from_nanos(rng.u64(..)), Duration::from_nanos(rng.u64(..)));
            let backoff = Backoff { base: base / (1 << rng.u32(0..32)), cap: cap / (1 << rng.u32(0..32)) };
            let worst = (0..10_000).map(|retry| backoff.delay(retry, &mut rng)).max();
            assert!(worst <= Some(backoff.cap), "{backoff:?}");
        }
    }

    proptest! {
        #[test]
        fn b07_a_delay_never_exceeds_the_cap(
            base in 0..=u64::MAX, cap in 0..=u64::MAX, retry in 0..=u32::MAX, seed: u64,
        ) {
            let backoff = Backoff { base: Duration::from_nanos(base), cap: Duration::from_nanos(cap) };
            let delay = backoff.delay(retry, &mut fastrand::Rng::with_seed(seed));
            prop_assert!(delay <= backoff.cap);
            prop_assert!(delay <= backoff.ceiling(retry));
        }

        #[test]
        fn durations_beyond_nanoseconds_saturate(seconds: u64, retry in 0..2000_u32, seed: u64) {
            let backoff = Backoff { base: Duration::from_secs(seconds), cap: Duration::MAX };
            prop_assert!(backoff.delay(retry, &mut fastrand::Rng::with_seed(seed)) <= Duration::MAX);
        }
    }
}
