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
        assert_eq!((failure.retry_after, failure.do_not_retry), (Some(Duration::from_millis(pause)), false));
    }
    for text in ["-1", "junk", "2147483648", "1.5", ""] {
        let failure = status(14, Some(text)).unwrap();
        assert_eq!((failure.retry_after, failure.do_not_retry), (None, true), "{text:?}");
    }
}

/// `google.rpc.Status` with these details, as a header.
fn details(details: &[(&str, Vec<u8>)]) -> String {
    let mut status = vec![0x08, 14, 0x12, 1, b'x'];
    for (kind, value) in details {
        let mut any = field(1, kind.as_bytes());
        any.extend(field(2, value));
        status.extend(field(3, &any));
    }
    encoded(&status)
}

fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2];
    field.extend(varint(bytes.len() as u64));
    field.extend(bytes);
    field
}

fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    bytes.push(number.to_le_bytes()[0]);
    bytes
}

fn retry_info(seconds: i64, nanos: i32) -> Vec<u8> {
    let mut delay = vec![0x08];
    delay.extend(varint(seconds.cast_unsigned()));
    delay.push(0x10);
    delay.extend(varint(i64::from(nanos).cast_unsigned()));
    field(1, &delay)
}

fn encoded(bytes: &[u8]) -> String {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bits: Vec<u8> = bytes.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1)).collect();
    let sextet = |six: &[u8]| (0..6).fold(0, |sum, at| sum << 1 | usize::from(*six.get(at).unwrap_or(&0)));
    bits.chunks(6).map(|six| char::from(DIGITS[sextet(six)])).collect()
}

const RETRY_INFO: &str = "type.googleapis.com/google.rpc.RetryInfo";

