//! HTTP statuses.

use std::time::{Duration, SystemTime};

use damper_protocol::{Dispatch, FailureClass as Class};
use http::{HeaderMap, StatusCode, header};

use crate::{Failure, context, retry_after};

/// A status alone: all that is left of a response in some errors.
pub(crate) fn from_status(status: StatusCode) -> Option<Failure> {
    let code = status.as_u16();
    let (class, retried) = match code {
        200..=299 | 304 => return None,
        300..=399 => (Class::Semantic, true),
        400 | 405 | 406 | 411 | 413..=417 | 422 | 426 | 431 => (Class::Invalid, true),
        401 | 403 | 407 | 451 => (Class::Permission, true),
        404 | 409 | 410 | 412 | 423 | 424 | 428 => (Class::Semantic, true),
        408 | 421 | 425 | 502 | 503 | 504 => (Class::Transient, true),
        429 | 509 | 529 => (Class::RateLimited, true),
        500 | 520..=524 | 530 => (Class::Transient, false),
        400..=499 => (Class::Invalid, true),
        _ => (Class::Fatal, true),
    };
    let dispatch = match class {
        _ if matches!(code, 421 | 425) => Dispatch::NotProcessed,
        // An answer about the request itself: its effect, if any, is known.
        Class::Invalid | Class::Permission | Class::Semantic => Dispatch::Processed,
        _ => Dispatch::Ambiguous,
    };
    let failure = Failure::new(class).with_dispatch(dispatch).with_code(code.to_string());
    Some(if retried { failure } else { failure.never_retried() })
}

/// A whole response head.
pub(crate) fn from_response(status: StatusCode, headers: &HeaderMap, now: SystemTime) -> Option<Failure> {
    let mut failure = from_status(status)?;
    if matches!(status.as_u16(), 408 | 413 | 429 | 500 | 502 | 503 | 504 | 509 | 529) {
        failure.retry_after = longest_retry_after(headers, now);
    }
    if status == StatusCode::PAYLOAD_TOO_LARGE && failure.retry_after.is_some() {
        failure.class = Class::Transient;
    }
    match context::retry_directive(headers) {
        Some(false) => failure.do_not_retry = true,
        Some(true) => lift(&mut failure),
        None => {}
    }
    Some(failure)
}

/// The dependency knows better what its failure means; whether a repeat does harm is another question.
fn lift(failure: &mut Failure) {
    failure.do_not_retry = false;
    if failure.class != Class::RateLimited {
        failure.class = Class::Transient;
    }
}

