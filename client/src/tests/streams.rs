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
    let ended_by = [StopReason::BudgetExhausted, StopReason::DeadlineTooShort];
    assert!(ended_by.contains(&error.reason) && error.attempts == 1, "{error}");
    assert!((ms(30_000)..ms(90_000)).contains(&start.elapsed()), "{:?}", start.elapsed());
    let waiting = call(stream(), vec![transient()]);
    let ended = async {
        tokio::time::sleep(ms(60_000)).await;
        damper.shutdown(ms(100)).await
    };
    let (outcome, report) = tokio::join!(waiting, ended);
    assert_eq!((outcome.unwrap_err().reason, report.abandoned), (StopReason::ShutDown, 1));
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

/// A pause is never cut short, however long it is and whatever else refuses in the meantime.
#[tokio::test(start_paused = true)]
async fn a_stream_sits_out_a_pause_to_its_end_and_tells_of_it_once() {
    for shadow in [false, true] {
        let fake = granting();
        *fake.told.lock() = Some(told(|told| (told.suppress_ms, told.policy.shadow) = (1500, shadow)));
        let damper = client(&fake);
        synced(&damper).await;
        let start = Instant::now();
        let stream = safe(&damper.dependency("d")).profile(Profile::stream());
        let pause = transient().with_retry_after(ms(3_600_000));
        let lifted = async {
            tokio::time::sleep(ms(3_660_000)).await;
            *fake.told.lock() = Some(SyncedDependency::default());
        };
        let reconnected = async { (call(stream, vec![pause]).await.unwrap(), start.elapsed()) };
        let ((attempts, after), ()) = tokio::join!(reconnected, lifted);
        assert_eq!(attempts, 2);
        assert!((ms(3_600_000)..ms(3_800_000)).contains(&after), "{after:?}");
        let asks = fake.asks.lock();
        let told = |ask: &damper_protocol::AskRequest| ask.failure.as_ref().unwrap().retry_after_ms;
        let tells: Vec<Option<u64>> = asks.iter().map(|(_, ask)| told(ask)).collect();
        assert_eq!(tells, [Some(3_600_000), None], "the news, and the ask for the second connection");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_gives_back_what_it_was_granted_before_it_waits() {
    let asked = AtomicU32::new(0);
    let fake = Fake::new(move |_| {
        let first = asked.fetch_add(1, Ordering::Relaxed) == 0;
        let state = if first { BreakerState::Open } else { BreakerState::Closed };
        let breaker = BreakerVersion { state, version: if first { 5 } else { 6 } };
        let retry_after_ms = first.then_some(20_000);
        Step::at_once(Ok(damper_protocol::AskResponse { breaker, retry_after_ms, ..granted() }))
    });
    let damper = client(&fake);
    synced(&damper).await;
    let stream = safe(&damper.dependency("d")).profile(Profile::stream());
    let returned = async {
        tokio::time::sleep(ms(5000)).await;
        fake.returned.lock().len()
    };
    let (outcome, returned) = tokio::join!(call(stream, vec![transient()]), returned);
    assert_eq!((outcome.unwrap(), returned), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn a_stream_without_retries_does_not_wait() {
    let fake = granting();
    *fake.told.lock() = Some(told(|told| {
        told.breaker = BreakerView { state: BreakerState::Open, version: 2, open_for_ms: 20_000 };
    }));
    let damper = Damper::builder("").build_over(Arc::clone(&fake) as Arc<dyn Transport>, Switch::NoRetry);
    synced(&damper).await;
    let start = Instant::now();
    let error = call(safe(&damper.dependency("d")).profile(Profile::stream()), vec![]).await.unwrap_err();
    assert_eq!((error.reason, start.elapsed()), (StopReason::BreakerOpen, ms(0)));
}
