//! No server: the emergency budget, the breaker towards it, and its return.

use damper_protocol::AskRequest;
use tracing::Level;

use super::{logs::Logs, *};
use crate::core::Answer;

#[tokio::test(start_paused = true)]
async fn a_hung_server_costs_forty_milliseconds_and_a_dead_circuit_none() {
    let fake = Fake::new(|_| Step::hung());
    *fake.told.lock() = None;
    let damper = client(&fake);
    let dependency = damper.dependency("d");
    let mut reasons = Vec::new();
    for _ in 0..6 {
        let start = Instant::now();
        let error = call(safe(&dependency), vec![transient()]).await.unwrap_err();
        assert!(start.elapsed() <= ms(42), "{:?}", start.elapsed());
        reasons.push(error.reason);
    }
    assert_eq!(reasons, [StopReason::EmergencyExhausted; 6]);
    let asks = fake.asks.lock().len();
    assert!(asks <= 10, "{asks} asks: the circuit has not opened");
    let start = Instant::now();
    call(safe(&dependency), vec![transient()]).await.unwrap_err();
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn without_a_server_retries_follow_recent_successes() {
    let damper = client(&Fake::dead());
    let dependency = damper.dependency("d");
    for _ in 0..100 {
        call(safe(&dependency), vec![]).await.unwrap();
        tokio::time::sleep(ms(100)).await;
    }
    let (mut operations, mut recovered) = (0, 0);
    let start = Instant::now();
    while start.elapsed() < ms(10_000) {
        operations += 1;
        recovered += u32::from(call(safe(&dependency), vec![transient()]).await.is_ok());
        tokio::time::sleep(ms(10)).await;
    }
    assert!((4..=12).contains(&recovered), "{recovered} of {operations}");
    assert_eq!(dependency.totals().emergency, u64::from(recovered));
    assert_eq!(dependency.totals().shed, u64::from(operations - recovered));
}

#[tokio::test(start_paused = true)]
async fn savings_of_the_emergency_budget_are_for_a_lost_answer_not_for_an_outage() {
    for (fault, granted_at_once) in [(Fault::NoAnswer, true), (Fault::Unreachable, false)] {
        let fake = Fake::new(move |_| Step::at_once(Err(fault)));
        *fake.told.lock() = Some(told(|told| {
            told.emergency = damper_protocol::Emergency { per_s: 1.0, ratio: 0.1, ..Default::default() };
        }));
        let dependency = client(&fake).dependency("d");
        for _ in 0..200 {
            call(safe(&dependency), vec![]).await.unwrap();
            tokio::time::sleep(ms(20)).await;
        }
        assert_eq!(call(safe(&dependency), vec![transient()]).await.is_ok(), granted_at_once, "{fault}");
    }
}

#[tokio::test(start_paused = true)]
async fn b13_fail_closed_denies_every_retry_and_no_first_attempt() {
    let closed = Damper::builder("").fail_mode(FailMode::Closed);
    let damper = closed.build_over(Fake::dead() as Arc<dyn Transport>, Switch::On);
    let dependency = damper.dependency("d");
    let mut reasons = Vec::new();
    for _ in 0..8 {
        call(safe(&dependency), vec![]).await.unwrap();
        reasons.push(call(safe(&dependency), vec![transient()]).await.unwrap_err().reason);
    }
    assert_eq!(reasons[0], StopReason::FailClosed);
    assert_eq!(reasons[7], StopReason::CircuitOpen);
    let totals = dependency.totals();
    assert_eq!((totals.physical, totals.success, totals.shed), (16, 8, 8));
}

#[tokio::test(start_paused = true)]
async fn c7_a_server_that_is_back_is_used_within_two_seconds() {
    let back = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let is_back = Arc::clone(&back);
    let fake = Fake::new(move |_| match is_back.load(Ordering::Relaxed) {
        true => Step::at_once(Ok(granted())),
        false => Step::at_once(Err(Fault::Unreachable)),
    });
    *fake.told.lock() = None;
    let damper = client(&fake);
    let dependency = damper.dependency("d");
    for _ in 0..10 {
        call(safe(&dependency), vec![transient()]).await.unwrap_err();
    }
    tokio::time::sleep(ms(5000)).await;
    assert_eq!(damper.health().server, crate::Reachability::Down);
    *fake.told.lock() = Some(told(|told| {
        told.emergency = damper_protocol::Emergency { per_s: 0.0, ratio: 0.0, ..Default::default() }
    }));
    back.store(true, Ordering::Relaxed);
    tokio::time::sleep(ms(2000)).await;
    assert_eq!(damper.health().server, crate::Reachability::Up);
    assert_eq!(call(safe(&dependency), vec![transient()]).await.unwrap(), 2);
    assert_eq!(dependency.totals().emergency, 0);
}

#[tokio::test(start_paused = true)]
async fn shutdown_without_a_server_ends_in_time() {
    let damper = client(&Fake::dead());
    call(safe(&damper.dependency("d")), vec![]).await.unwrap();
    let report = damper.shutdown(ms(50)).await;
    assert_eq!((report.delivered, report.undelivered), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn an_answer_counts_until_the_twentieth_millisecond() {
    let alone = Err(StopReason::EmergencyExhausted);
    for (answered_after_ms, asks, expected) in [(19, 1, Ok(())), (20, 1, Ok(())), (21, 2, alone)] {
        let admitted_after = ms(answered_after_ms);
        let fake = Fake::new(move |_| Step { admitted_after, ..Step::at_once(Ok(granted())) });
        let dependency = client(&fake).dependency("d");
        let ended = call(safe(&dependency), vec![transient()]).await.map(drop).map_err(|error| error.reason);
        assert_eq!(ended, expected, "after {answered_after_ms} ms: the outage rules decide from the next on");
        let asked = fake.asks.lock();
        let ids: std::collections::BTreeSet<_> = asked.iter().map(|(_, ask)| &ask.request_id).collect();
        assert_eq!((asked.len(), ids.len()), (asks, 1), "{answered_after_ms} ms: one id");
    }
}

/// Makes an operation that fails at first every 100 ms; returns the time that they had to wait for the server.
async fn stumble_for(dependency: &Dependency, span: Duration) -> Duration {
    let (start, mut waited) = (Instant::now(), Duration::ZERO);
    while start.elapsed() < span {
        let called = Instant::now();
        let _ = call(safe(dependency), vec![transient()]).await;
        waited += called.elapsed();
        tokio::time::sleep(ms(100)).await;
    }
    waited
}

#[tokio::test(start_paused = true)]
async fn asks_that_hang_beside_syncs_that_work_cost_little_and_are_said_once() {
    let (logs, _guard) = Logs::of_this_thread();
    let works = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let does = Arc::clone(&works);
    let fake = Fake::new(move |_| match does.load(Ordering::Relaxed) {
        true => Step::at_once(Ok(answer(Decision::Shed, Reason::QueueFull))),
        false => Step::hung(),
    });
    let damper = client(&fake);
    let dependency = damper.dependency("d");
    let waited = stumble_for(&dependency, ms(60_000)).await;
    // Five asks and their repeats, then probes after 1, 2, 4, 8, 16 and 30 s.
    assert!(waited <= ms(5 * 40 + 6 * 20 + 20), "{waited:?}");
    let asks = fake.asks.lock().len();
    assert!((14..=16).contains(&asks), "{asks} asks");
    assert_eq!(damper.health().server, crate::Reachability::Down);
    assert_eq!(logs.take(), [(Level::WARN, "the server cannot be used".to_owned())]);

    works.store(true, Ordering::Relaxed);
    stumble_for(&dependency, ms(31_000)).await;
    assert_eq!(damper.health().server, crate::Reachability::Up);
    assert_eq!(logs.take(), [(Level::INFO, "the server answers again".to_owned())]);
    assert!(fake.asks.lock().len() > asks + 20, "asks again");
}

#[tokio::test(start_paused = true)]
async fn syncs_that_hang_do_not_keep_asks_back_that_work() {
    let fake = Fake::new(|_| Step::at_once(Ok(answer(Decision::Shed, Reason::QueueFull))));
    *fake.told.lock() = None;
    let dependency = client(&fake).dependency("d");
    for operation in 1..=20 {
        let error = call(safe(&dependency), vec![transient()]).await.unwrap_err();
        assert_eq!(error.reason, StopReason::QueueFull, "{operation}");
        tokio::time::sleep(ms(10_000)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_server_is_asked_twice_only_if_the_attempt_still_fits() {
    for (deadline_ms, expected_ms, asks, answer) in [
        (15, 0, 1, Answer::TooLate),
        (25, 0, 1, Answer::Late),
        (40, 0, 1, Answer::Late),
        (45, 0, 2, Answer::Late),
        (45, 20, 1, Answer::Late),
        (80, 20, 2, Answer::Late),
    ] {
        let case = format!("{deadline_ms} ms, expected {expected_ms} ms");
        let fake = Fake::new(|_| Step::hung());
        let damper = client(&fake);
        let core = Arc::clone(&damper.dependency("d").pair.handle.core);
        let ask = serde_json::json!({
            "dependency": "d", "operation": "o", "attempt": 2, "deadline_ms": deadline_ms,
            "expected_ms": expected_ms, "max_wait_ms": 5,
        });
        let ask: AskRequest = serde_json::from_value(ask).unwrap();
        assert_eq!(core.ask(ask.clone()).await, answer, "{case}");
        assert_eq!(fake.asks.lock().len(), asks, "{case}");
        for _ in 0..4 {
            core.ask(ask.clone()).await;
        }
        let opened = core.ask(ask).await == Answer::CircuitOpen;
        assert_eq!(opened, answer == Answer::Late, "{case}: the breaker counts it");
    }
}

#[tokio::test(start_paused = true)]
async fn a_short_deadline_leaves_time_for_the_emergency_budget() {
    let fake = Fake::new(|_| Step::hung());
    *fake.told.lock() = Some(told(|told| {
        told.emergency = damper_protocol::Emergency { per_s: 1.0, ratio: 0.1, throttled: false }
    }));
    let dependency = client(&fake).dependency("d");
    for _ in 0..200 {
        call(safe(&dependency), vec![]).await.unwrap();
        tokio::time::sleep(ms(20)).await;
    }
    // The backoff has to fit too, which one in six or so does.
    let mut outcome = Ok(0);
    while fake.asks.lock().is_empty() {
        outcome = call(safe(&dependency).deadline(ms(40)), vec![transient()]).await;
    }
    assert_eq!((outcome.unwrap(), fake.asks.lock().len()), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_says_that_it_is_not_ready_is_asked_once_for_each_operation() {
    let fake = Fake::new(|_| Step::at_once(Err(Fault::Unavailable(ms(1000)))));
    let damper = client(&fake);
    let dependency = damper.dependency("d");
    for asks in [1, 2, 3, 4, 5, 5] {
        let error = call(safe(&dependency), vec![transient()]).await.unwrap_err();
        assert_eq!((error.reason, fake.asks.lock().len()), (StopReason::EmergencyExhausted, asks));
    }
    assert_eq!(damper.health().server, crate::Reachability::Down);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_comes_and_goes_each_second_frees_no_burst() {
    for grants in [false, true] {
        let up = Arc::new(std::sync::atomic::AtomicBool::new(true));
        let is_up = Arc::clone(&up);
        let fake = Fake::new(move |_| match (is_up.load(Ordering::Relaxed), grants) {
            (true, true) => Step::at_once(Ok(granted())),
            (true, false) => Step::at_once(Ok(answer(Decision::Shed, Reason::QueueFull))),
            (false, _) => Step::at_once(Err(Fault::Unreachable)),
        });
        *fake.told.lock() = Some(told(|told| {
            told.emergency = damper_protocol::Emergency { per_s: 1.0, ratio: 0.1, throttled: false }
        }));
        let dependency = client(&fake).dependency("d");
        let emergency = || dependency.totals().emergency;
        for second in 0..60 {
            let before = emergency();
            let start = Instant::now();
            while start.elapsed() < ms(1000) {
                call(safe(&dependency), vec![]).await.unwrap();
                let retried = tokio::time::timeout(ms(10), call(safe(&dependency), vec![transient()])).await;
                drop(retried);
                tokio::time::sleep(ms(5)).await;
            }
            assert!(emergency() - before <= 2, "second {second}, grants: {grants}");
            let is_up = second % 2 == 1;
            up.store(is_up, Ordering::Relaxed);
            *fake.sync_fault.lock() = (!is_up).then_some(Fault::Unreachable);
        }
        let all = emergency();
        assert!(all <= 61, "{all} in a minute, one a second at most, grants: {grants}");
        assert!(grants || all >= 10, "{all}: the outages were some");
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_that_only_asks_noticed_is_over_for_an_idle_client_too() {
    let fake = Fake::new(|_| Step::at_once(Err(Fault::Unreachable)));
    let damper = client(&fake);
    synced(&damper).await;
    for _ in 0..6 {
        call(safe(&damper.dependency("d")), vec![transient()]).await.unwrap_err();
    }
    assert_eq!(damper.health().server, crate::Reachability::Down);
    tokio::time::sleep(ms(2000)).await;
    assert_eq!(damper.health().server, crate::Reachability::Up, "a sync permits a probe");
    let asks = fake.asks.lock().len();
    call(safe(&damper.dependency("d")), vec![transient()]).await.unwrap_err();
    assert_eq!(fake.asks.lock().len(), asks + 1);
    assert_eq!(damper.health().server, crate::Reachability::Down);
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_waits_for_its_token_keeps_nobody_else_back() {
    let works = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let does = Arc::clone(&works);
    let fake = Fake::new(move |_| match does.load(Ordering::Relaxed) {
        true => Step { decided_after: ms(2000), ..Step::at_once(Ok(granted())) },
        false => Step::at_once(Err(Fault::Unreachable)),
    });
    let damper = client(&fake);
    let dependency = damper.dependency("d");
    for _ in 0..6 {
        call(safe(&dependency), vec![transient()]).await.unwrap_err();
    }
    works.store(true, Ordering::Relaxed);
    tokio::time::sleep(ms(31_000)).await;
    let asks = fake.asks.lock().len();
    let probe = tokio::spawn(call(safe(&dependency), vec![transient()]));
    while fake.asks.lock().len() == asks {
        tokio::time::sleep(ms(1)).await;
    }
    tokio::time::sleep(ms(1)).await;
    assert!(!probe.is_finished());
    assert_eq!(call(safe(&dependency), vec![transient()]).await.unwrap(), 2, "admitted too");
    assert_eq!((probe.await.unwrap().unwrap(), fake.asks.lock().len()), (2, asks + 2));
}

/// What was in trouble when the server was last heard is left alone after half a minute.
#[tokio::test(start_paused = true)]
async fn the_emergency_budget_of_a_dependency_in_trouble_fades_away() {
    let emergency = |throttled| damper_protocol::Emergency { per_s: 1.0, ratio: 0.5, throttled };
    let open = BreakerView { state: BreakerState::Open, version: 2, open_for_ms: 1000 };
    let retries_only = PolicyView { on_open: OnOpen::Retries, ..PolicyView::default() };
    for (throttled, breaker, fades) in
        [(false, BreakerView::default(), false), (true, BreakerView::default(), true), (false, open, true)]
    {
        let fake = Fake::new(|_| Step::at_once(Err(Fault::Unreachable)));
        *fake.told.lock() = Some(told(|told| {
            (told.emergency, told.breaker, told.policy) = (emergency(throttled), breaker, retries_only);
        }));
        let damper = client(&fake);
        synced(&damper).await;
        *fake.told.lock() = None;
        let dependency = damper.dependency("d");
        let (start, mut late) = (Instant::now(), 0);
        for _ in 0..150 {
            for _ in 0..10 {
                call(safe(&dependency), vec![]).await.unwrap();
            }
            let recovered = call(safe(&dependency).deadline(ms(900)), vec![transient()]).await.is_ok();
            late += u32::from(recovered && start.elapsed() > ms(32_000));
            tokio::time::sleep(ms(500)).await;
        }
        assert_eq!(late == 0, fades, "throttled: {throttled}, {breaker:?}: {late}");
    }
}
