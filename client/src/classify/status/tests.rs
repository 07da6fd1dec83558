use std::time::{Duration, SystemTime};

use damper_protocol::MAX_DURATION_MS;
use http::{HeaderMap, HeaderValue, header};

use super::*;
use crate::{Classifier, Outcome, Verdict};

fn status(code: u16) -> StatusCode {
    StatusCode::from_u16(code).unwrap()
}

fn of(code: u16) -> Option<Failure> {
    from_status(status(code), StatusRules::new())
}

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        headers.append(*name, value.parse().unwrap());
    }
    headers
}

/// What a dependency with these rules means, at the start of time.
fn by(rules: StatusRules, code: u16, pairs: &[(&'static str, &str)]) -> Option<Failure> {
    rules.failure_at(status(code), &headers(pairs), SystemTime::UNIX_EPOCH)
}

fn response(code: u16, pairs: &[(&'static str, &str)]) -> Option<Failure> {
    by(StatusRules::new(), code, pairs)
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
            assert_eq!(of(*code).unwrap().class, *class, "{code}");
        }
    }
    for code in [200, 201, 204, 206, 207, 304] {
        assert_eq!(of(code), None, "{code}");
    }
    let listed: Vec<u16> = table.iter().flat_map(|(_, codes)| *codes).copied().collect();
    for code in (400..=599).filter(|code| !listed.contains(code)) {
        let expected = if code < 500 { Class::Invalid } else { Class::Fatal };
        assert_eq!(of(code).unwrap().class, expected, "{code}");
    }
}

#[test]
fn only_misdirected_and_too_early_requests_are_known_to_be_unprocessed() {
    for code in (100..=999).filter(|code| of(*code).is_some()) {
        let unprocessed = of(code).unwrap().had_no_effect();
        assert_eq!(unprocessed, matches!(code, 421 | 425), "{code}");
    }
}

#[test]
fn only_failures_of_the_dependency_leave_the_effect_unknown() {
    for code in (100..=999).filter(|code| of(*code).is_some()) {
        let failure = of(code).unwrap();
        let unknown = matches!(failure.class, Class::Transient | Class::RateLimited | Class::Fatal);
        assert_eq!(failure.dispatch == Dispatch::Ambiguous, unknown && !matches!(code, 421 | 425), "{code}");
    }
}

#[test]
fn contested_statuses_are_not_retried() {
    let vetoed: Vec<u16> =
        (100..=999).filter(|code| of(*code).is_some_and(|failure| failure.do_not_retry)).collect();
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
    let failure = StatusRules::new().failure_at(status(503), &headers, SystemTime::UNIX_EPOCH).unwrap();
    assert_eq!(failure.retry_after, Some(Duration::from_secs(9)));
}

/// The dependency's clock, and the pause until 08:50:07 by it. The local clock says 08:49:37.
#[test]
fn dates_count_from_the_response_s_own_clock_if_it_is_one() {
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
    let cases = [
        ("Sun, 06 Nov 1994 08:49:37 GMT", 30),
        ("Sun, 06 Nov 1994 08:50:00 GMT", 7),
        ("Sun, 06 Nov 1994 09:49:37 GMT", 0),
        ("Sat, 05 Nov 1994 08:49:37 GMT", 86_430),
        ("Mon, 07 Nov 1994 08:49:37 GMT", 0),
        // From here on the local clock counts.
        ("Sat, 05 Nov 1994 08:49:36 GMT", 30),
        ("Mon, 07 Nov 1994 08:49:38 GMT", 30),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 30),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 30),
        ("yesterday", 30),
        ("", 30),
    ];
    for (date, seconds) in cases {
        let headers = headers(&[("retry-after", "Sun, 06 Nov 1994 08:50:07 GMT"), ("date", date)]);
        let failure = StatusRules::new().failure_at(status(503), &headers, now).unwrap();
        assert_eq!(failure.retry_after, Some(Duration::from_secs(seconds)), "{date}");
        assert_eq!(failure.unread, 0, "a date says nothing about retries");
    }
}

