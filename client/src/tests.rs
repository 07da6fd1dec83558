//! Whole operations against a scripted server, under paused time.

mod watch;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use damper_protocol::{
    BreakerState, BreakerVersion, BreakerView, Decision, Dispatch, FailMode, FailureClass, OnOpen,
    PolicyView, Reason, SyncedDependency, Totals,
};
use parking_lot::Mutex;
use proptest::prelude::*;
use tokio::time::Instant;

use crate::{
    CallError, Damper, Deadline, Dependency, Failure, Idempotency, Observer, Operation, StopReason,
    core::Switch,
    fake::{Fake, Step, answer, granted},
    transport::{Fault, Transport},
};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn client(fake: &Arc<Fake>) -> Damper {
    Damper::builder("").build_over(Arc::clone(fake) as Arc<dyn Transport>, Switch::On)
}

fn transient() -> Failure {
    Failure::new(FailureClass::Transient)
}

fn safe(dependency: &Dependency) -> Operation {
    dependency.operation("test").idempotency(Idempotency::Safe)
}

/// Fails with these one after the other, then succeeds.
async fn call(operation: Operation, failures: Vec<Failure>) -> Result<u32, CallError<Failure>> {
    let failures = Mutex::new(failures.into_iter());
    operation
        .call(|attempt| {
            let next = failures.lock().next();
            async move { next.map_or(Ok(attempt.number()), Err) }
        })
        .await
}

/// Lets the background tasks have their first sync.
async fn synced(damper: &Damper) {
    safe(&damper.dependency("d")).call(|_| async { Ok::<_, Failure>(()) }).await.unwrap();
    while damper.health().since_sync.is_none() {
        tokio::time::sleep(ms(1)).await;
    }
}

