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
        told.first = Some(damper_protocol::FirstAttempts {
            per_s: 0.0,
            burst: 0.0,
            ttl_ms: 9000,
            safe_per_s: 0.0,
            safe_for_ms: None,
        });
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

#[tokio::test(start_paused = true)]
async fn a_misdirected_request_is_sent_again_once_whatever_comes_between() {
    let dependency = client(&granting()).dependency("d");
    let misdirected = || transient().with_dispatch(Dispatch::NotProcessed).with_code("421");
    assert_eq!(call(safe(&dependency), vec![misdirected(), transient()]).await.unwrap(), 3);
    let error = call(safe(&dependency), vec![misdirected(), transient(), misdirected()]).await.unwrap_err();
    assert_eq!((error.reason, error.attempts), (StopReason::NotRetryable, 3));
}

/// The first attempt's task says something when the second has been sent.
#[tokio::test(start_paused = true)]
async fn a_late_note_says_nothing_about_a_later_attempt() {
    let dependency = client(&granting()).dependency("d");
    let late = Mutex::new(None);
    let operation = dependency.operation("charge").call(|attempt| {
        let number = attempt.number();
        if number == 1 {
            attempt.note_dispatch(Dispatch::NotSent);
            *late.lock() = Some(attempt);
        } else if let Some(first) = &*late.lock() {
            first.note_dispatch(Dispatch::NotSent);
        }
        async { Err::<(), _>(transient()) }
    });
    let error = operation.await.unwrap_err();
    assert_eq!((error.reason, error.attempts), (StopReason::AmbiguousNotRepeatable, 2));
    assert!(error.ambiguous);

    *late.lock() = None;
    let operation = dependency.operation("charge").call(|attempt| {
        attempt.note_dispatch(if attempt.number() == 1 { Dispatch::NotSent } else { Dispatch::Processed });
        late.lock().get_or_insert(attempt).note_dispatch(Dispatch::NotSent);
        async { Err::<(), _>(transient()) }
    });
    let error = operation.await.unwrap_err();
    assert_eq!(
        (error.attempts, error.failure.unwrap().dispatch),
        (2, Dispatch::Processed),
        "its own word stands"
    );
}

/// When it may fare better, by what ended it.
#[tokio::test(start_paused = true)]
async fn an_error_says_when_to_come_again() {
    let shed = |reason, retry_after_ms| {
        let answer = damper_protocol::AskResponse { retry_after_ms, ..answer(Decision::Shed, reason) };
        Fake::new(move |_| Step::at_once(Ok(answer.clone())))
    };
    let open = |told: &mut SyncedDependency| {
        told.breaker = BreakerView { state: BreakerState::Open, version: 2, open_for_ms: 30_000 };
    };
    let silent = |told: &mut SyncedDependency| told.suppress_ms = 7000;
    let nothing = |_: &mut SyncedDependency| {};
    type Told = fn(&mut SyncedDependency);
    let cases: [(_, Told, _, _, Option<u64>); 6] = [
        (
            shed(Reason::BudgetExhausted, Some(2500)),
            nothing,
            transient(),
            StopReason::BudgetExhausted,
            Some(2500),
        ),
        (shed(Reason::QueueFull, None), nothing, transient(), StopReason::QueueFull, None),
        (granting(), open, transient(), StopReason::BreakerOpen, Some(30_000)),
        (granting(), silent, transient(), StopReason::Suppressed, Some(7000)),
        (
            granting(),
            nothing,
            transient().with_retry_after(ms(60_000)),
            StopReason::RetryAfterBeyondDeadline,
            Some(60_000),
        ),
        (granting(), nothing, Failure::new(FailureClass::Invalid), StopReason::NotRetryable, None),
    ];
    for (fake, tell, failure, reason, expected) in cases {
        *fake.told.lock() = Some(told(tell));
        let damper = client(&fake);
        // Only what is told while it runs counts: the first sync is that of the first call.
        let first = synced_or_refused(&damper).await;
        let error = call(safe(&damper.dependency("d")), vec![failure]).await.unwrap_err();
        assert_eq!(error.reason, reason);
        let said = error.retry_after.map(|pause| u64::try_from(pause.as_millis()).unwrap());
        let close = |expected: u64| (expected - 50..=expected).contains(&said.unwrap_or_default());
        assert!(expected.map_or(said.is_none(), close), "{reason}: {said:?} after {first:?}");
    }
}

async fn synced_or_refused(damper: &Damper) -> Duration {
    let start = Instant::now();
    synced(damper).await;
    start.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_hung_attempt_ends_at_its_own_timeout_and_is_made_again() {
    let dependency = client(&granting()).dependency("d");
    let start = Instant::now();
    let hung_once = safe(&dependency).attempt_timeout(ms(200)).call(|attempt| async move {
        match attempt.number() {
            1 => std::future::pending().await,
            number => Ok::<_, Failure>((number, attempt.remaining())),
        }
    });
    assert_eq!(hung_once.await.unwrap(), (2, ms(200)), "the second has as much");
    assert!((ms(200)..ms(460)).contains(&start.elapsed()));
    let totals = dependency.totals();
    assert_eq!((totals.failures.transient, totals.reasons.timeout, totals.recovered), (1, 1, 1));

    let unsafe_one = dependency.operation("charge").attempt_timeout(ms(200));
    let error = unsafe_one.call(|_| std::future::pending::<Result<(), Failure>>()).await.unwrap_err();
    assert_eq!((error.reason, error.attempts), (StopReason::AmbiguousNotRepeatable, 1));

    let short = safe(&dependency).attempt_timeout(ms(500)).deadline(ms(300));
    let error = short.call(|_| std::future::pending::<Result<(), Failure>>()).await.unwrap_err();
    assert_eq!((error.reason, error.attempts), (StopReason::DeadlineExceeded, 1), "never past the deadline");
    assert!(error.failure.unwrap().caller_rejected);
}
