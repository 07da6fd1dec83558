use proptest::prelude::*;

use super::*;

fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
    let line = |(name, value): &(&'static str, &str)| (HeaderName::from_static(name), value.parse().unwrap());
    lines.iter().map(line).collect()
}

fn context(operation: &str, depth: u32, owner: &str) -> Context {
    let (operation, owner) = (Arc::from(operation), Arc::from(owner));
    Context { operation, attempt: 2, max_attempts: 3, depth, owner }
}

#[test]
fn a_context_comes_through_as_it_went_out() {
    for (operation, owner) in [("01-a.b", "checkout"), ("x", ""), ("a\"b\\c", "a, b;c=d"), ("%2E", "team.a")]
    {
        let sent = context(operation, 1, owner);
        let mut headers = HeaderMap::new();
        assert!(sent.inject(&mut headers));
        assert_eq!(Inbound::from_headers(&headers).context(), Some(&sent));
        headers.remove(CONTEXT);
        let inbound = Inbound::from_headers(&headers);
        let by_baggage = inbound.context().unwrap();
        assert_eq!((by_baggage.operation(), by_baggage.owner()), (operation, owner), "baggage alone");
        assert_eq!((by_baggage.depth(), inbound.malformed()), (1, 0));
    }
}

#[test]
fn the_header_is_a_dictionary() {
    let parsed = Context::parse(r#"op="01", n=2, max=3, depth=1, owner="checkout""#).unwrap();
    assert_eq!(parsed, context("01", 1, "checkout"));
    let good = [
        r#"n=2,max=3 ,	op="01";x;y=1, future, other=tok;a="b", flag=?1, bytes=:aGk=:, owner="checkout""#,
        r#"op="00", op="01", n=2, max=3, owner="checkout""#,
        r#"op="01",n=2,max=3,rate=1.5,depth=1,owner="checkout""#,
    ];
    for text in good {
        assert_eq!(Context::parse(text), Some(context("01", 1, "checkout")), "{text}");
    }
    let bad = [
        "",
        "op",
        "op=01, n=1",
        r#"op="01""#,
        r#"op="", n=1"#,
        r#"op="01", n=0"#,
        r#"op="01", n=-1"#,
        r#"op="01", n=1,"#,
        r#"op="01" n=1"#,
        r#"op="01, n=1"#,
        r#"op="0\1", n=1"#,
        r#"OP="01", n=1"#,
        r#"op="01", n=99999999999999999999"#,
        r#"op="01", n=(1 2)"#,
        r#"op="01", n="#,
        r#"op="01", n=1;"#,
        r#"op="01", n=1--2"#,
    ];
    for text in bad {
        assert_eq!(Context::parse(text), None, "{text}");
    }
    assert_eq!(Context::parse(&format!(r#"op="{}", n=1"#, "x".repeat(2000))), None);
}

#[test]
fn baggage_keeps_what_is_not_ours_and_its_first_member_wins() {
    let mut sent =
        headers(&[("baggage", "a=1;p=2, damper=old.1.x ,b=x=y"), ("baggage", "c=3,damper=older.1.x")]);
    assert!(context("op.1", 2, "me").inject(&mut sent));
    assert_eq!(sent.get_all("baggage").iter().count(), 1);
    assert_eq!(sent["baggage"], "damper=op%2E1.2.me,a=1;p=2,b=x=y,c=3");
    let received =
        headers(&[("baggage", "a=1"), ("baggage", " damper = op%2E1.2.me ; p, damper=other.9.you")]);
    let inbound = Inbound::from_headers(&received);
    assert_eq!(inbound.context().map(|c| (c.operation(), c.depth(), c.owner())), Some(("op.1", 2, "me")));
    for junk in [
        "damper=",
        "damper=a",
        "damper=a.b.c",
        "damper=a.1",
        "damper=.1.x",
        "damper=%zz.1.x",
        "damper=%2.1.x",
    ] {
        let inbound = Inbound::from_headers(&headers(&[("baggage", junk)]));
        assert_eq!((inbound.context(), inbound.malformed()), (None, 1), "{junk}");
    }
}

#[test]
fn a_member_that_does_not_fit_is_left_out_whole() {
    let members = |count: usize| (0..count).map(|n| format!("k{n}=v")).collect::<Vec<_>>().join(",");
    for (others, fits) in [
        (members(63), true),
        (members(64), false),
        (format!("k={}", "x".repeat(8192 - 2 - "damper=op.1.me,".len())), true),
        (format!("k={}", "x".repeat(8192 - 1 - "damper=op.1.me,".len())), false),
    ] {
        let mut sent = headers(&[("baggage", &others)]);
        assert_eq!(context("op", 1, "me").inject(&mut sent), fits);
        assert_eq!(sent["baggage"].to_str().unwrap() == others, !fits);
        assert!(sent.contains_key(CONTEXT), "the header goes out all the same");
    }
}

#[test]
fn the_least_recognised_deadline_counts_less_the_way() {
    let left = |lines: &[(&'static str, &str)]| {
        let (left, malformed) = timeouts::read(&headers(lines));
        (left.map(|left| left.as_micros()), malformed)
    };
    let cases: [(&'static str, &str, Option<u128>); 22] = [
        ("damper-timeout-ms", "1500", Some(1_500_000)),
        ("damper-timeout-ms", "0", Some(0)),
        ("damper-timeout-ms", " 7 ", Some(7000)),
        ("damper-timeout-ms", "-1", None),
        ("damper-timeout-ms", "+1", None),
        ("damper-timeout-ms", "1.5", None),
        ("damper-timeout-ms", "99999999999999999999", None),
        ("x-envoy-expected-rq-timeout-ms", "20", Some(20_000)),
        ("connect-timeout-ms", "30", Some(30_000)),
        ("x-stainless-timeout", "2", Some(2_000_000)),
        ("x-stainless-timeout", "2.9", Some(2_000_000)),
        ("x-stainless-timeout", "nan", None),
        ("grpc-timeout", "1H", Some(3_600_000_000)),
        ("grpc-timeout", "2M", Some(120_000_000)),
        ("grpc-timeout", "3S", Some(3_000_000)),
        ("grpc-timeout", "4m", Some(4000)),
        ("grpc-timeout", "5u", Some(5)),
        ("grpc-timeout", "12345678n", Some(12_345)),
        ("grpc-timeout", "123456789m", None),
        ("grpc-timeout", "1s", None),
        ("grpc-timeout", "S", None),
        ("grpc-timeout", "", None),
    ];
    for (name, value, expected) in cases {
        assert_eq!(left(&[(name, value)]), (expected, u32::from(expected.is_none())), "{name}: {value}");
    }
    let all = [("damper-timeout-ms", "500"), ("grpc-timeout", "90m"), ("x-stainless-timeout", "junk")];
    assert_eq!(left(&all), (Some(90_000), 1));
}

#[tokio::test(start_paused = true)]
async fn the_way_here_has_taken_five_milliseconds() {
    let remaining = |text: &str| Inbound::from_headers(&headers(&[("damper-timeout-ms", text)])).remaining();
    assert_eq!(remaining("105"), Some(Duration::from_millis(100)));
    assert_eq!((remaining("5"), remaining("0")), (Some(Duration::ZERO), Some(Duration::ZERO)));
    assert_eq!(Inbound::from_headers(&HeaderMap::new()).remaining(), None);
    let capped = Inbound::from_headers(&HeaderMap::new()).capped(Duration::from_secs(1));
    assert_eq!(capped.remaining(), Some(Duration::from_secs(1)));
}

#[test]
fn attempts_of_other_layers_are_recognised() {
    let cases: [(&'static str, &str, u32); 13] = [
        ("x-envoy-attempt-count", "1", 0),
        ("x-envoy-attempt-count", "3", 2),
        ("x-envoy-attempt-count", "0", 0),
        ("x-envoy-attempt-count", "-3", 0),
        ("x-envoy-attempt-count", "4000000000", 0),
        ("grpc-previous-rpc-attempts", "2", 2),
        ("armeria-retry-count", "1", 1),
        ("x-stainless-retry-count", "0", 0),
        ("x-stainless-retry-count", "2", 2),
        ("amz-sdk-request", "ttl=20260101T000000Z; attempt=2; max=3", 1),
        ("amz-sdk-request", "attempt=1", 0),
        ("amz-sdk-request", "junk", 0),
        ("x-envoy-attempt-count", "junk", 0),
    ];
    for (name, value, expected) in cases {
        assert_eq!(
            Inbound::from_headers(&headers(&[(name, value)])).foreign_attempts(),
            expected,
            "{name}: {value}"
        );
    }
    let own = [("damper-context", r#"op="1", n=3, max=3"#), ("grpc-previous-rpc-attempts", "2")];
    assert_eq!(Inbound::from_headers(&headers(&own)).foreign_attempts(), 0, "those are the owner's own");
}

#[test]
fn a_directive_is_one_of_two_words_and_no_contradiction() {
    type Lines = [(&'static str, &'static str)];
    let cases: [(&Lines, Option<bool>, u32); 10] = [
        (&[], None, 0),
        (&[("damper-retry", "no")], Some(false), 0),
        (&[("x-should-retry", " FALSE ")], Some(false), 0),
        (&[("stripe-should-retry", "true")], Some(true), 0),
        (&[("damper-retry", "no"), ("x-should-retry", "false")], Some(false), 0),
        (&[("damper-retry", "maybe")], None, 1),
        (&[("damper-retry", "")], None, 1),
        (&[("damper-retry", "no"), ("x-should-retry", "true")], None, 2),
        (&[("x-should-retry", "true"), ("x-should-retry", "false"), ("damper-retry", "1")], None, 3),
        (&[("damper-retry", "no"), ("x-should-retry", "junk")], Some(false), 1),
    ];
    for (lines, retry, unread) in cases {
        assert_eq!(retry_directive(&headers(lines)), Directive { retry, unread }, "{lines:?}");
    }
}

proptest! {
    #[test]
    fn no_header_is_too_strange(
        bytes in prop::collection::vec(32..=255_u8, 0..200), place in 0..8_usize, text in "[ -~]{0,60}",
    ) {
        let names = [
            "damper-context", "damper-timeout-ms", "baggage", "grpc-timeout", "x-stainless-timeout",
            "x-envoy-attempt-count", "amz-sdk-request", "x-should-retry",
        ];
        for value in [bytes, text.into_bytes()] {
            let Ok(value) = HeaderValue::from_bytes(&value) else { continue };
            let headers: HeaderMap = [(HeaderName::from_static(names[place]), value)].into_iter().collect();
            let inbound = Inbound::from_headers(&headers);
            prop_assert!(inbound.foreign_attempts() <= 100);
            retry_directive(&headers);
            let mut out = headers;
            context("op", 1, "me").inject(&mut out);
        }
    }

    #[test]
    fn any_name_survives_baggage_and_any_printable_one_the_header(
        operation in "\\PC{1,40}", owner in "\\PC{0,40}", plain in "[ -~]{1,40}", depth in 1..u32::MAX,
    ) {
        let mut headers = HeaderMap::new();
        context(&operation, depth, &owner).inject(&mut headers);
        headers.remove(CONTEXT);
        let inbound = Inbound::from_headers(&headers);
        let received = inbound.context().unwrap();
        prop_assert_eq!((received.operation(), received.owner(), received.depth()), (&*operation, &*owner, depth));
        context(&plain, depth, &plain).inject(&mut headers);
        let inbound = Inbound::from_headers(&headers);
        prop_assert_eq!(inbound.context().unwrap().owner(), &*plain);
    }
}
