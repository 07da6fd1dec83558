//! What attempts may have left behind, and what is known of it when nothing else is.

use std::{error::Error, fmt, io};

use super::*;
use crate::Profile;

/// An error of a transport that nobody here knows, such as those of HTTP/3.
#[derive(Debug, thiserror::Error)]
#[error("stream 4 was stopped with code 0x10c")]
struct Foreign;

/// A client's own error around it.
#[derive(Debug)]
struct Sending(Box<dyn Error + Send + Sync>);

impl fmt::Display for Sending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("error sending request")
    }
}

impl Error for Sending {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.0)
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_of_an_unknown_transport_is_counted_and_not_retried() {
    type Make = fn() -> Sending;
    let errors: [Make; 3] = [
        || Sending(Foreign.into()),
        || Sending(Sending(Foreign.into()).into()),
        || Sending(io::Error::other(Foreign).into()),
    ];
    for make in errors {
        for idempotency in [Idempotency::Safe, Idempotency::keyed("k"), Idempotency::Unsafe] {
            let fake = Fake::new(|_| Step::at_once(Ok(granted())));
            let dependency = client(&fake).dependency("d");
            let operation = dependency.operation("get").idempotency(idempotency.clone());
            let error = operation.call(|_| async { Err::<(), _>(make()) }).await.unwrap_err();
            assert_eq!((error.reason, error.attempts), (StopReason::NotRetryable, 1), "{:?}", make());
            assert_eq!(error.ambiguous, idempotency != Idempotency::Safe, "it may have taken effect");
            assert_eq!((dependency.unclassified(), fake.asks.lock().len()), (1, 0));
        }
    }
}

