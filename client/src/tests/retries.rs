//! What is retried, and how an ask goes.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_granted_retry_waits_out_its_backoff_in_the_ask() {
    let fake = Fake::new(|ask| Step {
        decided_after: ms(ask.earliest_ms),
        ..Step::at_once(Ok(answer(Decision::Granted, Reason::AfterDelay)))
    });
    let damper = client(&fake);
    let dependency = damper.dependency("d");
    assert_eq!(call(safe(&dependency), vec![transient(), transient()]).await.unwrap(), 3);
    let asks = fake.asks.lock().clone();
    let attempts: Vec<u32> = asks.iter().map(|(_, ask)| ask.attempt).collect();
    assert_eq!(attempts, [2, 3]);
    assert!(asks.iter().all(|(_, ask)| ask.operation == asks[0].1.operation && ask.idempotent));
    assert_ne!(asks[0].1.request_id, asks[1].1.request_id);
    let totals = dependency.totals();
    assert_eq!((totals.logical, totals.physical, totals.success), (1, 3, 1));
    assert_eq!((totals.affected, totals.recovered, totals.failures.transient), (1, 1, 2));
}

#[tokio::test(start_paused = true)]
async fn an_early_grant_does_not_shorten_the_backoff() {
    let fake = Fake::new(|_| Step::at_once(Ok(granted())));
    let dependency = client(&fake).dependency("d");
    for _ in 0..20 {
        let starts = Mutex::new(Vec::new());
        safe(&dependency)
            .call(|attempt| {
                starts.lock().push(Instant::now());
                async move { if attempt.number() == 1 { Err(transient()) } else { Ok(()) } }
            })
            .await
            .unwrap();
        let starts = starts.into_inner();
        let (asked_at, ask) = fake.asks.lock().pop().unwrap();
        assert!(starts[1] + ms(1) >= asked_at + ms(ask.earliest_ms));
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_ends_the_operation_at_once_with_the_server_s_word() {
    for reason in [Reason::NoCapacityBeforeDeadline, Reason::QueueFull, Reason::BudgetExhausted] {
        let fake = Fake::new(move |_| Step::at_once(Ok(answer(Decision::Shed, reason))));
        let dependency = client(&fake).dependency("d");
        let error = call(safe(&dependency), vec![transient()]).await.unwrap_err();
        assert_eq!(error.reason.as_str(), reason.as_str());
        assert_eq!((error.attempts, error.last), (1, Some(transient())));
        assert_eq!(dependency.totals().shed, 0, "the server counts its own refusals");
    }
    let fake = Fake::new(|_| Step::at_once(Ok(answer(Decision::Expired, Reason::Expired))));
    let error = call(safe(&client(&fake).dependency("d")), vec![transient()]).await.unwrap_err();
    assert_eq!(error.reason, StopReason::Expired);
}

#[tokio::test(start_paused = true)]
async fn suppression_sheds_locally_until_it_is_over() {
    let fake = Fake::new(|_| {
        let shed = answer(Decision::Shed, Reason::BudgetExhausted);
        Step::at_once(Ok(damper_protocol::AskResponse { suppress_ms: 500, ..shed }))
    });
    let dependency = client(&fake).dependency("d");
    let mut reasons = Vec::new();
    for pause_ms in [0, 100, 500] {
        tokio::time::sleep(ms(pause_ms)).await;
        reasons.push(call(safe(&dependency), vec![transient()]).await.unwrap_err().reason);
    }
    assert_eq!(reasons, [StopReason::BudgetExhausted, StopReason::Suppressed, StopReason::BudgetExhausted]);
    assert_eq!((fake.asks.lock().len(), dependency.totals().shed), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn an_unsafe_operation_is_repeated_only_if_it_had_no_effect() {
    for dispatch in Dispatch::ALL {
        let fake = Fake::new(|_| Step::at_once(Ok(granted())));
        let dependency = client(&fake).dependency("d");
        let outcome = call(dependency.operation("charge"), vec![transient().with_dispatch(*dispatch)]).await;
        let harmless = matches!(dispatch, Dispatch::NotSent | Dispatch::NotProcessed);
        assert_eq!(outcome.is_ok(), harmless, "{dispatch}");
        assert_eq!(dependency.totals().physical, if harmless { 2 } else { 1 });
        if let Err(error) = outcome {
            assert_eq!(error.reason, StopReason::AmbiguousNotRepeatable);
            assert_eq!(error.ambiguous, *dispatch == Dispatch::Ambiguous);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_attempt_of_a_keyed_operation_has_the_same_key() {
    let fake = Fake::new(|_| Step::at_once(Ok(granted())));
    let keys = Mutex::new(Vec::new());
    let operation = client(&fake).dependency("d").operation("charge").idempotency(Idempotency::keyed("k1"));
    operation
        .call(|attempt| {
            keys.lock().push(attempt.idempotency_key().map(str::to_owned));
            async move { if attempt.number() < 3 { Err(transient()) } else { Ok(()) } }
        })
        .await
        .unwrap();
    assert_eq!(keys.into_inner(), vec![Some("k1".to_owned()); 3]);
    assert!(fake.asks.lock().iter().all(|(_, ask)| ask.recovery_mode.is_some()));
}

#[tokio::test(start_paused = true)]
async fn a_repeated_ask_has_the_same_id_and_shorter_times() {
    let asked = AtomicU32::new(0);
    let fake = Fake::new(move |_| match asked.fetch_add(1, Ordering::Relaxed) {
        0 => Step::hung(),
        _ => Step::at_once(Ok(granted())),
    });
    let dependency = client(&fake).dependency("d");
    call(safe(&dependency).deadline(ms(5000)), vec![transient()]).await.unwrap();
    let asks = fake.asks.lock().clone();
    assert_eq!(asks.len(), 2);
    assert_eq!(asks[0].1.request_id, asks[1].1.request_id);
    assert!(asks[1].1.deadline_ms <= asks[0].1.deadline_ms - 20);
}

#[tokio::test(start_paused = true)]
async fn a_long_pause_is_slept_first_and_reported_at_once() {
    let fake = Fake::new(|ask| match ask.max_wait_ms {
        Some(0) => Step::at_once(Ok(answer(Decision::Shed, Reason::BudgetExhausted))),
        _ => Step::at_once(Ok(granted())),
    });
    let dependency = client(&fake).dependency("d");
    let start = Instant::now();
    let failure = Failure::new(FailureClass::RateLimited).with_retry_after(ms(4000));
    assert_eq!(call(safe(&dependency), vec![failure]).await.unwrap(), 2);
    assert!(start.elapsed() >= ms(4000));
    let asks = fake.asks.lock().clone();
    assert_eq!(asks.len(), 2);
    assert_eq!(asks[0].1.failure.as_ref().unwrap().retry_after_ms, Some(4000));
    assert_eq!((asks[0].0 - start, asks[0].1.max_wait_ms), (Duration::ZERO, Some(0)));
    assert!(asks[1].0 - start >= ms(4000));
    assert_eq!(asks[1].1.failure.as_ref().unwrap().retry_after_ms, None, "the pause is over");
    assert_eq!(asks[1].1.earliest_ms, 0);
}

#[tokio::test(start_paused = true)]
async fn a_pause_after_the_last_attempt_is_reported_and_not_slept() {
    let fake = Fake::new(|ask| match ask.max_wait_ms {
        Some(0) => Step::at_once(Ok(answer(Decision::Shed, Reason::BudgetExhausted))),
        _ => Step::at_once(Ok(granted())),
    });
    let dependency = client(&fake).dependency("d");
    let (start, last) = (Instant::now(), transient().with_retry_after(ms(4000)));
    let operation = safe(&dependency).profile(crate::Profile::interactive());
    let error = call(operation, vec![transient(), last]).await.unwrap_err();
    assert_eq!((error.reason, error.attempts), (StopReason::AttemptsExhausted, 2));
    assert!(start.elapsed() < ms(1000), "{:?}", start.elapsed());
    tokio::time::sleep(ms(1)).await;
    let asks = fake.asks.lock().clone();
    let told =
        asks.last().and_then(|(_, ask)| ask.failure.clone()).and_then(|failure| failure.retry_after_ms);
    assert_eq!((asks.len(), told, asks[1].1.max_wait_ms), (2, Some(4000), Some(0)));
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_grows_is_kept_until_it_does_not_fit() {
    let fake = Fake::new(|_| Step::at_once(Ok(granted())));
    let dependency = client(&fake).dependency("d");
    let pauses = [400, 1600, 6400];
    let starts = Mutex::new(Vec::new());
    let error = safe(&dependency)
        .deadline(ms(5000))
        .call(|attempt| {
            starts.lock().push(Instant::now());
            let pause = pauses[attempt.number() as usize - 1];
            async move { Err::<(), _>(transient().with_retry_after(ms(pause))) }
        })
        .await
        .unwrap_err();
    assert_eq!((error.reason, error.attempts), (StopReason::RetryAfterBeyondDeadline, 3));
    let starts = starts.into_inner();
    for (pair, pause) in starts.windows(2).zip(pauses) {
        assert!(pair[1] - pair[0] >= ms(pause), "{pause} ms");
    }
    assert_eq!(starts[2].elapsed(), Duration::ZERO, "it stops at once");
}

#[tokio::test(start_paused = true)]
async fn b04_a_pause_beyond_the_deadline_stops_at_once_and_holds_the_siblings() {
    let fake = Fake::new(|_| Step::at_once(Ok(answer(Decision::Shed, Reason::RetryAfterBeyondDeadline))));
    let dependency = client(&fake).dependency("d");
    let start = Instant::now();
    let failure = transient().with_retry_after(ms(86_400_000));
    let error = call(safe(&dependency).deadline(ms(2000)), vec![failure]).await.unwrap_err();
    assert_eq!(error.reason, StopReason::RetryAfterBeyondDeadline);
    let sibling = call(safe(&dependency).deadline(ms(2000)), vec![transient()]).await.unwrap_err();
    assert_eq!(sibling.reason, StopReason::RetryAfterBeyondDeadline);
    assert_eq!(start.elapsed(), Duration::ZERO);
    tokio::time::sleep(ms(1)).await;
    assert_eq!(fake.asks.lock().len(), 1, "told once, not by every operation");
}

#[tokio::test(start_paused = true)]
async fn the_observer_sees_one_end_of_each_operation() {
    #[derive(Default)]
    struct Log(Arc<Mutex<Vec<String>>>);
    impl Observer for Log {
        fn attempt_started(&self, _: &str, number: u32) {
            self.0.lock().push(format!("attempt {number}"));
        }
        fn granted(&self, _: &str, reason: Reason, waited: Duration) {
            self.0.lock().push(format!("{reason} {}", waited.as_millis()));
        }
        fn stopped(&self, _: &str, reason: StopReason) {
            self.0.lock().push(reason.to_string());
        }
        fn succeeded(&self, _: &str, attempts: u32) {
            self.0.lock().push(format!("succeeded {attempts}"));
        }
    }
    let log = Arc::new(Mutex::new(Vec::new()));
    let fake = Fake::new(|_| Step::at_once(Ok(granted())));
    let damper = Damper::builder("")
        .observer(Log(Arc::clone(&log)))
        .build_over(fake as Arc<dyn Transport>, Switch::On);
    let dependency = damper.dependency("d");
    call(safe(&dependency), vec![transient()]).await.unwrap();
    call(safe(&dependency), vec![Failure::new(FailureClass::Semantic)]).await.unwrap_err();
    let expected = ["attempt 1", "within_budget 0", "attempt 2", "succeeded 2", "attempt 1", "not_retryable"];
    assert_eq!(log.lock().clone(), expected);
}

/// Whoever says how long, callers add it to a clock.
#[tokio::test(start_paused = true)]
async fn no_pause_is_longer_than_a_year_and_a_day() {
    let longest = Duration::from_secs(366 * 86_400);
    let patient = Fake::new(|_| Step::at_once(Ok(granted())));
    let refusing = Fake::new(|_| {
        let mut refused = answer(Decision::Shed, Reason::QueueFull);
        refused.retry_after_ms = Some(u64::MAX);
        Step::at_once(Ok(refused))
    });
    for (fake, pause) in [(patient, Some(Duration::MAX)), (refusing, None)] {
        let mut failure = transient();
        failure.retry_after = pause;
        let error = call(safe(&client(&fake).dependency("d")), vec![failure]).await.unwrap_err();
        assert_eq!(error.retry_after, Some(longest), "{}", error.reason);
    }
}