#[test]
fn the_response_can_veto() {
    assert!(response(503, &[("x-should-retry", "false")]).unwrap().do_not_retry);
    assert!(response(503, &[("damper-retry", "no")]).unwrap().do_not_retry);
    assert!(!response(503, &[("x-should-retry", "junk")]).unwrap().do_not_retry);
    assert!(
        !response(503, &[("x-should-retry", "false"), ("stripe-should-retry", "true")]).unwrap().do_not_retry
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

#[test]
fn what_stands_in_no_table_is_counted_and_never_retried() {
    for code in [418, 420, 498, 499, 512, 527, 598, 599, 600, 999, 100] {
        let failure = of(code).unwrap();
        let retried = matches!(failure.class, Class::Transient | Class::RateLimited);
        assert!(failure.unclassified && !retried, "{code}");
    }
    for code in [301, 400, 404, 429, 500, 501, 503, 522, 526] {
        assert!(!of(code).unwrap().unclassified, "{code}");
    }
}

/// What a rejection says about its request: the headers, the dispatch, whether it is vetoed.
#[test]
fn a_nack_marker_proves_that_nothing_was_done() {
    use Dispatch::{Ambiguous, NotProcessed};
    let rules = StatusRules::new();
    let unprocessed = rules.unprocessed_rejections();
    type Case = (StatusRules, u16, &'static [(&'static str, &'static str)], Dispatch, bool);
    let cases: &[Case] = &[
        (rules, 429, &[], Ambiguous, false),
        (rules, 503, &[], Ambiguous, false),
        (rules, 429, &[("finagle-http-nack", "true")], NotProcessed, false),
        (rules, 503, &[("finagle-http-nack", "true")], NotProcessed, false),
        (rules, 503, &[("finagle-http-nonretryable-nack", "true")], NotProcessed, true),
        (
            rules,
            503,
            &[("finagle-http-nonretryable-nack", "true"), ("x-should-retry", "true")],
            NotProcessed,
            true,
        ),
        (rules, 503, &[("finagle-http-nack", "true"), ("x-should-retry", "true")], NotProcessed, false),
        (rules, 503, &[("x-envoy-overloaded", "true")], NotProcessed, false),
        (rules, 503, &[("x-envoy-overloaded", " false ")], Ambiguous, false),
        (rules, 502, &[("x-envoy-overloaded", "true")], Ambiguous, false),
        (rules, 504, &[("finagle-http-nack", "true")], Ambiguous, false),
        (unprocessed, 429, &[], NotProcessed, false),
        (unprocessed, 509, &[], NotProcessed, false),
        (unprocessed, 529, &[], NotProcessed, false),
        (unprocessed, 503, &[], Ambiguous, false),
        (unprocessed, 429, &[("x-should-retry", "false")], NotProcessed, true),
    ];
    for (rules, code, pairs, dispatch, vetoed) in cases {
        let failure = by(*rules, *code, pairs).unwrap();
        assert_eq!((failure.dispatch, failure.do_not_retry), (*dispatch, *vetoed), "{code} {pairs:?}");
    }
}

/// What each opt-in changes: class, dispatch, veto with it; and that nothing changes without it.
#[test]
fn what_a_dependency_does_differently_is_opted_in() {
    type Row = (Class, Dispatch, bool);
    type Case =
        (fn(StatusRules) -> StatusRules, &'static [u16], &'static [(&'static str, &'static str)], Row);
    let (ambiguous, processed) = (Dispatch::Ambiguous, Dispatch::Processed);
    let pause: &[(&str, &str)] = &[("retry-after", "7")];
    let cases: &[Case] = &[
        (StatusRules::limited_403, &[403], pause, (Class::RateLimited, ambiguous, false)),
        (StatusRules::keyed_conflicts, &[409], &[], (Class::Transient, ambiguous, false)),
        (
            StatusRules::gateway_errors,
            &[520, 521, 522, 523, 524, 530],
            &[],
            (Class::Transient, ambiguous, false),
        ),
        (StatusRules::internal_errors, &[500], &[], (Class::Transient, ambiguous, false)),
    ];
    for (opt_in, codes, pairs, row) in cases {
        for code in *codes {
            let told = by(opt_in(StatusRules::new()), *code, pairs).unwrap();
            assert_eq!((told.class, told.dispatch, told.do_not_retry), *row, "{code}");
            assert_ne!(response(*code, pairs), Some(told), "{code}");
        }
    }
    let all = StatusRules::new().limited_403().keyed_conflicts().gateway_errors().internal_errors();
    let unchanged: &[(u16, Row)] = &[
        (403, (Class::Permission, processed, false)),
        (401, (Class::Permission, processed, false)),
        (404, (Class::Semantic, processed, false)),
        (422, (Class::Invalid, processed, false)),
        (525, (Class::Fatal, ambiguous, false)),
        (526, (Class::Fatal, ambiguous, false)),
    ];
    for (code, row) in unchanged {
        let told = by(all, *code, &[]).unwrap();
        assert_eq!((told.class, told.dispatch, told.do_not_retry), *row, "{code}");
    }
    assert_eq!(by(all, 401, pause).unwrap().retry_after, None);
}

/// The pause of a 503 by its headers, and how many headers could not be read.
#[test]
fn pauses_come_from_three_kinds_of_headers() {
    let (whole, exact) = (StatusRules::new(), StatusRules::new().millisecond_headers());
    type Case = (StatusRules, &'static [(&'static str, &'static str)], Option<u64>, u32);
    let cases: &[Case] = &[
        (whole, &[], None, 0),
        (whole, &[("retry-after", "2")], Some(2000), 0),
        (whole, &[("retry-after", "junk"), ("retry-after", "-1")], None, 2),
        (whole, &[("retry-after-ms", "250")], None, 0),
        (exact, &[("retry-after-ms", "250")], Some(250), 0),
        (exact, &[("x-ms-retry-after-ms", "250")], Some(250), 0),
        (exact, &[("x-amz-retry-after", "250")], Some(250), 0),
        (exact, &[("retry-after-ms", "250"), ("x-ms-retry-after-ms", "300")], Some(300), 0),
        (exact, &[("retry-after-ms", "250"), ("retry-after", "1")], Some(250), 0),
        (exact, &[("retry-after-ms", "1.5"), ("retry-after", "1")], Some(1000), 1),
        (exact, &[("retry-after-ms", "99999999999999999999")], Some(MAX_DURATION_MS), 0),
        (whole, &[("ratelimit", "\"burst\";r=0;t=18446744073709551615")], Some(MAX_DURATION_MS), 0),
        (whole, &[("ratelimit", "\"burst\";r=0;t=30")], Some(30_000), 0),
        (whole, &[("ratelimit", "\"a;t=9,\\\"\";r=0;t=30, \"day\";r=0;t=60")], Some(60_000), 0),
        (whole, &[("ratelimit", "\"burst\";r=0;t=3"), ("ratelimit", "\"day\";r=4;t=600")], Some(3000), 0),
        (whole, &[("ratelimit", "\"burst\";r=1;t=30")], None, 0),
        (whole, &[("ratelimit", "\"burst\";t=30")], Some(30_000), 0),
        (whole, &[("ratelimit", "\"burst\";r=0;t=-3")], None, 0),
        (whole, &[("ratelimit", "limit=10, remaining=0, reset=7")], None, 0),
        (whole, &[("ratelimit", "\"burst\";r=0;t=30"), ("retry-after", "40")], Some(40_000), 0),
        (whole, &[("ratelimit", "\"burst\";r=0;t=30"), ("retry-after", "4")], Some(4000), 0),
        (whole, &[("ratelimit", "\"burst\";r=0;t=30"), ("retry-after", "junk")], Some(30_000), 1),
    ];
    for (rules, pairs, pause_ms, unread) in cases {
        let failure = by(*rules, 503, pairs).unwrap();
        assert_eq!(failure.retry_after, pause_ms.map(Duration::from_millis), "{pairs:?}");
        assert_eq!(failure.unread, *unread, "{pairs:?}");
    }
    for code in [301, 401, 404, 501] {
        assert_eq!(
            by(exact, code, &[("retry-after-ms", "9"), ("ratelimit", "a;t=9")]).unwrap().retry_after,
            None
        );
    }
}

#[test]
fn the_rules_are_a_classifier_of_reqwest_s_responses() {
    let response =
        |code: u16| reqwest::Response::from(http::Response::builder().status(code).body("").unwrap());
    let rules = StatusRules::new().internal_errors();
    let seen = |code| match rules.classify(&Outcome::Value(&response(code))) {
        Verdict::Failure(failure) => Some((failure.class, failure.do_not_retry)),
        verdict => {
            assert_eq!(verdict, Verdict::Pass);
            None
        }
    };
    assert_eq!(
        (seen(200), seen(500), seen(404)),
        (None, Some((Class::Transient, false)), Some((Class::Semantic, false)))
    );
    let error = response(500).error_for_status().unwrap_err();
    let Verdict::Failure(failure) = rules.classify(&Outcome::Error(&error)) else {
        panic!("it has a status")
    };
    assert!(!failure.do_not_retry);
    assert_eq!(rules.classify(&Outcome::Value(&7)), Verdict::Pass);
}

#[test]
fn a_checked_response_keeps_what_its_headers_say() {
    let response = |code: u16| {
        let response = http::Response::builder().status(code).header("retry-after", "7");
        reqwest::Response::from(response.header("x-should-retry", "false").body("body").unwrap())
    };
    let failure = Failure::check(response(503)).unwrap_err();
    assert_eq!((failure.retry_after, failure.do_not_retry), (Some(Duration::from_secs(7)), true));
    assert_eq!(Failure::check(response(204)).unwrap().status(), 204);
    let unprocessed = StatusRules::new().unprocessed_rejections().check(response(429)).unwrap_err();
    assert_eq!(unprocessed.dispatch, Dispatch::NotProcessed);
}

#[test]
fn a_keyed_conflict_is_one_only_for_a_keyed_request() {
    let rules = StatusRules::new().keyed_conflicts();
    assert_eq!(by(rules.of_keyed(true), 409, &[]).unwrap().class, Class::Transient);
    assert_eq!(by(rules.of_keyed(false), 409, &[]).unwrap().class, Class::Semantic);
    assert_eq!(by(StatusRules::new().of_keyed(true), 409, &[]).unwrap().class, Class::Semantic);
}

proptest::proptest! {
    #[test]
    fn no_header_panics(code in 100..1000_u16, values in proptest::collection::vec(proptest::collection::vec(32..127_u8, 0..40), 4)) {
        let names = ["ratelimit", "retry-after", "retry-after-ms", "x-should-retry"];
        let named = names.iter().zip(&values).map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_bytes(value).unwrap()));
        let rules = StatusRules::new().millisecond_headers().limited_403();
        let _ = rules.failure(status(code), &named.collect());
    }
}
