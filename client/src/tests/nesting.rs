//! One retry owner: operations inside operations, and inside requests.

use http::{HeaderMap, HeaderName, HeaderValue};

use super::*;
use crate::{Inbound, Profile, Scope};

fn granting() -> Arc<Fake> {
    Fake::new(|_| Step::at_once(Ok(granted())))
}

/// An operation that fails each time, counting its attempts.
async fn failing(dependency: &Dependency, attempts: &AtomicU32, failure: Failure) -> CallError<Failure> {
    let attempt = |_| {
        attempts.fetch_add(1, Ordering::Relaxed);
        std::future::ready(Err::<(), _>(failure.clone()))
    };
    safe(dependency).call(attempt).await.unwrap_err()
}

#[tokio::test(start_paused = true)]
async fn an_operation_in_an_attempt_leaves_the_retries_to_the_outer_one() {
    let damper = client(&granting());
    let (outer, inner, attempts) =
        (damper.dependency("outer"), damper.dependency("inner"), AtomicU32::new(0));
    let error = safe(&outer)
        .profile(Profile::standard().with_attempts(3))
        .call(|_| async {
            let error = failing(&inner, &attempts, transient()).await;
            assert_eq!((error.reason, error.attempts), (StopReason::NotRetryOwner, 1));
            Err::<(), _>(error)
        })
        .await
        .unwrap_err();
    assert_eq!((error.reason, error.attempts), (StopReason::AttemptsExhausted, 3));
    assert_eq!(attempts.into_inner(), 3, "not nine");
    assert_eq!((inner.totals().logical, inner.totals().physical), (3, 3));
}

