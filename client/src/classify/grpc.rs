//! gRPC statuses.

mod details;

use std::{error::Error, time::Duration};

use damper_protocol::{Dispatch, FailureClass as Class, FailureReason};
use http::{HeaderMap, StatusCode};

use super::{pause, rules::StatusRules, transport};
use crate::{Failure, clock, context, retry_after};

const NAMES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

const UNKNOWN: i32 = 2;
const UNAVAILABLE: i32 = 14;

/// A status as the other side sent it.
pub(crate) fn from_status(code: i32, metadata: &HeaderMap) -> Option<Failure> {
    let class = match code {
        0 => return None,
        4 | 13 | 14 => Class::Transient,
        8 => Class::RateLimited,
        3 | 11 => Class::Invalid,
        7 | 16 => Class::Permission,
        1 | 5 | 6 | 9 | 10 => Class::Semantic,
        _ => Class::Fatal,
    };
    let dispatch = match class {
        Class::Invalid | Class::Permission => Dispatch::Processed,
        Class::Semantic if code != 1 => Dispatch::Processed,
        _ => Dispatch::Ambiguous,
    };
    let name = usize::try_from(code).ok().and_then(|code| NAMES.get(code)).copied();
    let mut failure = Failure::new(class).with_dispatch(dispatch).with_code(name.unwrap_or("unknown_status"));
    failure.unclassified = name.is_none();
    if code == 4 {
        failure.reason = Some(FailureReason::Timeout);
    }
    let directive = context::retry_directive(metadata);
    if directive.retry == Some(false) {
        failure.veto();
    }
    failure.unread = directive.unread;
    let delay = metadata.get("grpc-status-details-bin").and_then(details::retry_delay);
    failure.retry_after = delay.map(|delay| delay.min(retry_after::LONGEST));
    match pushback(metadata) {
        Some(Ok(pause)) => failure.retry_after = failure.retry_after.max(Some(pause)),
        Some(Err(())) => failure.veto(),
        None => {}
    }
    Some(failure)
}

/// A status that a gRPC client has made of this error: what had no effect is proven by the error alone.
pub(crate) fn from_error(code: i32, metadata: &HeaderMap, error: &(dyn Error + 'static)) -> Option<Failure> {
    let failure = from_status(code, metadata)?;
    let below = super::find(error, transport::failure).filter(Failure::had_no_effect);
    Some(match below {
        Some(below) if failure.dispatch == Dispatch::Ambiguous => failure.with_dispatch(below.dispatch),
        _ => failure,
    })
}

/// A whole response: the trailers count, then the headers, then the HTTP status.
pub(crate) fn from_response(
    status: StatusCode,
    headers: &HeaderMap,
    trailers: Option<&HeaderMap>,
) -> Option<Failure> {
    for metadata in trailers.into_iter().chain([headers]) {
        if let Some(code) = code(metadata) {
            let failure = from_status(code, metadata)?;
            return Some(born_of_http(code, status, headers, failure));
        }
    }
    let code = stand_in(status);
    let failure = from_status(code, headers)?;
    Some(born_of_http(code, status, headers, failure))
}

/// What is no number is no code that anybody knows.
fn code(metadata: &HeaderMap) -> Option<i32> {
    let value = metadata.get("grpc-status")?;
    let number = value.to_str().ok().and_then(retry_after::digits);
    Some(number.and_then(|number| i32::try_from(number).ok()).unwrap_or(UNKNOWN))
}

/// The code for a response that has none, as the gRPC protocol maps it.
fn stand_in(status: StatusCode) -> i32 {
    match status.as_u16() {
        400 => 13,
        401 => 16,
        403 => 7,
        404 => 12,
        429 | 502 | 503 | 504 => UNAVAILABLE,
        _ => UNKNOWN,
    }
}

/// A code that a proxy's HTTP status was turned into says less than the status.
fn born_of_http(code: i32, status: StatusCode, headers: &HeaderMap, mut failure: Failure) -> Failure {
    let class = match (code, status.as_u16()) {
        (UNAVAILABLE | UNKNOWN, 429) => Class::RateLimited,
        (UNAVAILABLE | UNKNOWN, 503) => Class::Transient,
        _ => return failure,
    };
    let asked = pause::of(headers, StatusRules::new(), clock::wall());
    failure.class = class;
    failure.unread = failure.unread.saturating_add(asked.unread);
    failure.retry_after = failure.retry_after.max(asked.pause);
    failure
}

/// The pause that the server asks for; negative, junk and what no `i32` holds mean that it wants no retry.
fn pushback(metadata: &HeaderMap) -> Option<Result<Duration, ()>> {
    let value = metadata.get("grpc-retry-pushback-ms")?;
    let ms = value.to_str().ok().and_then(retry_after::digits).filter(|ms| i32::try_from(*ms).is_ok());
    Some(ms.map(Duration::from_millis).ok_or(()))
}

#[cfg(test)]
mod tests;