/// What the attempts left behind one after the other, why it ended after how many, and whether there may be an effect.
#[tokio::test(start_paused = true)]
async fn an_unknown_effect_is_never_forgotten() {
    use Dispatch::{Ambiguous, NotProcessed, NotSent, Processed};
    use StopReason::{AmbiguousNotRepeatable as Stuck, AttemptsExhausted as Exhausted};
    let keyed = || Idempotency::keyed("k");
    let cases: [(Idempotency, &[Dispatch], StopReason, u32, bool); 8] = [
        (Idempotency::Unsafe, &[NotSent, Ambiguous, NotSent], Stuck, 2, true),
        (Idempotency::Unsafe, &[NotSent, NotProcessed, NotSent, NotSent], Exhausted, 4, false),
        (Idempotency::Unsafe, &[NotProcessed, Processed, NotSent], Stuck, 2, false),
        (keyed(), &[NotSent, Ambiguous, NotSent, NotSent], Exhausted, 4, true),
        (keyed(), &[Ambiguous, NotProcessed, NotProcessed, NotProcessed], Exhausted, 4, true),
        (Idempotency::Idempotent, &[NotSent, NotSent, Ambiguous, NotSent], Exhausted, 4, true),
        (keyed(), &[NotSent, NotSent, NotSent, NotSent], Exhausted, 4, false),
        (Idempotency::Safe, &[Ambiguous, NotSent, NotSent, NotSent], Exhausted, 4, false),
    ];
    for (idempotency, history, reason, attempts, ambiguous) in cases {
        let fake = Fake::new(|_| Step::at_once(Ok(granted())));
        let operation = client(&fake).dependency("d").operation("o").idempotency(idempotency.clone());
        let failures = history.iter().map(|dispatch| transient().with_dispatch(*dispatch)).collect();
        let operation = operation.profile(Profile::standard()).deadline(Deadline::unbounded());
        let error = call(operation, failures).await.unwrap_err();
        let seen = (error.reason, error.attempts, error.ambiguous);
        assert_eq!(seen, (reason, attempts, ambiguous), "{idempotency:?} {history:?}");
        assert!(!(error.ambiguous && error.had_no_effect()), "{idempotency:?} {history:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_key_is_a_quoted_string_and_the_same_in_every_attempt() {
    let cases = [
        ("order-4711", Some(r#""order-4711""#)),
        (r#"a "b" \c"#, Some(r#""a \"b\" \\c""#)),
        ("", None),
        ("straße", None),
        ("two\nlines", None),
    ];
    for (key, header) in cases {
        let fake = Fake::new(|_| Step::at_once(Ok(granted())));
        let headers = Mutex::new(Vec::new());
        let operation =
            client(&fake).dependency("d").operation("charge").idempotency(Idempotency::keyed(key));
        let charge = |attempt: crate::Attempt| {
            let header = attempt.idempotency_header();
            let mut request = http::HeaderMap::new();
            let injected = attempt.inject_key(&mut request).is_ok();
            assert_eq!((injected, request.get("idempotency-key")), (header.is_some(), header.as_ref()));
            headers.lock().push(header.map(|value| value.to_str().unwrap().to_owned()));
            async move { if attempt.number() < 3 { Err(transient()) } else { Ok(()) } }
        };
        operation.call(charge).await.unwrap();
        assert_eq!(headers.into_inner(), vec![header.map(str::to_owned); 3], "{key:?}");
    }
    let unkeyed = client(&Fake::dead()).dependency("d").operation("o");
    let header = unkeyed.call(|attempt| async move { Ok::<_, Failure>(attempt.idempotency_header()) });
    assert_eq!(header.await.unwrap(), None);
}

/// A second request at the same time, and those that a proxy makes: the dependency knows them all by the key.
#[tokio::test(start_paused = true)]
async fn hedges_and_attempts_of_others_have_the_key_too() {
    let fake = Fake::new(|_| Step::at_once(Ok(granted())));
    let dependency = client(&fake).dependency("d");
    let keyed = || dependency.operation("charge").idempotency(Idempotency::keyed("k"));
    let hedge = keyed().admit_as(crate::Admission::Hedge).await.unwrap();
    assert_eq!(hedge.attempt().idempotency_header().unwrap(), r#""k""#);
    drop(hedge);
    let made_thrice =
        [("x-envoy-attempt-count".parse().unwrap(), "3".parse().unwrap())].into_iter().collect();
    let proxied = keyed().call(|attempt| {
        attempt.note_response(&made_thrice);
        assert_eq!(attempt.idempotency_key(), Some("k"));
        async { Err::<(), _>(transient()) }
    });
    let error = proxied.await.unwrap_err();
    assert_eq!((error.attempts, dependency.totals().foreign), (2, 4), "two of ours, each made three times");
    assert!(error.ambiguous);
}

/// The wall clock stands while virtual time goes on: seen from here, it is set back by as much as the wait is long.
#[tokio::test(start_paused = true)]
async fn a_wall_clock_that_is_set_back_during_a_wait_does_not_make_it_longer() {
    let at = httpdate::fmt_http_date(crate::clock::wall() + Duration::from_secs(600));
    let headers = [(http::header::RETRY_AFTER, at.parse().unwrap())].into_iter().collect();
    let failure = Failure::from_http(http::StatusCode::SERVICE_UNAVAILABLE, &headers).unwrap();
    let pause = failure.retry_after.unwrap();
    let fake = Fake::new(|ask| match ask.max_wait_ms {
        Some(0) => Step::at_once(Ok(answer(Decision::Shed, Reason::BudgetExhausted))),
        _ => Step::at_once(Ok(granted())),
    });
    let dependency = client(&fake).dependency("d");
    let start = Instant::now();
    let deadline = pause + ms(5000);
    assert_eq!(call(safe(&dependency).deadline(deadline), vec![failure]).await.unwrap(), 2);
    // The pause, its jitter of at most a second, and the timer's millisecond here and there.
    assert!((pause..=pause + ms(1100)).contains(&start.elapsed()), "{:?} for {pause:?}", start.elapsed());
    call(safe(&dependency), vec![transient()]).await.unwrap();
}
