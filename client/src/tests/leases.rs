//! First attempts under a lease, and what is measured of all attempts.

use damper_protocol::FirstAttempts;

use super::*;

fn leased(per_s: f64, safe_per_s: f64) -> SyncedDependency {
    told(|told| {
        told.first = Some(FirstAttempts { per_s, burst: 1.0, ttl_ms: 5000, safe_per_s, safe_for_ms: None });
    })
}

/// A client whose server leases first attempts, after its first sync.
async fn under_lease(fake: &Arc<Fake>) -> (Damper, Dependency) {
    let damper = client(fake);
    synced(&damper).await;
    let dependency = damper.dependency("d");
    (damper, dependency)
}

fn granting() -> Arc<Fake> {
    Fake::new(|_| Step::at_once(Ok(granted())))
}

#[tokio::test(start_paused = true)]
async fn over_rate_first_attempts_wait_within_their_deadline_or_are_refused() {
    let fake = granting();
    *fake.told.lock() = Some(leased(10.0, 1.0));
    let (_damper, dependency) = under_lease(&fake).await;
    let start = Instant::now();
    let each = (0..20).map(|_| call(safe(&dependency).deadline(ms(1001)), vec![]));
    let outcomes = futures_util::future::join_all(each).await;
    let refused: Vec<StopReason> = outcomes.iter().filter_map(|o| Some(o.as_ref().err()?.reason)).collect();
    assert!((9..=11).contains(&refused.len()), "{refused:?}");
    assert!(refused.iter().all(|reason| *reason == StopReason::FirstAttemptsExhausted));
    assert!(start.elapsed() <= ms(1001));
    let totals = dependency.totals();
    assert_eq!((totals.logical, totals.physical + refused.len() as u64), (21, 21));
}

