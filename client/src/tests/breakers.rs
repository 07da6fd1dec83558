//! The dependency's breaker.

use super::*;

/// A server whose breaker is half-open, and which grants probes.
fn half_open() -> Arc<Fake> {
    let fake = Fake::new(|_| {
        let probe = answer(Decision::Granted, Reason::Probe);
        let breaker = BreakerVersion { state: BreakerState::HalfOpen, version: 4 };
        Step::at_once(Ok(damper_protocol::AskResponse { breaker, ..probe }))
    });
    *fake.told.lock() = Some(told(|told| {
        told.breaker = BreakerView { state: BreakerState::HalfOpen, version: 4, open_for_ms: 0 };
    }));
    fake
}

#[tokio::test(start_paused = true)]
async fn an_open_breaker_stops_first_attempts_without_asking() {
    let fake = Fake::new(|_| Step::at_once(Ok(granted())));
    *fake.told.lock() = Some(told(|told| {
        told.breaker = BreakerView { state: BreakerState::Open, version: 3, open_for_ms: 5000 };
    }));
    let damper = client(&fake);
    synced(&damper).await;
    let dependency = damper.dependency("d");
    let error = call(safe(&dependency), vec![]).await.unwrap_err();
    assert_eq!((error.reason, error.attempts), (StopReason::BreakerOpen, 0));
    assert!(error.had_no_effect() && fake.asks.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_open_breaker_of_retries_alone_lets_first_attempts_pass() {
    let fake = Fake::new(|_| Step::at_once(Ok(granted())));
    *fake.told.lock() = Some(told(|told| {
        told.breaker = BreakerView { state: BreakerState::Open, version: 3, open_for_ms: 60_000 };
        told.policy = PolicyView { on_open: OnOpen::Retries, ..PolicyView::default() };
    }));
    let damper = client(&fake);
    synced(&damper).await;
    let dependency = damper.dependency("d");
    let error = call(safe(&dependency), vec![transient()]).await.unwrap_err();
    assert_eq!((error.reason, error.attempts), (StopReason::BreakerOpen, 1));
    assert!(fake.asks.lock().is_empty());
    assert_eq!(dependency.totals().shed, 1);
}

#[tokio::test(start_paused = true)]
async fn a_half_open_breaker_makes_a_first_attempt_a_probe_and_reports_it() {
    let fake = half_open();
    let damper = client(&fake);
    synced(&damper).await;
    call(safe(&damper.dependency("d")), vec![]).await.unwrap();
    let (_, ask) = fake.asks.lock().pop().unwrap();
    assert_eq!((ask.kind, ask.attempt, ask.max_wait_ms), (damper_protocol::AskKind::First, 1, Some(0)));
    tokio::time::sleep(ms(10)).await;
    let sync = fake.syncs.lock().pop().unwrap();
    let probes = sync.dependencies["d"].probes.clone().unwrap();
    assert_eq!(probes.len(), 1);
    assert!(probes[0].success && probes[0].token == "token");
    damper.flush().await.unwrap();
    let sync = fake.syncs.lock().pop().unwrap();
    assert_eq!(sync.dependencies["d"].probes, Some(vec![]), "delivered once");
}

#[tokio::test(start_paused = true)]
async fn a_first_attempt_without_a_probe_fails_fast_and_an_outage_lets_it_pass() {
    for (step, passes) in [
        (Step::at_once(Ok(answer(Decision::Shed, Reason::BreakerHalfOpen))), false),
        (Step::hung(), true),
        (Step::at_once(Err(Fault::Unreachable)), true),
    ] {
        let fake = Fake::new(move |_| step.clone());
        *fake.told.lock() = Some(told(|told| {
            told.breaker = BreakerView { state: BreakerState::HalfOpen, version: 4, open_for_ms: 0 };
        }));
        let damper = client(&fake);
        synced(&damper).await;
        let outcome = call(safe(&damper.dependency("d")), vec![]).await;
        assert_eq!(outcome.is_ok(), passes);
        if let Err(error) = outcome {
            assert_eq!((error.reason, error.attempts), (StopReason::BreakerHalfOpen, 0));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_breaker_that_opened_during_the_wait_stops_the_retry_and_returns_the_token() {
    let fake = Fake::new(|ask| Step { decided_after: ms(ask.earliest_ms), ..Step::at_once(Ok(granted())) });
    let damper = client(&fake);
    synced(&damper).await;
    let dependency = damper.dependency("d");
    *fake.told.lock() = Some(told(|told| {
        told.breaker = BreakerView { state: BreakerState::Open, version: 9, open_for_ms: 60_000 };
        told.policy = PolicyView { on_open: OnOpen::Retries, ..PolicyView::default() };
    }));
    let flushing = damper.clone();
    let operation = safe(&dependency);
    let error = operation
        .call(|_| {
            let damper = flushing.clone();
            async move {
                tokio::spawn(async move { damper.flush().await });
                Err::<(), _>(transient())
            }
        })
        .await
        .unwrap_err();
    assert_eq!(error.reason, StopReason::BreakerOpen);
    tokio::time::sleep(ms(1)).await;
    assert_eq!(fake.returned.lock().len(), fake.asks.lock().len());
}

#[tokio::test(start_paused = true)]
async fn an_observer_hears_of_breakers_once_for_each_change() {
    struct Log(Arc<Mutex<Vec<String>>>);
    impl Observer for Log {
        fn breaker_changed(&self, dependency: &str, state: BreakerState) {
            self.0.lock().push(format!("{dependency} {}", state.as_str()));
        }
        fn mode_changed(&self, mode: damper_protocol::Mode) {
            self.0.lock().push(format!("{mode:?}"));
        }
    }
    let log = Arc::new(Mutex::new(Vec::new()));
    let fake = Fake::new(|_| Step::at_once(Ok(granted())));
    let transport = Arc::clone(&fake) as Arc<dyn Transport>;
    let damper = Damper::builder("").observer(Log(Arc::clone(&log))).build_over(transport, Switch::On);
    let _dependency = damper.dependency("d");
    for (state, version) in [
        (BreakerState::Closed, 1),
        (BreakerState::Open, 2),
        (BreakerState::Open, 2),
        (BreakerState::HalfOpen, 3),
        (BreakerState::Closed, 4),
    ] {
        *fake.told.lock() =
            Some(told(|told| told.breaker = BreakerView { state, version, open_for_ms: 5000 }));
        damper.flush().await.unwrap();
    }
    *fake.mode.lock() = damper_protocol::Mode::Learning;
    damper.flush().await.unwrap();
    assert_eq!(log.lock().clone(), ["d open", "d half_open", "d closed", "Learning"]);
}

/// How a probe ends, and what the server is told: only an answer says that the dependency is well.
#[tokio::test(start_paused = true)]
async fn only_an_answer_makes_a_probe_healthy() {
    type Ending = fn() -> futures_util::future::BoxFuture<'static, Result<(), Failure>>;
    let cases: [(Ending, Option<bool>); 6] = [
        (|| Box::pin(async { Ok(()) }), Some(true)),
        (|| Box::pin(async { Err(Failure::new(FailureClass::Transient)) }), Some(false)),
        (|| Box::pin(async { Err(Failure::new(FailureClass::Invalid)) }), None),
        (|| Box::pin(async { Err(Failure::new(FailureClass::Transient).rejected_by_caller()) }), None),
        (|| Box::pin(std::future::pending()), None),
        (|| Box::pin(async { panic!("a bug of the caller") }), None),
    ];
    for (number, (ending, expected)) in cases.into_iter().enumerate() {
        let fake = half_open();
        let damper = client(&fake);
        synced(&damper).await;
        let operation = safe(&damper.dependency("d")).deadline(ms(100)).profile(crate::Profile::never());
        let probe = tokio::spawn(operation.call(move |_| ending()));
        let _ = probe.await;
        tokio::time::sleep(ms(10)).await;
        damper.flush().await.unwrap();
        let syncs = fake.syncs.lock();
        let told = syncs.iter().flat_map(|sync| sync.dependencies["d"].probes.clone().unwrap_or_default());
        let told: Vec<bool> = told.map(|probe| probe.success).collect();
        assert_eq!(told.first().copied(), expected, "case {number}: {told:?}");
    }
}

/// Ten wait for their turn while the breaker opens and half-opens: they are no more welcome than newcomers.
#[tokio::test(start_paused = true)]
async fn who_waited_for_a_turn_asks_for_a_probe_like_everybody() {
    let fake = Fake::new(|_| Step::at_once(Ok(answer(Decision::Shed, Reason::BreakerHalfOpen))));
    *fake.told.lock() = Some(told(|told| {
        told.first = Some(damper_protocol::FirstAttempts {
            per_s: 1.0,
            burst: 1.0,
            ttl_ms: 60_000,
            safe_per_s: 1.0,
            safe_for_ms: None,
        });
    }));
    let damper = client(&fake);
    synced(&damper).await;
    let dependency = damper.dependency("d");
    let waiting: Vec<_> =
        (0..10).map(|_| tokio::spawn(call(safe(&dependency).deadline(ms(30_000)), vec![]))).collect();
    tokio::time::sleep(ms(500)).await;
    let passed = dependency.totals().physical;
    *fake.told.lock() = Some(told(|told| {
        told.breaker = BreakerView { state: BreakerState::HalfOpen, version: 4, open_for_ms: 0 };
    }));
    damper.flush().await.unwrap();
    for outcome in waiting {
        if let Err(error) = outcome.await.unwrap() {
            assert_eq!(error.reason, StopReason::BreakerHalfOpen);
        }
    }
    assert!(dependency.totals().physical <= passed, "nobody slipped in: {:?}", dependency.totals());
    assert!(!fake.asks.lock().is_empty());
}