#[tokio::test(start_paused = true)]
async fn what_never_left_is_sent_once_more_and_charged() {
    let fake = granting();
    let damper = client(&fake);
    let (outer, inner, attempts) =
        (damper.dependency("outer"), damper.dependency("inner"), AtomicU32::new(0));
    let _ = safe(&outer)
        .profile(Profile::never().with_attempts(2))
        .call(|_| async {
            Err::<(), _>(failing(&inner, &attempts, transient().with_dispatch(Dispatch::NotSent)).await)
        })
        .await;
    assert_eq!(attempts.into_inner(), 4, "two by two");
    assert_eq!(fake.asks.lock().iter().filter(|(_, ask)| ask.dependency == "inner").count(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_outer_operation_that_never_retries_owns_nothing() {
    let damper = client(&granting());
    let (outer, inner, attempts) =
        (damper.dependency("outer"), damper.dependency("inner"), AtomicU32::new(0));
    let _ = safe(&outer)
        .profile(Profile::never())
        .call(|_| async { Err::<(), _>(failing(&inner, &attempts, transient()).await) })
        .await;
    assert_eq!(attempts.into_inner(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_spawned_task_is_inside_only_with_a_handle() {
    let damper = client(&granting());
    let (outer, inner) = (damper.dependency("outer"), damper.dependency("inner"));
    for (handed_on, expected) in [(true, 1), (false, 4)] {
        let attempts = Arc::new(AtomicU32::new(0));
        safe(&outer)
            .call(|attempt| {
                let (inner, counter) = (inner.clone(), Arc::clone(&attempts));
                async move {
                    let work = async move { failing(&inner, &counter, transient()).await.attempts };
                    let task = match handed_on {
                        true => tokio::spawn(attempt.scope().run(work)),
                        false => tokio::spawn(work),
                    };
                    task.await.unwrap();
                    Ok::<_, Failure>(())
                }
            })
            .await
            .unwrap();
        assert_eq!(attempts.load(Ordering::Relaxed), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn an_innermost_owner_retries_itself_and_the_outer_one_does_not_repeat_that() {
    let fake = granting();
    *fake.told.lock() = Some(told(|told| told.policy.retry_owner = damper_protocol::RetryOwner::Innermost));
    let damper = client(&fake);
    synced(&damper).await;
    let (outer, inner, attempts) = (damper.dependency("outer"), damper.dependency("d"), AtomicU32::new(0));
    let error = safe(&outer)
        .call(|_| async { Err::<(), _>(failing(&inner, &attempts, transient()).await) })
        .await
        .unwrap_err();
    assert_eq!((error.reason, error.attempts), (StopReason::NotRetryable, 1));
    assert_eq!(attempts.into_inner(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_request_with_a_context_is_served_with_one_attempt_and_its_deadline() {
    let damper = client(&granting());
    let dependency = damper.dependency("d");
    let mut sent = HeaderMap::new();
    safe(&damper.dependency("service"))
        .deadline(ms(105))
        .call(|attempt| {
            attempt.inject(&mut sent);
            async { Ok::<_, Failure>(()) }
        })
        .await
        .unwrap();
    let inbound = Inbound::from_headers(&sent);
    let context = inbound.context().unwrap().clone();
    assert_eq!((context.attempt(), context.max_attempts(), context.depth()), (1, 4, 1));
    let attempts = AtomicU32::new(0);
    let error = inbound.scope().run(failing(&dependency, &attempts, transient())).await;
    assert_eq!((error.reason, attempts.into_inner()), (StopReason::NotRetryOwner, 1));

    let start = Instant::now();
    let hang = safe(&dependency).deadline(ms(60_000)).call(|attempt| {
        let mut next = HeaderMap::new();
        attempt.inject(&mut next);
        let passed_on = Inbound::from_headers(&next).context().cloned().unwrap();
        assert_eq!((passed_on.operation(), passed_on.depth()), (context.operation(), 2));
        assert_eq!(next["damper-timeout-ms"], "100");
        std::future::pending::<Result<(), Failure>>()
    });
    let error = inbound.scope().run(hang).await.unwrap_err();
    assert_eq!(error.reason, StopReason::DeadlineExceeded);
    assert!(start.elapsed() <= ms(101), "{:?}", start.elapsed());
    let late = inbound.scope().run(call(safe(&dependency), vec![])).await.unwrap_err();
    assert_eq!((late.reason, late.attempts), (StopReason::DeadlineTooShort, 0));
}

#[tokio::test(start_paused = true)]
async fn an_inherited_deadline_is_that_of_the_scope() {
    let dependency = client(&Fake::dead()).dependency("d");
    let remaining = async || {
        let operation = dependency.operation("inner").deadline(Deadline::inherit());
        operation.call(|attempt| async move { Ok::<_, Failure>(attempt.remaining()) }).await.unwrap()
    };
    assert_eq!(remaining().await, ms(10_000));
    let inside = safe(&dependency).deadline(ms(300)).call(|_| async { Ok::<_, Failure>(remaining().await) });
    assert_eq!(inside.await.unwrap(), ms(300));
    assert!(Scope::current().is_none());
}

#[tokio::test(start_paused = true)]
async fn grpc_requests_get_their_own_headers_too() {
    let dependency = client(&granting()).dependency("d");
    let seen = Mutex::new(Vec::new());
    safe(&dependency)
        .deadline(ms(20_000))
        .call(|attempt| {
            let mut headers = HeaderMap::new();
            headers.insert("content-type", HeaderValue::from_static("application/grpc+proto"));
            attempt.inject(&mut headers);
            seen.lock().push((
                headers.get("grpc-timeout").is_some(),
                headers.get("grpc-previous-rpc-attempts").cloned(),
            ));
            async move { if attempt.number() == 1 { Err(transient()) } else { Ok(()) } }
        })
        .await
        .unwrap();
    assert_eq!(seen.into_inner(), [(true, None), (true, Some(HeaderValue::from_static("1")))]);
}

/// What a gRPC request has, and what it is sent with when one second is left.
#[tokio::test(start_paused = true)]
async fn the_shorter_grpc_timeout_counts() {
    let dependency = client(&granting()).dependency("d");
    let cases = [
        (None, "1000m"),
        (Some("200m"), "200m"),
        (Some("999999u"), "999999u"),
        (Some("1S"), "1S"),
        (Some("1001m"), "1000m"),
        (Some("1H"), "1000m"),
        (Some("junk"), "1000m"),
    ];
    for (own, expected) in cases {
        let injects = |attempt: crate::Attempt| {
            let mut headers = HeaderMap::new();
            headers.insert("content-type", HeaderValue::from_static("application/grpc"));
            headers.extend(own.map(|own| (HeaderName::from_static("grpc-timeout"), own.parse().unwrap())));
            attempt.inject(&mut headers);
            assert_eq!(headers["grpc-timeout"], expected, "{own:?}");
            async { Ok::<_, Failure>(()) }
        };
        safe(&dependency).deadline(ms(1000)).call(injects).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn headers_of_a_request_that_nobody_can_read_are_counted_once() {
    let damper = client(&granting());
    let mut junk = HeaderMap::new();
    junk.insert("damper-timeout-ms", HeaderValue::from_static("soon"));
    junk.insert("damper-context", HeaderValue::from_static("who knows"));
    let inbound = Inbound::from_headers(&junk);
    let served = inbound.scope().run(async {
        for name in ["d", "d", "e"] {
            call(safe(&damper.dependency(name)), vec![]).await.unwrap();
        }
    });
    served.await;
    let counted = |name| damper.dependency(name).unread_headers();
    assert_eq!((inbound.malformed(), counted("d"), counted("e")), (2, 2, 0));
}

#[tokio::test(start_paused = true)]
async fn an_inert_client_sets_no_headers_and_claims_nothing() {
    let (outer, live) = (Damper::inert().dependency("d"), client(&granting()).dependency("d"));
    let attempts = AtomicU32::new(0);
    let _ = outer
        .operation("o")
        .call(|attempt| {
            let mut headers = HeaderMap::new();
            attempt.inject(&mut headers);
            assert!(headers.is_empty());
            let inner = failing(&live, &attempts, transient());
            async { Err::<(), _>(inner.await) }
        })
        .await;
    assert_eq!(attempts.into_inner(), 4);
}

#[tokio::test(start_paused = true)]
async fn foreign_layers_are_counted_and_leave_fewer_attempts() {
    let damper = client(&granting());
    let dependency = damper.dependency("d");
    let mut by_mesh = HeaderMap::new();
    by_mesh.insert("x-envoy-attempt-count", HeaderValue::from_static("3"));
    let error = safe(&dependency)
        .call(|attempt| {
            attempt.note_response(&by_mesh);
            async { Err::<(), _>(transient()) }
        })
        .await
        .unwrap_err();
    assert_eq!((error.attempts, dependency.totals().foreign), (2, 4), "two of ours, each made three times");

    let inbound = Inbound::from_headers(&by_mesh);
    let attempts = AtomicU32::new(0);
    let error = inbound.scope().run(failing(&damper.dependency("e"), &attempts, transient())).await;
    assert_eq!((error.reason, error.attempts), (StopReason::AttemptsExhausted, 2));
    let totals = damper.dependency("e").totals();
    assert_eq!((totals.foreign, totals.logical, totals.physical), (1, 0, 2), "a repeat intends nothing new");
    assert_eq!(totals.affected, 0);
}

#[tokio::test(start_paused = true)]
async fn a_request_without_a_context_leaves_the_retries_here() {
    let dependency = client(&granting()).dependency("d");
    let attempts = AtomicU32::new(0);
    let inbound = Inbound::from_headers(&HeaderMap::new());
    assert_eq!(inbound.scope().run(failing(&dependency, &attempts, transient())).await.attempts, 4);
}

#[tokio::test(start_paused = true)]
async fn baggage_without_room_is_skipped_and_counted() {
    let damper = client(&granting());
    safe(&damper.dependency("d"))
        .call(|attempt| {
            let mut headers = HeaderMap::new();
            headers.insert("baggage", "x".repeat(8192).parse().unwrap());
            attempt.inject(&mut headers);
            assert!(headers.contains_key("damper-context"));
            async { Ok::<_, Failure>(()) }
        })
        .await
        .unwrap();
    assert_eq!(damper.health().baggage_skipped, 1);
}

/// The request's caller owns the retries: a connection refused twice is no reason to forbid it to retry.
#[tokio::test(start_paused = true)]
async fn only_an_owner_forbids_its_caller_to_retry() {
    let damper = client(&granting());
    let (dependency, attempts) = (damper.dependency("d"), AtomicU32::new(0));
    let mut headers = HeaderMap::new();
    headers.insert("damper-context", HeaderValue::from_static(r#"op="1", n=1, max=3, depth=1, owner="a""#));
    let unsent = transient().with_dispatch(Dispatch::NotSent);
    let inside = Inbound::from_headers(&headers).scope().run(failing(&dependency, &attempts, unsent.clone()));
    let error = inside.await;
    assert_eq!((error.reason, error.attempts, error.forbids_retries), (StopReason::NotRetryOwner, 2, false));
    let error = failing(&dependency, &attempts, unsent).await;
    assert_eq!(
        (error.reason, error.attempts, error.forbids_retries),
        (StopReason::AttemptsExhausted, 4, true)
    );
}

#[tokio::test(start_paused = true)]
async fn a_repeat_by_a_foreign_layer_is_one_at_every_depth() {
    let damper = client(&granting());
    let (outer, inner) = (damper.dependency("outer"), damper.dependency("inner"));
    let mut by_mesh = HeaderMap::new();
    by_mesh.insert("x-envoy-attempt-count", HeaderValue::from_static("2"));
    let nested = safe(&outer).call(|_| call(safe(&inner), vec![]));
    Inbound::from_headers(&by_mesh).scope().run(nested).await.unwrap();
    for dependency in [outer, inner] {
        let totals = dependency.totals();
        assert_eq!((totals.foreign, totals.logical, totals.physical), (1, 0, 1), "{dependency:?}");
    }
}

/// What an operation says to one that it runs in.
#[tokio::test(start_paused = true)]
async fn the_outer_operation_understands_how_the_inner_one_ended() {
    let fake = granting();
    *fake.told.lock() = Some(told(|told| {
        told.breaker = BreakerView { state: BreakerState::Open, version: 3, open_for_ms: 60_000 };
    }));
    let damper = client(&fake);
    synced(&damper).await;
    let (outer, refusing, slow) =
        (damper.dependency("outer"), damper.dependency("d"), damper.dependency("slow"));
    *fake.told.lock() = Some(SyncedDependency::default());

    let optimist = |outcome: &crate::Outcome<'_>| match outcome.error() {
        Some(_) => crate::Verdict::Failure(transient()),
        None => crate::Verdict::Pass,
    };
    let overruled = safe(&outer).classifier(optimist).call(|_| call(safe(&refusing), vec![])).await;
    assert_eq!(overruled.unwrap_err().attempts, 1, "nobody repeats a refusal");
    let counted = outer.totals().failures;
    let refused = safe(&outer).call(|_| call(safe(&refusing), vec![])).await.unwrap_err();
    assert_eq!(
        (refused.reason, refused.attempts),
        (StopReason::NotRetryable, 1),
        "a refusal is not repeated"
    );
    let failure = refused.failure.unwrap();
    assert_eq!((failure.code.as_deref(), failure.dispatch), (Some("breaker_open"), Dispatch::NotSent));
    assert_eq!(outer.totals().failures, counted, "nothing is wrong with the outer dependency");
    assert_eq!(outer.unclassified(), 0);

    let hung = || safe(&slow).deadline(ms(100)).call(|_| std::future::pending::<Result<(), Failure>>());
    let cut_off = safe(&outer).call(|attempt| async move {
        let inner = hung().await.unwrap_err();
        assert_eq!(inner.reason, StopReason::DeadlineExceeded);
        if attempt.number() == 1 { Err(inner) } else { Ok("in time") }
    });
    assert_eq!(cut_off.await.unwrap(), "in time", "the outer operation had time left");
}

#[tokio::test(start_paused = true)]
async fn an_operation_has_one_id_that_sorts_by_time() {
    let fake = granting();
    let dependency = client(&fake).dependency("d");
    let told = Mutex::new(Vec::new());
    let once = || {
        safe(&dependency).profile(Profile::standard().with_attempts(2)).call(|attempt| {
            let mut headers = HeaderMap::new();
            attempt.inject(&mut headers);
            let said = headers["damper-context"].to_str().unwrap().to_owned();
            told.lock().push(said.split('"').nth(1).unwrap().to_owned());
            async { Err::<(), _>(transient()) }
        })
    };
    once().await.unwrap_err();
    once().await.unwrap_err();
    let told = told.into_inner();
    assert!(told.iter().all(|id| uuid::Uuid::parse_str(id).unwrap().get_version_num() == 7), "{told:?}");
    assert!(told[0] == told[1] && told[2] == told[3] && told[0] != told[2], "{told:?}");
    let asked: Vec<String> = fake.asks.lock().iter().map(|(_, ask)| ask.operation.clone()).collect();
    assert_eq!(asked, [told[0].clone(), told[2].clone()], "the server knows it by the same");
}

#[tokio::test(start_paused = true)]
async fn retries_spent_further_in_are_not_repeated_at_any_depth() {
    let fake = granting();
    *fake.told.lock() = Some(told(|told| told.policy.retry_owner = damper_protocol::RetryOwner::Innermost));
    let damper = client(&fake);
    synced(&damper).await;
    let (outer, middle, inner) =
        (damper.dependency("outer"), damper.dependency("middle"), damper.dependency("d"));
    let attempts = AtomicU32::new(0);
    let error = safe(&outer)
        .call(|_| async {
            let middle = safe(&middle).call(|_| failing_again(&inner, &attempts)).await.unwrap_err();
            assert!(middle.attempts == 1 && middle.forbids_retries());
            Err::<(), _>(middle)
        })
        .await
        .unwrap_err();
    assert_eq!((error.reason, error.attempts, error.forbids_retries()), (StopReason::NotRetryable, 1, true));
    assert_eq!(attempts.into_inner(), 4);
}

/// Hides how it ended: what is left of it says that a retry would help.
async fn failing_again(dependency: &Dependency, attempts: &AtomicU32) -> Result<(), Failure> {
    let _ = failing(dependency, attempts, transient()).await;
    Err(transient())
}

/// What a dependency forbids, this layer forbids its own caller.
#[tokio::test(start_paused = true)]
async fn a_veto_is_passed_on() {
    let dependency = client(&granting()).dependency("d");
    let not_found = Failure::from_http(http::StatusCode::NOT_FOUND, &HeaderMap::new()).unwrap();
    let mut busy = Failure::from_http(http::StatusCode::SERVICE_UNAVAILABLE, &HeaderMap::new()).unwrap();
    for (failure, idempotency, reason, forbids) in [
        (transient().never_retried(), Idempotency::Safe, StopReason::NotRetryable, true),
        (not_found, Idempotency::Safe, StopReason::NotRetryable, true),
        (busy.clone(), Idempotency::Unsafe, StopReason::AmbiguousNotRepeatable, true),
        (busy.clone(), Idempotency::Safe, StopReason::DeadlineTooShort, false),
        (
            {
                busy.veto();
                busy
            },
            Idempotency::Safe,
            StopReason::NotRetryable,
            true,
        ),
    ] {
        let enough = if reason == StopReason::DeadlineTooShort { ms(1) } else { ms(10_000) };
        let operation = dependency.operation("o").idempotency(idempotency).deadline(enough);
        let error = call(operation, vec![failure]).await.unwrap_err();
        assert_eq!((error.reason, error.forbids_retries()), (reason, forbids));
    }
}