fn metadata(pairs: &[(&'static str, &str)]) -> HeaderMap {
    pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
}

/// Details, pushback, and the pause and veto that they make.
#[test]
fn the_longer_of_pushback_and_retry_info_counts() {
    let ms = |ms| Some(Duration::from_millis(ms));
    let three = details(&[(RETRY_INFO, retry_info(3, 500_000_000))]);
    let other = details(&[
        ("type.googleapis.com/google.rpc.DebugInfo", vec![1, 2, 3]),
        (RETRY_INFO, retry_info(2, 0)),
    ]);
    let two = details(&[(RETRY_INFO, retry_info(1, 0)), (RETRY_INFO, retry_info(0, 9_000_000))]);
    let zero = details(&[(RETRY_INFO, field(1, &[]))]);
    let padded = format!("{three}{}", "=".repeat((4 - three.len() % 4) % 4));
    type Case<'a> = (&'a str, Option<&'a str>, Option<Duration>, bool);
    let cases: &[Case<'_>] = &[
        (&three, None, ms(3500), false),
        (&padded, None, ms(3500), false),
        (&other, None, ms(2000), false),
        (&two, None, ms(1000), false),
        (&zero, None, ms(0), false),
        (&three, Some("100"), ms(3500), false),
        (&three, Some("4000"), ms(4000), false),
        (&three, Some("-1"), ms(3500), true),
        (&details(&[(RETRY_INFO, retry_info(-3, 0))]), None, None, false),
        (&details(&[(RETRY_INFO, retry_info(0, -5))]), None, None, false),
        (&details(&[(RETRY_INFO, retry_info(1, 1_000_000_000))]), None, None, false),
        (&details(&[(RETRY_INFO, vec![])]), None, None, false),
        (&details(&[]), None, None, false),
        ("", None, None, false),
        ("!!!", None, None, false),
        (&three[..three.len() - 6], None, None, false),
        (&"A".repeat(20_000), None, None, false),
    ];
    for (details, pushback, pause, vetoed) in cases {
        let mut pairs = vec![("grpc-status-details-bin", *details)];
        pairs.extend(pushback.map(|ms| ("grpc-retry-pushback-ms", ms)));
        let failure = from_status(8, &metadata(&pairs)).unwrap();
        assert_eq!((failure.retry_after, failure.do_not_retry), (*pause, *vetoed), "{details} {pushback:?}");
    }
}

/// HTTP status, headers, trailers, and the class and code that they mean.
#[test]
fn a_status_is_found_wherever_it_stands() {
    use Class::{Fatal, Permission, RateLimited, Semantic, Transient};
    type Pairs = &'static [(&'static str, &'static str)];
    type Case = (u16, Pairs, Option<Pairs>, Option<(Class, &'static str)>);
    let cases: &[Case] = &[
        (200, &[], Some(&[("grpc-status", "0")]), None),
        (200, &[], Some(&[("grpc-status", "14")]), Some((Transient, "UNAVAILABLE"))),
        (200, &[("grpc-status", "5")], None, Some((Semantic, "NOT_FOUND"))),
        (200, &[("grpc-status", "0")], Some(&[("grpc-status", "13")]), Some((Transient, "INTERNAL"))),
        (200, &[], Some(&[]), Some((Fatal, "UNKNOWN"))),
        (200, &[], None, Some((Fatal, "UNKNOWN"))),
        (200, &[], Some(&[("grpc-status", "17")]), Some((Fatal, "unknown_status"))),
        (200, &[], Some(&[("grpc-status", "+14")]), Some((Fatal, "UNKNOWN"))),
        (200, &[], Some(&[("grpc-status", "99999999999")]), Some((Fatal, "UNKNOWN"))),
        (429, &[], None, Some((RateLimited, "UNAVAILABLE"))),
        (429, &[("grpc-status", "14")], None, Some((RateLimited, "UNAVAILABLE"))),
        (503, &[("grpc-status", "2")], None, Some((Transient, "UNKNOWN"))),
        (503, &[], None, Some((Transient, "UNAVAILABLE"))),
        (502, &[], None, Some((Transient, "UNAVAILABLE"))),
        (504, &[], None, Some((Transient, "UNAVAILABLE"))),
        (400, &[], None, Some((Transient, "INTERNAL"))),
        (401, &[], None, Some((Permission, "UNAUTHENTICATED"))),
        (403, &[], None, Some((Permission, "PERMISSION_DENIED"))),
        (404, &[], None, Some((Fatal, "UNIMPLEMENTED"))),
        (500, &[], None, Some((Fatal, "UNKNOWN"))),
    ];
    for (http, headers, trailers, expected) in cases {
        let trailers = trailers.map(metadata);
        let failure =
            from_response(StatusCode::from_u16(*http).unwrap(), &metadata(headers), trailers.as_ref());
        let seen = failure.as_ref().map(|failure| (failure.class, failure.code.as_deref().unwrap()));
        assert_eq!(seen, *expected, "{http} {headers:?} {trailers:?}");
    }
}

#[test]
fn a_retry_after_counts_in_headers_and_not_in_trailers() {
    let pause = metadata(&[("retry-after", "7")]);
    let status = metadata(&[("retry-after", "7"), ("grpc-status", "14")]);
    let of = |http: u16, headers: &HeaderMap, trailers: Option<&HeaderMap>| {
        from_response(StatusCode::from_u16(http).unwrap(), headers, trailers).unwrap().retry_after
    };
    assert_eq!(of(429, &pause, None), Some(Duration::from_secs(7)));
    assert_eq!(of(503, &status, None), Some(Duration::from_secs(7)));
    assert_eq!(of(429, &HeaderMap::new(), Some(&status)), None);
    assert_eq!(of(200, &HeaderMap::new(), Some(&status)), None);
}

proptest::proptest! {
    #[test]
    fn no_details_panic(bytes: Vec<u8>) {
        let _ = from_status(14, &metadata(&[("grpc-status-details-bin", &encoded(&bytes))]));
    }
}

#[test]
fn directives_that_nobody_can_read_are_counted() {
    let headers = |pairs: &[(&str, &str)]| -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    };
    let junk = headers(&[("x-should-retry", "junk")]);
    assert_eq!(from_status(14, &junk).unwrap().unread, 1);
    let both = headers(&[("x-should-retry", "junk"), ("retry-after", "soon"), ("grpc-status", "14")]);
    let failure = from_response(StatusCode::SERVICE_UNAVAILABLE, &both, None).unwrap();
    assert_eq!((failure.unread, failure.do_not_retry), (2, false));
}
