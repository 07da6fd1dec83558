//! How much time a request leaves, in the words of several kinds of clients. All are relative: no two clocks
//! have to agree.

use std::time::Duration;

use http::{HeaderMap, HeaderName};

/// Turns one header's value into the time that is left.
type Reading = fn(&str) -> Option<Duration>;

const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

const RECOGNISED: [(HeaderName, Reading); 5] = [
    (super::TIMEOUT, millis),
    (GRPC_TIMEOUT, grpc),
    (HeaderName::from_static("x-envoy-expected-rq-timeout-ms"), millis),
    (HeaderName::from_static("connect-timeout-ms"), millis),
    (HeaderName::from_static("x-stainless-timeout"), seconds),
];

/// The least time that any header leaves, and how many cannot be read: such a one is ignored, never endless.
pub(super) fn read(headers: &HeaderMap) -> (Option<Duration>, u32) {
    let (mut least, mut malformed) = (None::<Duration>, 0_u32);
    for (name, reading) in RECOGNISED {
        for value in headers.get_all(name) {
            match value.to_str().ok().and_then(|text| reading(text.trim_matches([' ', '\t']))) {
                Some(left) => least = Some(least.map_or(left, |least| least.min(left))),
                None => malformed = malformed.saturating_add(1),
            }
        }
    }
    (least, malformed)
}

/// The time that a request of gRPC says it has, if it can be read.
pub(crate) fn grpc_timeout(headers: &HeaderMap) -> Option<Duration> {
    headers.get(GRPC_TIMEOUT)?.to_str().ok().and_then(grpc)
}

fn millis(text: &str) -> Option<Duration> {
    digits(text, 19).map(Duration::from_millis)
}

/// A fraction is cut off.
fn seconds(text: &str) -> Option<Duration> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    digits(fraction, 19)?;
    digits(whole, 19).map(Duration::from_secs)
}

/// At most eight digits and a unit.
fn grpc(text: &str) -> Option<Duration> {
    let number = text.get(..text.len().checked_sub(1)?)?;
    let amount = digits(number, 8)?;
    match text.as_bytes().last()? {
        b'H' => Some(Duration::from_secs(amount.saturating_mul(3600))),
        b'M' => Some(Duration::from_secs(amount.saturating_mul(60))),
        b'S' => Some(Duration::from_secs(amount)),
        b'm' => Some(Duration::from_millis(amount)),
        b'u' => Some(Duration::from_micros(amount)),
        b'n' => Some(Duration::from_nanos(amount)),
        _ => None,
    }
}

fn digits(text: &str, most: usize) -> Option<u64> {
    let well_formed = (1..=most).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    well_formed.then(|| text.parse().ok()).flatten()
}
