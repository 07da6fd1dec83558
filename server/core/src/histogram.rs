//! Durations in buckets that double: 1 ms, 2 ms, 4 ms ... 65 536 ms, and everything above.

use crate::Span;
use crate::units::scale;

/// Buckets of a [`Histogram`]: 17 upper bounds and the rest.
pub const BUCKETS: usize = 18;

/// Counts of durations by bucket; bucket `n` holds those of at most `2^n` milliseconds.
pub type Histogram = [u64; BUCKETS];

/// The upper bound of a bucket in milliseconds; [`None`] for the last, which has none.
#[must_use]
pub const fn bound_ms(bucket: usize) -> Option<u64> {
    if bucket + 1 < BUCKETS { Some(1 << bucket) } else { None }
}

/// The bucket that a duration belongs to.
#[must_use]
pub fn bucket(span: Span) -> usize {
    (0..BUCKETS - 1).find(|bucket| span <= Span::from_millis(1 << bucket)).unwrap_or(BUCKETS - 1)
}

/// How many durations there are.
#[must_use]
pub fn count(counts: &Histogram) -> u64 {
    counts.iter().fold(0, |sum, count| sum.saturating_add(*count))
}

/// The ninetieth percentile in microseconds, interpolated within its bucket; [`None`] of nothing. The last
/// bucket counts as twice its lower bound.
#[must_use]
pub fn p90_us(counts: &Histogram) -> Option<u64> {
    let rank = scale(count(counts), 9, 10).max(1);
    let mut below = 0_u64;
    for (bucket, count) in counts.iter().enumerate() {
        if below.saturating_add(*count) >= rank && *count > 0 {
            let upper = 1000_u64 << bucket;
            let lower = if bucket == 0 { 0 } else { upper / 2 };
            return Some(lower + scale(upper - lower, rank - below, *count));
        }
        below = below.saturating_add(*count);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_percentile_lies_in_its_bucket() {
        let mut counts = Histogram::default();
        assert_eq!(p90_us(&counts), None);
        counts[3] = 90;
        counts[10] = 10;
        assert_eq!(p90_us(&counts), Some(8000), "the last of those up to 8 ms");
        counts[10] = 30;
        let p90 = p90_us(&counts).unwrap();
        assert!((512_000..=1_024_000).contains(&p90), "{p90}");
        assert!(p90_us(&[u64::MAX; BUCKETS]).is_some(), "nothing overflows");
    }

    #[test]
    fn a_duration_belongs_to_the_first_bucket_that_is_not_below_it() {
        let of_nanos = |nanos| bucket(Span::from_nanos(nanos));
        assert_eq!([0, 1_000_000, 1_000_001, 2_000_000].map(of_nanos), [0, 0, 1, 1]);
        assert_eq!([65_536_000_000, 65_536_000_001, u64::MAX].map(of_nanos), [16, 17, 17]);
    }

    #[test]
    fn bounds_double_and_the_last_has_none() {
        assert_eq!((bound_ms(0), bound_ms(16), bound_ms(17)), (Some(1), Some(65_536), None));
    }
}
