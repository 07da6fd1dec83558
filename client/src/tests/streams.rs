//! Connections that are meant to last.

use super::*;
use crate::Profile;

fn granting() -> Arc<Fake> {
    Fake::new(|_| Step::at_once(Ok(granted())))
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
async fn a_stream_waits_out_refusals_and_open_breakers() {
    let refusals = AtomicU32::new(3);
    let fake = Fake::new(move |_| {
        let left = refusals.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        Step::at_once(Ok(if left.is_ok() { answer(Decision::Shed, Reason::QueueFull) } else { granted() }))
    });
    let damper = client(&fake);
    let dependency = damper.dependency("d");
    let stream = || safe(&dependency).profile(Profile::stream());
    assert_eq!(call(stream(), vec![transient()]).await.unwrap(), 2);
    assert_eq!(fake.asks.lock().len(), 4, "refused three times");
    let error = call(safe(&dependency), vec![Failure::new(FailureClass::Fatal)]).await.unwrap_err();
    assert_eq!(error.reason, StopReason::NotRetryable);

    let open = BreakerView { state: BreakerState::Open, version: 2, open_for_ms: 20_000 };
    *fake.told.lock() = Some(told(|told| told.breaker = open));
    damper.flush().await.unwrap();
    *fake.told.lock() = Some(SyncedDependency {
        breaker: BreakerView { version: 3, ..BreakerView::default() },
        ..SyncedDependency::default()
    });
    assert_eq!(call(safe(&dependency), vec![]).await.unwrap_err().reason, StopReason::BreakerOpen);
    let start = Instant::now();
    assert_eq!(call(stream(), vec![]).await.unwrap(), 1, "its first connection waits too");
    assert!(start.elapsed() >= ms(20_000));
    assert_eq!(
        call(stream(), vec![Failure::new(FailureClass::Fatal)]).await.unwrap_err().reason,
        StopReason::NotRetryable
    );
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_waits_obeys_its_deadline_and_the_shutdown() {
    let fake = Fake::new(|_| Step::at_once(Ok(answer(Decision::Shed, Reason::BudgetExhausted))));
    let damper = client(&fake);
    let stream = || safe(&damper.dependency("d")).profile(Profile::stream());
    let start = Instant::now();
    let error = call(stream().deadline(ms(90_000)), vec![transient()]).await.unwrap_err();
    assert_eq!((error.reason, error.attempts), (StopReason::BudgetExhausted, 1));
    assert!((ms(30_000)..ms(90_000)).contains(&start.elapsed()), "{:?}", start.elapsed());
    let waiting = call(stream(), vec![transient()]);
    let ended = async {
        tokio::time::sleep(ms(60_000)).await;
        damper.shutdown(ms(100)).await
    };
    let (outcome, _) = tokio::join!(waiting, ended);
    assert_eq!(outcome.unwrap_err().reason, StopReason::ShutDown);
}

/// How long a connection lasts says nothing about how long a request takes.
#[tokio::test(start_paused = true)]
async fn a_stream_is_not_taken_for_a_slow_call() {
    let fake = granting();
    *fake.told.lock() = Some(told(|told| told.policy.slow_call_ms = Some(1000)));
    let damper = client(&fake);
    synced(&damper).await;
    let dependency = damper.dependency("d");
    let hour = safe(&dependency).profile(Profile::stream()).call(|attempt| async move {
        tokio::time::sleep(ms(3_600_000)).await;
        if attempt.number() == 1 { Err(transient()) } else { Ok(()) }
    });
    hour.await.unwrap();
    let totals = dependency.totals();
    assert_eq!((totals.physical, totals.success, totals.recovered, totals.slow), (3, 2, 1, 0));
    assert_eq!((totals.latency.iter().sum::<u64>(), dependency.in_flight()), (1, 0), "the first sync's call");
    assert_eq!(call(safe(&dependency), vec![transient()]).await.unwrap(), 2, "its retry has time enough");
}