fn longest_retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let date = headers.get(header::DATE).and_then(|date| httpdate::parse_http_date(date.to_str().ok()?).ok());
    let now = date.unwrap_or(now);
    let values = headers.get_all(header::RETRY_AFTER).iter();
    values.filter_map(|value| retry_after::parse(value.as_bytes(), now)).max()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn status(code: u16) -> StatusCode {
        StatusCode::from_u16(code).unwrap()
    }

    fn response(code: u16, headers: &[(&'static str, &str)]) -> Option<Failure> {
        let headers =
            headers.iter().map(|(name, value)| ((*name).parse().unwrap(), value.parse().unwrap())).collect();
        from_response(status(code), &headers, SystemTime::UNIX_EPOCH)
    }

    /// The whole table of statuses: what is not listed is checked to be `Invalid` or `Fatal`.
    #[test]
    fn every_status_has_its_class() {
        let table: &[(Class, &[u16])] = &[
            (Class::Invalid, &[400, 405, 406, 411, 413, 414, 415, 416, 417, 422, 426, 431, 418, 499]),
            (Class::Permission, &[401, 403, 407, 451]),
            (Class::Semantic, &[301, 302, 307, 308, 404, 409, 410, 412, 423, 424, 428]),
            (Class::Transient, &[408, 421, 425, 500, 502, 503, 504, 520, 521, 522, 523, 524, 530]),
            (Class::RateLimited, &[429, 529, 509]),
            (Class::Fatal, &[501, 505, 506, 507, 508, 510, 511, 525, 526, 598, 599, 600, 999, 100]),
        ];
        for (class, codes) in table {
            for code in *codes {
                assert_eq!(from_status(status(*code)).unwrap().class, *class, "{code}");
            }
        }
        for code in [200, 201, 204, 206, 207, 304] {
            assert_eq!(from_status(status(code)), None, "{code}");
        }
        let listed: Vec<u16> = table.iter().flat_map(|(_, codes)| *codes).copied().collect();
        for code in (400..=599).filter(|code| !listed.contains(code)) {
            let expected = if code < 500 { Class::Invalid } else { Class::Fatal };
            assert_eq!(from_status(status(code)).unwrap().class, expected, "{code}");
        }
    }

    #[test]
    fn only_misdirected_and_too_early_requests_are_known_to_be_unprocessed() {
        for code in (100..=999).filter(|code| from_status(status(*code)).is_some()) {
            let unprocessed = from_status(status(code)).unwrap().had_no_effect();
            assert_eq!(unprocessed, matches!(code, 421 | 425), "{code}");
        }
    }

    #[test]
    fn only_failures_of_the_dependency_leave_the_effect_unknown() {
        for code in (100..=999).filter(|code| from_status(status(*code)).is_some()) {
            let failure = from_status(status(code)).unwrap();
            let unknown = matches!(failure.class, Class::Transient | Class::RateLimited | Class::Fatal);
            assert_eq!(
                failure.dispatch == Dispatch::Ambiguous,
                unknown && !matches!(code, 421 | 425),
                "{code}"
            );
        }
    }

    #[test]
    fn contested_statuses_are_vetoed() {
        let vetoed: Vec<u16> = (100..=999)
            .filter(|code| from_status(status(*code)).is_some_and(|failure| failure.do_not_retry))
            .collect();
        assert_eq!(vetoed, [500, 520, 521, 522, 523, 524, 530]);
    }

    #[test]
    fn retry_after_counts_only_where_it_has_a_meaning() {
        for code in [408, 413, 429, 500, 503] {
            let failure = response(code, &[("retry-after", "7")]).unwrap();
            assert_eq!(failure.retry_after, Some(Duration::from_secs(7)), "{code}");
        }
        for code in [301, 401, 404, 501] {
            assert_eq!(response(code, &[("retry-after", "7")]).unwrap().retry_after, None, "{code}");
        }
        assert_eq!(response(201, &[("retry-after", "7")]), None);
    }

    #[test]
    fn too_large_is_transient_only_with_retry_after() {
        assert_eq!(response(413, &[]).unwrap().class, Class::Invalid);
        assert_eq!(response(413, &[("retry-after", "junk")]).unwrap().class, Class::Invalid);
        assert_eq!(response(413, &[("retry-after", "1")]).unwrap().class, Class::Transient);
    }

    #[test]
    fn the_largest_valid_of_several_headers_wins() {
        let mut headers = HeaderMap::new();
        for value in ["3", "junk", "9", "5"] {
            headers.append(header::RETRY_AFTER, HeaderValue::from_static(value));
        }
        let failure = from_response(status(503), &headers, SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(failure.retry_after, Some(Duration::from_secs(9)));
    }

    #[test]
    fn dates_count_from_the_response_s_own_clock() {
        let until = ("retry-after", "Sun, 06 Nov 1994 08:50:07 GMT");
        let cases = [("Sun, 06 Nov 1994 08:49:37 GMT", 30), ("Sun, 06 Nov 1994 09:49:37 GMT", 0)];
        for (date, seconds) in cases {
            let failure = response(503, &[until, ("date", date)]).unwrap();
            assert_eq!(failure.retry_after, Some(Duration::from_secs(seconds)), "{date}");
        }
        let by_local_clock = response(503, &[until, ("date", "yesterday")]).unwrap();
        assert_eq!(by_local_clock.retry_after, Some(Duration::from_secs(784_111_807)));
    }

    #[test]
    fn the_response_can_veto() {
        assert!(response(503, &[("x-should-retry", "false")]).unwrap().do_not_retry);
        assert!(response(503, &[("damper-retry", "no")]).unwrap().do_not_retry);
        assert!(!response(503, &[("x-should-retry", "junk")]).unwrap().do_not_retry);
        assert!(
            !response(503, &[("x-should-retry", "false"), ("stripe-should-retry", "true")])
                .unwrap()
                .do_not_retry
        );
    }

    #[test]
    fn the_response_can_lift_its_class_and_not_its_effect() {
        let lifted = response(409, &[("x-should-retry", "true")]).unwrap();
        assert_eq!((lifted.class, lifted.dispatch), (Class::Transient, Dispatch::Processed));
        let lifted = response(500, &[("x-should-retry", "true")]).unwrap();
        assert!(!lifted.do_not_retry);
        assert_eq!(response(200, &[("x-should-retry", "true")]), None);
    }
}
