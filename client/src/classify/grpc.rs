//! gRPC statuses.

use std::time::Duration;

use damper_protocol::{Dispatch, FailureClass as Class, FailureReason};
use http::HeaderMap;

use crate::{Failure, context};

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
    if code == 4 {
        failure.reason = Some(FailureReason::Timeout);
    }
    failure.do_not_retry = context::retry_directive(metadata) == Some(false);
    match pushback(metadata) {
        Some(Ok(pause)) => failure.retry_after = Some(pause),
        Some(Err(())) => failure.do_not_retry = true,
        None => {}
    }
    Some(failure)
}

/// The pause that the server asks for; negative, junk and what no `i32` holds mean that it wants no retry.
fn pushback(metadata: &HeaderMap) -> Option<Result<Duration, ()>> {
    let value = metadata.get("grpc-retry-pushback-ms")?;
    let ms =
        value.to_str().ok().and_then(|text| text.parse::<i32>().ok()).and_then(|ms| u64::try_from(ms).ok());
    Some(ms.map(Duration::from_millis).ok_or(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(code: i32, pushback: Option<&str>) -> Option<Failure> {
        let header = |text: &str| ("grpc-retry-pushback-ms".parse().unwrap(), text.parse().unwrap());
        from_status(code, &pushback.map(header).into_iter().collect())
    }

    #[test]
    fn every_code_has_its_class() {
        let table: &[(Class, &[i32])] = &[
            (Class::Transient, &[4, 13, 14]),
            (Class::RateLimited, &[8]),
            (Class::Invalid, &[3, 11]),
            (Class::Permission, &[7, 16]),
            (Class::Semantic, &[1, 5, 6, 9, 10]),
            (Class::Fatal, &[2, 12, 15, 17, 99, -1, i32::MAX, i32::MIN]),
        ];
        for (class, codes) in table {
            for code in *codes {
                assert_eq!(status(*code, None).unwrap().class, *class, "{code}");
            }
        }
        assert_eq!(status(0, Some("5")), None);
    }

    #[test]
    fn the_effect_of_a_refusal_is_known() {
        for code in 1..17 {
            let known = matches!(code, 3 | 5 | 6 | 7 | 9 | 10 | 11 | 16);
            assert_eq!(status(code, None).unwrap().dispatch == Dispatch::Processed, known, "{code}");
        }
    }

    #[test]
    fn pushback_is_a_pause_or_a_veto() {
        for (text, pause) in [("0", 0), ("7", 7), ("2147483647", 2_147_483_647)] {
            let failure = status(14, Some(text)).unwrap();
            assert_eq!(
                (failure.retry_after, failure.do_not_retry),
                (Some(Duration::from_millis(pause)), false)
            );
        }
        for text in ["-1", "junk", "2147483648", "1.5", ""] {
            let failure = status(14, Some(text)).unwrap();
            assert_eq!((failure.retry_after, failure.do_not_retry), (None, true), "{text:?}");
        }
    }
}
