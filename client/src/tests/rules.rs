//! What callers may say: hooks, judges, recovery modes, streams, permits; and the modes of a client.

use super::*;
use crate::{Advice, Idempotency, Profile, RecoveryMode, Verdict};

fn granting() -> Arc<Fake> {
    Fake::new(|_| Step::at_once(Ok(granted())))
}

fn of(fake: &Arc<Fake>, switch: Switch) -> Dependency {
    Damper::builder("").build_over(Arc::clone(fake) as Arc<dyn Transport>, switch).dependency("d")
}

#[tokio::test(start_paused = true)]
async fn a_hook_vetoes_and_upgrades_and_overrides_nothing_else() {
    let semantic = || Failure::new(FailureClass::Semantic);
    let vetoed = semantic().never_retried();
    let cases = [
        (Advice::Drop, transient(), true, Some(StopReason::DroppedByHook)),
        (Advice::Defer, transient(), true, None),
        (Advice::Defer, semantic(), true, Some(StopReason::NotRetryable)),
        (Advice::Retry, semantic(), true, None),
        (Advice::Retry, semantic(), false, Some(StopReason::AmbiguousNotRepeatable)),
        (Advice::Retry, vetoed, true, Some(StopReason::NotRetryable)),
    ];
    for (advice, failure, declared_safe, expected) in cases {
        let fake = granting();
        let dependency = client(&fake).dependency("d");
        let idempotency = if declared_safe { Idempotency::Safe } else { Idempotency::Unsafe };
        let operation = dependency.operation("o").idempotency(idempotency).on_failure(move |event| {
            assert_eq!((event.dependency, event.operation, event.attempt), ("d", "o", 1));
            assert!(event.error.is_some() && event.remaining.is_some());
            advice
        });
        let outcome = call(operation, vec![failure.clone()]).await;
        assert_eq!(outcome.err().map(|error| error.reason), expected, "{advice:?} {failure}");
        let asked = fake
            .asks
            .lock()
            .iter()
            .all(|(_, ask)| ask.failure.as_ref().unwrap().class == FailureClass::Transient);
        assert!(asked, "the server would refuse any other class");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_panics_has_said_nothing() {
    let dependency = client(&granting()).dependency("d");
    let operation = safe(&dependency).on_failure(|_| panic!("a bug in a hook"));
    assert_eq!(call(operation, vec![transient()]).await.unwrap(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_panics_is_a_failure_of_the_caller_s_own_code() {
    let dependency = client(&granting()).dependency("d");
    let of_task = dependency.clone();
    let task = tokio::spawn(async move {
        safe(&of_task).call(|_| async { panic!("a bug in an attempt") as Result<(), Failure> }).await
    });
    assert!(task.await.unwrap_err().is_panic());
    let totals = dependency.totals();
    assert_eq!((totals.failures.fatal, totals.sources.application, totals.reasons.handler_error), (1, 1, 1));
    assert_eq!((totals.abandoned, dependency.in_flight()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn values_can_be_judged() {
    let dependency = client(&granting()).dependency("d");
    let judge = |class: FailureClass| {
        move |number: &u32| match number {
            1 => Verdict::Failure(Failure::new(class)),
            _ => Verdict::Pass,
        }
    };
    let attempt = |attempt: crate::Attempt| async move { Ok::<_, Failure>(attempt.number()) };
    let wrong = safe(&dependency).call_judged(attempt, judge(FailureClass::Semantic)).await.unwrap_err();
    assert_eq!((wrong.reason, wrong.attempts, wrong.last), (StopReason::NotRetryable, 1, None));
    let late = safe(&dependency).call_judged(attempt, judge(FailureClass::Transient)).await;
    assert_eq!(late.unwrap(), 2);
    let totals = dependency.totals();
    assert_eq!((totals.success, totals.failures.semantic, totals.failures.transient), (1, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn an_unknown_effect_is_repeated_only_under_its_recovery_mode() {
    let cases = [
        (RecoveryMode::ProviderIdempotent, Idempotency::Unsafe, true),
        (RecoveryMode::Queryable, Idempotency::Unsafe, false),
        (RecoveryMode::Compensatable, Idempotency::Unsafe, false),
        (RecoveryMode::Opaque, Idempotency::Unsafe, false),
        (RecoveryMode::Opaque, Idempotency::keyed("k"), false),
        (RecoveryMode::Queryable, Idempotency::Idempotent, true),
    ];
    for (mode, idempotency, repeated) in cases {
        let fake = granting();
        let operation = client(&fake).dependency("d").operation("o").idempotency(idempotency).recovery(mode);
        match call(operation, vec![transient()]).await {
            Ok(_) => {
                assert!(repeated, "{mode}");
                assert_eq!(fake.asks.lock()[0].1.recovery_mode, Some(mode));
            }
            Err(error) => {
                assert!(!repeated, "{mode}");
                assert_eq!((error.reason, error.recovery), (StopReason::AmbiguousNotRepeatable, Some(mode)));
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempt_may_know_better_what_it_left_behind() {
    let fake = granting();
    let operation = client(&fake).dependency("d").operation("charge");
    let outcome = operation
        .call(|attempt| async move {
            let first = attempt.number() == 1;
            attempt.note_dispatch(if first { Dispatch::NotProcessed } else { Dispatch::Processed });
            Err::<(), _>(transient())
        })
        .await;
    let error = outcome.unwrap_err();
    assert_eq!((error.reason, error.attempts), (StopReason::AmbiguousNotRepeatable, 2));
    assert!(!error.ambiguous && !error.had_no_effect(), "it is known to have been processed");
}

#[tokio::test(start_paused = true)]
async fn ten_connections_without_progress_are_a_fault_and_progress_makes_waits_short_again() {
    let fake = granting();
    let operation =
        || safe(&client(&fake).dependency("d")).profile(Profile::stream()).deadline(Deadline::unbounded());
    let start = Instant::now();
    let error = operation().call(|_| async { Err::<(), _>(transient()) }).await.unwrap_err();
    assert_eq!((error.reason, error.attempts), (StopReason::NoProgress, 10));
    assert!(start.elapsed() <= ms(1000 + 2000 + 4000 + 8000 + 16_000 + 4 * 30_000));

    let starts = Mutex::new(Vec::new());
    let lasting = operation().call(|attempt| {
        starts.lock().push(Instant::now());
        async move {
            tokio::time::sleep(ms(60_000)).await;
            attempt.progressed();
            if attempt.number() < 30 { Err(transient()) } else { Ok(()) }
        }
    });
    lasting.await.unwrap();
    let starts = starts.into_inner();
    assert_eq!(starts.len(), 30);
    let short = |pair: &[Instant]| pair[1] - pair[0] <= ms(61_002);
    assert!(starts.windows(2).all(short), "a minute each, and a second between them at most");
    assert!(
        fake.asks.lock().iter().all(|(_, ask)| ask.attempt <= 4),
        "the server knows of no endless operations"
    );
}

#[tokio::test(start_paused = true)]
async fn permits_make_attempts_by_hand() {
    let fake = granting();
    let dependency = client(&fake).dependency("d");
    let permit = safe(&dependency).admit().await.unwrap();
    assert_eq!((permit.attempt().number(), dependency.in_flight()), (1, 1));
    let permit = permit.failed(transient()).await.unwrap();
    assert_eq!(permit.attempt().number(), 2);
    permit.succeeded();
    let totals = dependency.totals();
    assert_eq!((totals.physical, totals.success, totals.recovered), (2, 1, 1));
    drop(safe(&dependency).admit().await.unwrap());
    assert_eq!((dependency.totals().abandoned, dependency.in_flight()), (1, 0));
    let error =
        safe(&dependency).admit().await.unwrap().failed(Failure::new(FailureClass::Fatal)).await.unwrap_err();
    assert_eq!(error.reason, StopReason::NotRetryable);
}

#[tokio::test(start_paused = true)]
async fn the_history_is_kept_and_bounded() {
    let fake = granting();
    *fake.told.lock() = Some(told(|told| told.policy.max_attempts = 30));
    let dependency = client(&fake).dependency("d");
    let attempt = |_| async {
        tokio::time::sleep(ms(7)).await;
        Err::<(), _>(transient())
    };
    let few = safe(&dependency).profile(Profile::standard()).deadline(ms(600_000));
    let error = few.call(attempt).await.unwrap_err();
    let numbers: Vec<u32> = error.history.iter().map(|past| past.attempt).collect();
    assert_eq!(numbers, [1, 2, 3, 4]);
    assert!(error.history.iter().all(|past| past.took >= ms(7) && past.failure == transient()));
    let many = safe(&dependency).profile(Profile::standard().with_attempts(30)).deadline(ms(6_000_000));
    let error = many.call(attempt).await.unwrap_err();
    assert_eq!((error.attempts, error.history.len()), (30, 16));
    assert_eq!(error.history.last().unwrap().attempt, 30);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_observes_asks_and_obeys_nothing() {
    struct Watcher(Arc<AtomicU32>);
    impl Observer for Watcher {
        fn overruled(&self, _: &str, _: StopReason) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let fake = Fake::new(|_| {
        let shed = answer(Decision::Shed, Reason::BudgetExhausted);
        Step::at_once(Ok(damper_protocol::AskResponse { suppress_ms: 60_000, ..shed }))
    });
    *fake.told.lock() = Some(told(|told| {
        told.breaker = BreakerView { state: BreakerState::Open, version: 2, open_for_ms: 600_000 };
        told.first =
            Some(damper_protocol::FirstAttempts { per_s: 0.0, burst: 0.0, ttl_ms: 9000, safe_per_s: 0.0 });
    }));
    let overruled = Arc::new(AtomicU32::new(0));
    let builder = Damper::builder("").observer(Watcher(Arc::clone(&overruled)));
    let damper = builder.build_over(Arc::clone(&fake) as Arc<dyn Transport>, Switch::Observe);
    synced(&damper).await;
    let dependency = damper.dependency("d");
    for _ in 0..5 {
        assert_eq!(call(safe(&dependency), vec![transient()]).await.unwrap(), 2);
    }
    assert_eq!((fake.asks.lock().len(), overruled.load(Ordering::Relaxed)), (5, 5));
    assert!(!damper.health().retries_off);
}

#[tokio::test(start_paused = true)]
async fn no_operation_makes_more_attempts_than_the_client_may() {
    let fake = granting();
    let builder = Damper::builder("").max_attempts(2);
    let damper = builder.build_over(Arc::clone(&fake) as Arc<dyn Transport>, Switch::On);
    for profile in [Profile::background(), Profile::stream()] {
        let operation = safe(&damper.dependency("d")).profile(profile);
        let error = operation.call(|_| async { Err::<(), _>(transient()) }).await.unwrap_err();
        assert_eq!((error.reason, error.attempts), (StopReason::AttemptsExhausted, 2));
    }
    assert_eq!(of(&fake, Switch::NoRetry).totals().logical, 0);
}