fn told(change: impl FnOnce(&mut SyncedDependency)) -> SyncedDependency {
    let mut told = SyncedDependency::default();
    change(&mut told);
    told
}

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
async fn an_attempt_is_cut_off_at_the_deadline_and_accuses_nobody() {
    let dependency = client(&Fake::dead()).dependency("d");
    let start = Instant::now();
    let operation = dependency.operation("hang").deadline(ms(300));
    let error = operation.call(|_| std::future::pending::<Result<(), Failure>>()).await.unwrap_err();
    assert_eq!((error.reason, error.attempts), (StopReason::DeadlineExceeded, 1));
    assert!(error.ambiguous && error.last.is_none());
    assert!(start.elapsed() <= ms(301));
    let totals = dependency.totals();
    assert_eq!((totals.failures.transient, totals.reasons.timeout, totals.expired), (0, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn work_past_its_deadline_is_not_started() {
    let dependency = client(&Fake::dead()).dependency("d");
    let operation = dependency.operation("late").deadline(Duration::ZERO);
    let error = call(operation, vec![]).await.unwrap_err();
    assert_eq!((error.reason, error.attempts), (StopReason::DeadlineTooShort, 0));
    assert_eq!(dependency.totals(), Totals { logical: 1, ..Totals::default() });
}

#[tokio::test(start_paused = true)]
async fn without_a_deadline_an_attempt_ends_after_thirty_seconds_and_may_be_repeated() {
    let fake = Fake::new(|_| Step::at_once(Ok(granted())));
    let dependency = client(&fake).dependency("d");
    let start = Instant::now();
    let operation = safe(&dependency).deadline(Deadline::unbounded());
    let number = operation
        .call(|attempt| async move {
            match attempt.number() {
                1 => std::future::pending::<Result<u32, Failure>>().await,
                number => Ok(number),
            }
        })
        .await
        .unwrap();
    assert_eq!(number, 2);
    assert!((ms(30_000)..ms(31_000)).contains(&start.elapsed()));
    assert_eq!(dependency.totals().failures.transient, 1);
}

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
            told.emergency = damper_protocol::Emergency { per_s: 1.0, ratio: 0.1 };
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
    *fake.told.lock() =
        Some(told(|told| told.emergency = damper_protocol::Emergency { per_s: 0.0, ratio: 0.0 }));
    back.store(true, Ordering::Relaxed);
    tokio::time::sleep(ms(2000)).await;
    assert_eq!(damper.health().server, crate::Reachability::Up);
    assert_eq!(call(safe(&dependency), vec![transient()]).await.unwrap(), 2);
    assert_eq!(dependency.totals().emergency, 0);
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
    let fake = Fake::new(|_| {
        let probe = answer(Decision::Granted, Reason::Probe);
        let breaker = BreakerVersion { state: BreakerState::HalfOpen, version: 4 };
        Step::at_once(Ok(damper_protocol::AskResponse { breaker, ..probe }))
    });
    *fake.told.lock() = Some(told(|told| {
        told.breaker = BreakerView { state: BreakerState::HalfOpen, version: 4, open_for_ms: 0 };
    }));
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
async fn a_dropped_future_returns_its_token_and_counts_as_abandoned() {
    let fake = Fake::new(|_| Step::at_once(Ok(granted())));
    let dependency = client(&fake).dependency("d");
    let mut abandoned = 0;
    while fake.returned.lock().is_empty() && abandoned < 50 {
        // The grant comes at once and the backoff is waited out with the token in hand.
        let operation = call(safe(&dependency), vec![transient()]);
        if tokio::time::timeout(ms(1), operation).await.is_err() {
            abandoned += 1;
        }
        tokio::time::sleep(ms(1)).await;
    }
    assert_eq!(fake.returned.lock().clone(), ["token"]);
    assert_eq!(dependency.totals().abandoned, abandoned);
    assert_eq!(dependency.in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_future_dropped_in_an_attempt_is_abandoned_and_no_failure() {
    let dependency = client(&Fake::dead()).dependency("d");
    let operation = dependency.operation("slow").call(|_| std::future::pending::<Result<(), Failure>>());
    assert!(tokio::time::timeout(ms(10), operation).await.is_err());
    let totals = dependency.totals();
    assert_eq!(totals, Totals { logical: 1, physical: 1, abandoned: 1, ..Totals::default() });
    assert_eq!(dependency.in_flight(), 0);
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
async fn syncs_carry_the_last_acknowledged_totals_as_the_baseline() {
    let fake = Fake::new(|_| Step::at_once(Ok(granted())));
    let damper = client(&fake);
    let dependency = damper.dependency("d");
    let once = async || call(safe(&dependency), vec![]).await.unwrap();
    once().await;
    damper.flush().await.unwrap();
    *fake.told.lock() = None;
    once().await;
    damper.flush().await.unwrap_err();
    *fake.told.lock() = Some(SyncedDependency::default());
    *fake.epoch.lock() = "e2".to_owned();
    once().await;
    damper.flush().await.unwrap();
    damper.flush().await.unwrap();
    let syncs = fake.syncs.lock().clone();
    let seen: Vec<_> = syncs
        .iter()
        .map(|sync| {
            let report = &sync.dependencies["d"];
            let acked = report.acked.as_ref().map(|acked| acked.logical);
            (sync.epoch.as_deref(), report.totals.logical, acked)
        })
        .collect();
    let expected =
        [(None, 1, None), (Some("e1"), 2, Some(1)), (Some("e1"), 3, Some(1)), (Some("e2"), 3, Some(3))];
    let flushed: Vec<_> = seen.into_iter().collect();
    for step in expected {
        assert!(flushed.contains(&step), "{step:?} is not in {flushed:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn shutdown_delivers_stops_retries_and_can_be_repeated() {
    let fake = Fake::new(|_| Step::at_once(Ok(granted())));
    let damper = client(&fake);
    let dependency = damper.dependency("d");
    call(safe(&dependency), vec![]).await.unwrap();
    let report = damper.shutdown(ms(1000)).await;
    assert_eq!((report.delivered, report.undelivered, report.in_flight), (1, 0, 0));
    let late = call(safe(&dependency), vec![transient()]).await.unwrap_err();
    assert_eq!(late.reason, StopReason::ShutDown);
    let syncs = fake.syncs.lock().len();
    tokio::time::sleep(ms(10_000)).await;
    assert_eq!(fake.syncs.lock().len(), syncs, "no task is left");
    let report = damper.shutdown(ms(1000)).await;
    assert_eq!((report.delivered, report.undelivered), (1, 0));
    assert_eq!(fake.syncs.lock().last().unwrap().dependencies["d"].totals.logical, 2);
}

#[tokio::test(start_paused = true)]
async fn shutdown_without_a_server_ends_in_time() {
    let damper = client(&Fake::dead());
    call(safe(&damper.dependency("d")), vec![]).await.unwrap();
    let report = damper.shutdown(ms(50)).await;
    assert_eq!((report.delivered, report.undelivered), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn the_tasks_end_with_the_last_handle_and_deliver_what_is_left() {
    let fake = Fake::new(|_| Step::at_once(Ok(granted())));
    let damper = client(&fake);
    let dependency = damper.dependency("d");
    call(safe(&dependency), vec![]).await.unwrap();
    tokio::time::sleep(ms(10)).await;
    call(safe(&dependency), vec![]).await.unwrap();
    drop(damper);
    tokio::time::sleep(ms(10)).await;
    assert_eq!(fake.syncs.lock().len(), 1, "the dependency is a handle too");
    drop(dependency);
    tokio::time::sleep(ms(60_000)).await;
    assert_eq!(fake.syncs.lock().len(), 2);
    assert_eq!(fake.syncs.lock()[1].dependencies["d"].totals.logical, 2);
}

#[test]
fn tasks_start_again_when_their_runtime_has_gone() {
    let fake = Fake::new(|_| Step::at_once(Ok(granted())));
    let damper = client(&fake);
    for _ in 0..2 {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        runtime.unwrap().block_on(async {
            let syncs = fake.syncs.lock().len();
            call(safe(&damper.dependency("d")), vec![]).await.unwrap();
            tokio::time::sleep(ms(10)).await;
            assert!(fake.syncs.lock().len() > syncs);
        });
    }
}

#[tokio::test(start_paused = true)]
async fn the_switches_turn_retries_off() {
    for switch in [Switch::NoRetry, Switch::Inert] {
        let fake = Fake::new(|_| Step::at_once(Ok(granted())));
        let damper = Damper::builder("").build_over(Arc::clone(&fake) as Arc<dyn Transport>, switch);
        let dependency = damper.dependency("d");
        let error = call(safe(&dependency), vec![transient()]).await.unwrap_err();
        assert_eq!((error.reason, error.attempts), (StopReason::RetriesOff, 1));
        tokio::time::sleep(ms(10)).await;
        assert!(fake.asks.lock().is_empty());
        assert_eq!(fake.syncs.lock().is_empty(), switch == Switch::Inert);
        assert!(damper.health().retries_off);
    }
}

#[tokio::test(start_paused = true)]
async fn a_dependency_that_cannot_be_named_gets_one_attempt_and_is_not_reported() {
    let fake = Fake::new(|_| Step::at_once(Ok(granted())));
    let damper = client(&fake);
    let error = call(safe(&damper.dependency("a\nb")), vec![transient()]).await.unwrap_err();
    assert_eq!(error.reason, StopReason::RetriesOff);
    damper.flush().await.unwrap();
    assert!(fake.syncs.lock().iter().all(|sync| sync.dependencies.is_empty()));
}

#[test]
fn outside_a_runtime_there_is_one_attempt() {
    let dependency = client(&Fake::dead()).dependency("d");
    let call = call(safe(&dependency), vec![transient()]);
    let error = futures_util::FutureExt::now_or_never(call).unwrap().unwrap_err();
    assert_eq!((error.reason, error.attempts), (StopReason::RetriesOff, 1));
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

/// One scripted call of the property below.
#[derive(Clone, Debug)]
struct Scene {
    deadline_ms: u64,
    attempt_ms: Vec<u64>,
    pauses_ms: Vec<Option<u64>>,
    admitted_ms: u64,
    decided_ms: u64,
    dispatch: Dispatch,
    declared_safe: bool,
    outcome: u8,
}

fn scenes() -> impl Strategy<Value = Scene> {
    let attempts = prop::collection::vec(0..3000_u64, 4);
    let pauses = prop::collection::vec(prop::option::of(0..5000_u64), 4);
    (
        0..8000_u64,
        attempts,
        pauses,
        0..30_u64,
        0..3000_u64,
        prop::sample::select(Dispatch::ALL),
        any::<bool>(),
        0..5_u8,
    )
        .prop_map(
            |(
                deadline_ms,
                attempt_ms,
                pauses_ms,
                admitted_ms,
                decided_ms,
                dispatch,
                declared_safe,
                outcome,
            )| {
                Scene {
                    deadline_ms,
                    attempt_ms,
                    pauses_ms,
                    admitted_ms,
                    decided_ms,
                    dispatch,
                    declared_safe,
                    outcome,
                }
            },
        )
}

async fn play(scene: Scene) {
    let (admitted_after, decided_after) = (ms(scene.admitted_ms), ms(scene.decided_ms));
    let outcome = match scene.outcome {
        0 | 1 => Ok(granted()),
        2 => Ok(answer(Decision::Expired, Reason::Expired)),
        3 => Err(Fault::NoAnswer),
        _ => Err(Fault::Busy(ms(100))),
    };
    let fake = Fake::new(move |_| Step { admitted_after, decided_after, outcome: outcome.clone() });
    let dependency = client(&fake).dependency("d");
    let idempotency = if scene.declared_safe { Idempotency::Safe } else { Idempotency::Unsafe };
    let operation = dependency.operation("scene").idempotency(idempotency).deadline(ms(scene.deadline_ms));
    let (start, starts) = (Instant::now(), Mutex::new(Vec::new()));
    let result = operation
        .call(|attempt| {
            starts.lock().push(start.elapsed());
            let index = attempt.number() as usize - 1;
            let mut failure = transient().with_dispatch(scene.dispatch);
            failure.retry_after = scene.pauses_ms[index].map(ms);
            let takes = ms(scene.attempt_ms[index]);
            async move {
                tokio::time::sleep(takes).await;
                Err::<(), _>(failure)
            }
        })
        .await;
    let starts = starts.into_inner();
    let deadline = ms(scene.deadline_ms);
    assert!(start.elapsed() <= deadline + ms(1), "returned after {:?}", start.elapsed());
    assert!(starts.iter().all(|at| *at < deadline.max(ms(1))), "{starts:?}");
    for pair in starts.windows(2).zip(scene.attempt_ms.iter().zip(&scene.pauses_ms)) {
        let (starts, (took, pause)) = pair;
        assert!(starts[1] - starts[0] >= ms(took + pause.unwrap_or_default()), "a pause was cut short");
    }
    let repeatable =
        scene.declared_safe || matches!(scene.dispatch, Dispatch::NotSent | Dispatch::NotProcessed);
    assert!(repeatable || starts.len() <= 1, "an unsafe operation was repeated");
    let error = result.unwrap_err();
    assert_eq!(error.attempts as usize, starts.len());
    let totals = dependency.totals();
    assert_eq!((totals.logical, totals.physical), (1, starts.len() as u64));
    assert_eq!(dependency.in_flight(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]
    #[test]
    fn no_sleep_or_attempt_passes_the_deadline(scene in scenes()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.unwrap().block_on(play(scene));
    }
}

#[test]
fn a_call_can_be_spawned() {
    fn is_send(_: &impl Send) {}
    let dependency = Damper::inert().dependency("d");
    is_send(&dependency.operation("o").call(|_| async { Ok::<_, Failure>(()) }));
    is_send(&dependency.handle);
}
