//! Layers that retry without knowing of damper, recognised by the headers that they leave.

use http::HeaderMap;

/// More than any layer makes: a higher number is nonsense, and would be counted as load.
const MOST: u32 = 100;

/// How many attempts of a request came before this one, by the headers of other layers.
pub(super) fn of_request(headers: &HeaderMap) -> u32 {
    let counted_from_one = number(headers, "x-envoy-attempt-count").saturating_sub(1);
    let counted_from_zero = ["grpc-previous-rpc-attempts", "armeria-retry-count", "x-stainless-retry-count"]
        .map(|name| number(headers, name));
    let amazon = amazon(headers).saturating_sub(1);
    counted_from_zero.into_iter().chain([counted_from_one, amazon]).max().unwrap_or(0)
}

/// How many attempts a proxy between us and the dependency made beyond our own.
pub(crate) fn of_response(headers: &HeaderMap) -> u32 {
    number(headers, "x-envoy-attempt-count").saturating_sub(1)
}

fn number(headers: &HeaderMap, name: &str) -> u32 {
    let text = headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    digits(text)
}

/// `attempt=2; max=3`.
fn amazon(headers: &HeaderMap) -> u32 {
    let text = headers.get("amz-sdk-request").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let attempt = text.split(';').find_map(|part| part.trim().strip_prefix("attempt="));
    digits(attempt.unwrap_or_default())
}

fn digits(text: &str) -> u32 {
    let text = text.trim();
    let plain = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|number| plain && *number <= MOST).unwrap_or(0)
}