#[tokio::test(start_paused = true)]
async fn syncs_state_the_demand_the_waiting_and_the_refused_included() {
    let fake = granting();
    *fake.told.lock() = Some(leased(10.0, 1.0));
    let (damper, dependency) = under_lease(&fake).await;
    for _ in 0..300 {
        let dependency = dependency.clone();
        tokio::spawn(async move { call(safe(&dependency).deadline(ms(50)), vec![]).await.map_err(drop) });
        tokio::time::sleep(ms(10)).await;
    }
    damper.flush().await.unwrap();
    let sync = fake.syncs.lock().last().unwrap().dependencies["d"].clone();
    assert!((90.0..120.0).contains(&sync.wants_first_per_s), "{}", sync.wants_first_per_s);
    assert!((sync.has_first_per_s - 10.0).abs() < 1e-6);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_ends_without_a_server_falls_back_to_the_safe_rate() {
    let fake = granting();
    *fake.told.lock() = Some(leased(100.0, 2.0));
    let (_damper, dependency) = under_lease(&fake).await;
    *fake.told.lock() = None;
    tokio::time::sleep(ms(6000)).await;
    let start = Instant::now();
    for _ in 0..5 {
        call(safe(&dependency), vec![]).await.unwrap();
    }
    assert!(start.elapsed() >= ms(1400), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_first_lease_of_zero_is_not_the_last_word() {
    let fake = granting();
    *fake.told.lock() = Some(leased(0.0, 0.0));
    let (damper, dependency) = under_lease(&fake).await;
    let start = Instant::now();
    let patient = call(safe(&dependency).deadline(ms(5000)), vec![]);
    let hasty = call(safe(&dependency).deadline(ms(700)), vec![]);
    let raised = async {
        tokio::time::sleep(ms(1000)).await;
        *fake.told.lock() = Some(leased(10.0, 1.0));
        damper.flush().await.unwrap();
    };
    let (patient, hasty, ()) = tokio::join!(patient, hasty, raised);
    assert_eq!(patient.unwrap(), 1);
    let hasty = hasty.unwrap_err();
    assert_eq!((hasty.reason, hasty.attempts), (StopReason::FirstAttemptsExhausted, 0));
    assert!(start.elapsed() <= ms(1200), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn no_lease_and_shadow_mode_limit_nothing() {
    let shadow = told(|told| {
        told.first = leased(0.0, 0.0).first;
        told.policy = PolicyView { shadow: true, ..PolicyView::default() };
    });
    for told in [SyncedDependency::default(), shadow] {
        let fake = granting();
        *fake.told.lock() = Some(told);
        let (_damper, dependency) = under_lease(&fake).await;
        let start = Instant::now();
        for _ in 0..1000 {
            call(safe(&dependency), vec![]).await.unwrap();
        }
        assert_eq!(start.elapsed(), Duration::ZERO);
    }
}

#[tokio::test(start_paused = true)]
async fn c9_a_closed_breaker_lets_first_attempts_back_in_along_the_ramp() {
    let fake = granting();
    let open = BreakerView { state: BreakerState::Open, version: 2, open_for_ms: 60_000 };
    *fake.told.lock() = Some(told(|told| told.breaker = open));
    let (damper, dependency) = under_lease(&fake).await;
    let mut by_second = Vec::new();
    for second in 0..11_u32 {
        *fake.told.lock() = Some(SyncedDependency {
            breaker: BreakerView { state: BreakerState::Closed, version: 3, open_for_ms: 0 },
            ..leased(10.0 + 9.0 * f64::from(second), 1.0)
        });
        damper.flush().await.unwrap();
        let before = dependency.totals().physical;
        let (dependency, start) = (&dependency, Instant::now());
        while start.elapsed() < ms(1000) {
            let _ = call(safe(dependency).deadline(ms(2)), vec![]).await;
            tokio::time::sleep(ms(1)).await;
        }
        by_second.push(dependency.totals().physical - before);
    }
    assert!(by_second[0] <= 11, "{by_second:?}: the herd is released");
    assert!(by_second.windows(2).all(|pair| pair[0] <= pair[1] + 2), "{by_second:?}");
    assert!((90..=102).contains(&by_second[10]), "{by_second:?}");
}

#[tokio::test(start_paused = true)]
async fn attempts_and_recoveries_are_timed() {
    let dependency = client(&granting()).dependency("d");
    let operation = safe(&dependency).call(|attempt| async move {
        tokio::time::sleep(ms(if attempt.number() == 1 { 3 } else { 100 })).await;
        if attempt.number() == 1 { Err(transient()) } else { Ok(()) }
    });
    operation.await.unwrap();
    let totals = dependency.totals();
    assert_eq!(totals.latency, [0, 0, 1, 0, 0, 0, 0, 1], "4 ms and 128 ms");
    assert_eq!(totals.recovery.iter().sum::<u64>(), 1);
    assert!(totals.recovery.len() >= 8, "the backoff and the second attempt: {:?}", totals.recovery);
}

#[tokio::test(start_paused = true)]
async fn a_slow_attempt_is_counted_when_it_becomes_slow_and_only_once() {
    let fake = granting();
    *fake.told.lock() = Some(told(|told| told.policy.slow_call_ms = Some(100)));
    let (_damper, dependency) = under_lease(&fake).await;
    let sleepy = async |takes_ms: u64| {
        let operation = safe(&dependency).call(|_| async move {
            tokio::time::sleep(ms(takes_ms)).await;
            Ok::<_, Failure>(())
        });
        operation.await.unwrap();
    };
    sleepy(100).await;
    assert_eq!(dependency.totals().slow, 0);
    tokio::select! {
        () = sleepy(60_000) => unreachable!(),
        () = tokio::time::sleep(ms(103)) => {}
    }
    assert_eq!(dependency.totals().slow, 1, "it has not ended, and never will");
    sleepy(400).await;
    assert_eq!(dependency.totals().slow, 2);
    let hang = safe(&dependency).deadline(ms(50)).call(|_| std::future::pending::<Result<(), Failure>>());
    hang.await.unwrap_err();
    assert_eq!(dependency.totals().slow, 2, "its deadline came first");
}

#[tokio::test(start_paused = true)]
async fn asks_say_how_long_an_attempt_takes_and_leave_it_the_time() {
    let fake = granting();
    let dependency = client(&fake).dependency("d");
    let attempt = async |deadline_ms: u64, failures: u32| {
        let operation = safe(&dependency).deadline(ms(deadline_ms)).call(|attempt| async move {
            tokio::time::sleep(ms(if attempt.number() > failures { 200 } else { 1 })).await;
            if attempt.number() > failures { Ok(()) } else { Err(transient()) }
        });
        operation.await
    };
    attempt(5000, 0).await.unwrap();
    attempt(5000, 1).await.unwrap();
    let ask = fake.asks.lock().pop().unwrap().1;
    assert!((200..=202).contains(&ask.expected_ms), "{}", ask.expected_ms);
    assert!(ask.max_wait_ms.unwrap() <= ask.deadline_ms - 200);
    let error = attempt(150, 1).await.unwrap_err();
    assert_eq!(error.reason, StopReason::DeadlineTooShort);
    assert_eq!(fake.asks.lock().len(), 0, "it could not have ended in time");
}

#[tokio::test(start_paused = true)]
async fn in_shadow_mode_retries_go_on_without_a_server() {
    let fake = Fake::new(|_| Step::at_once(Err(Fault::Unreachable)));
    *fake.told.lock() = Some(told(|told| {
        told.policy = PolicyView { shadow: true, fail_mode: FailMode::Closed, ..PolicyView::default() };
        told.hold_ms = 600_000;
    }));
    let (_damper, dependency) = under_lease(&fake).await;
    for _ in 0..10 {
        assert_eq!(call(safe(&dependency), vec![transient()]).await.unwrap(), 2);
    }
}
