//! Durations on the wire: whole milliseconds, bounded.

use std::time::Duration;

use damper_protocol::MAX_DURATION_MS;

/// Rounded up: for what must not come early.
pub(crate) fn ms_up(duration: Duration) -> u64 {
    let ms = duration.as_nanos().div_ceil(1_000_000);
    u64::try_from(ms).unwrap_or(u64::MAX).min(MAX_DURATION_MS)
}

/// Rounded down: for what must not come late.
pub(crate) fn ms_down(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).min(MAX_DURATION_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_never_favours_the_client_and_never_overflows() {
        let cases = [(0, 0, 0), (1, 1, 0), (1_000_000, 1, 1), (1_000_001, 2, 1)];
        for (nanos, up, down) in cases {
            let duration = Duration::from_nanos(nanos);
            assert_eq!((ms_up(duration), ms_down(duration)), (up, down), "{nanos}");
        }
        assert_eq!((ms_up(Duration::MAX), ms_down(Duration::MAX)), (MAX_DURATION_MS, MAX_DURATION_MS));
    }
}
