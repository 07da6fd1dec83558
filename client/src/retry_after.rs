//! `Retry-After` (RFC 9110, 10.2.3): how long a dependency asks to be left alone.

use std::time::{Duration, SystemTime};

use damper_protocol::MAX_DURATION_MS;
use fastrand::Rng;

use crate::backoff::uniform;

/// The longest pause that is kept, 366 days: no longer one fits a message, and a caller can add it to any clock.
pub(crate) const LONGEST: Duration = Duration::from_millis(MAX_DURATION_MS);

/// Reads one header value: seconds in ASCII digits, or an HTTP date counted from `now`.
///
/// A date in the past is zero, and more than 366 days are [`LONGEST`]; what cannot be read is `None`, which is not the same: the caller then goes by
/// its own backoff alone.
pub(crate) fn parse(value: &[u8], now: SystemTime) -> Option<Duration> {
    let text = std::str::from_utf8(value).ok()?.trim_matches([' ', '\t']);
    let pause = digits(text).map(Duration::from_secs).or_else(|| date(text, now))?;
    Some(pause.min(LONGEST))
}

/// A whole number, saturating; `str::parse` would take a sign.
pub(crate) fn digits(text: &str) -> Option<u64> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let add =
        |sum: u64, digit: u8| sum.saturating_mul(10).saturating_add(u64::from(digit.wrapping_sub(b'0')));
    Some(text.bytes().fold(0, add))
}

fn date(text: &str, now: SystemTime) -> Option<Duration> {
    let at = httpdate::parse_http_date(text).or_else(|_| httpdate::parse_http_date(&without_leap(text)));
    Some(at.ok()?.duration_since(now).unwrap_or_default())
}

/// The last second of a minute stands for a leap second, which the date parser does not know.
fn without_leap(text: &str) -> String {
    text.replacen(":60 ", ":59 ", 1)
}

/// The wait that a header asks for, with jitter on top: never below the header, so that a fleet that was given
/// one number does not come back as one.
pub(crate) fn jittered(header: Duration, rng: &mut Rng) -> Duration {
    let most = (header / 10).min(Duration::from_secs(1));
    header.saturating_add(uniform(most, rng))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Sun, 06 Nov 1994 08:49:37 GMT.
    fn now() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777)
    }

    #[test]
    fn valid_values() {
        let forty_digits = "9".repeat(40);
        let year = LONGEST.as_secs();
        let cases: &[(&str, u64)] = &[
            ("0", 0),
            ("1", 1),
            ("007", 7),
            (" \t12 \t", 12),
            ("31622400", year),
            ("31622401", year),
            ("18446744073709551615", year),
            (&forty_digits, year),
            ("Sun, 06 Nov 1994 08:49:37 GMT", 0),
            ("Sun, 06 Nov 1994 08:50:07 GMT", 30),
            ("Sunday, 06-Nov-94 08:50:07 GMT", 30),
            ("Sun Nov  6 08:50:07 1994", 30),
            ("Sun, 06 Nov 1994 08:49:60 GMT", 22),
            ("Fri, 31 Dec 1993 23:59:59 GMT", 0),
            ("Fri, 31 Dec 9999 23:59:59 GMT", year),
        ];
        for (value, seconds) in cases {
            assert_eq!(parse(value.as_bytes(), now()), Some(Duration::from_secs(*seconds)), "{value:?}");
        }
    }

    /// Two digits of a year: up to 69 they are of this century, and the day of the week tells whether that is right.
    #[test]
    fn the_window_of_two_digit_years() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_793_955_007 - 30);
        let cases: [(&str, Option<u64>); 6] = [
            ("Friday, 06-Nov-26 08:50:07 GMT", Some(30)),
            ("Friday, 06-Nov-37 08:50:07 GMT", Some(LONGEST.as_secs())),
            ("Wednesday, 06-Nov-69 08:50:07 GMT", Some(LONGEST.as_secs())),
            ("Friday, 06-Nov-70 08:50:07 GMT", Some(0)),
            ("Sunday, 06-Nov-94 08:50:07 GMT", Some(0)),
            ("Saturday, 06-Nov-26 08:50:07 GMT", None),
        ];
        for (value, seconds) in cases {
            assert_eq!(parse(value.as_bytes(), now), seconds.map(Duration::from_secs), "{value}");
        }
    }

    #[test]
    fn b01_invalid_values_are_absent() {
        let mut cases: Vec<Vec<u8>> = [
            "",
            " ",
            "-5",
            "+5",
            "1.5",
            "120.5",
            "5s",
            "0x5",
            "1e3",
            "1e10000",
            "５",
            "NaN",
            "inf",
            "-3",
            "5, 10",
            "1994-11-06T08:49:37Z",
            "Sun, 06 Nov 1994 08:49:37",
            "Mon, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 UTC",
            "Sun, 06 Nov 1994 08:49:37 +0000",
            "Sun, 6 Nov 1994 8:49:37 GMT",
            "sun, 06 nov 1994 08:50:07 gmt",
            "SUN, 06 NOV 1994 08:50:07 GMT",
            "sunday, 06-nov-94 08:50:07 gmt",
        ]
        .iter()
        .map(|text| text.as_bytes().to_vec())
        .collect();
        cases.push(vec![0xff, 0xfe]);
        cases.push("é".as_bytes().to_vec());
        for value in cases {
            assert_eq!(parse(&value, now()), None, "{:?}", String::from_utf8_lossy(&value));
        }
    }

    proptest! {
        #[test]
        fn no_value_panics(value: Vec<u8>) {
            let _ = parse(&value, now());
        }

        #[test]
        fn jitter_is_added_and_bounded(seconds: u64, seed: u64) {
            let header = Duration::from_secs(seconds);
            let wait = jittered(header, &mut fastrand::Rng::with_seed(seed));
            prop_assert!(wait >= header);
            prop_assert!(wait - header <= (header / 10).min(Duration::from_secs(1)));
        }
    }
}
