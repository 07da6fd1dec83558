//! Deadlines: what is cut off, what is not started, and the property over all of it.

use proptest::prelude::*;

use super::*;

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
async fn b09_a_wait_past_the_deadline_is_not_begun() {
    let fake = Fake::new(|_| Step::at_once(Ok(granted())));
    let dependency = client(&fake).dependency("d");
    let start = Instant::now();
    let operation = safe(&dependency).deadline(ms(500)).call(|_| async {
        tokio::time::sleep(ms(200)).await;
        Err::<(), _>(transient().with_retry_after(ms(400)))
    });
    let error = operation.await.unwrap_err();
    assert_eq!((error.reason, error.attempts), (StopReason::RetryAfterBeyondDeadline, 1));
    assert!(start.elapsed() <= ms(202), "{:?}", start.elapsed());
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

/// A token that is granted in the last moment arrives too late to be used.
#[tokio::test(start_paused = true)]
async fn a_decision_is_wanted_in_time_for_its_way_back() {
    for (deadline_ms, kept_ms) in [(1000, 20), (200, 20), (60, 6)] {
        let fake = Fake::new(|_| Step::at_once(Ok(granted())));
        let operation = safe(&client(&fake).dependency("d")).deadline(ms(deadline_ms));
        let _ = call(operation, vec![transient().with_retry_after(Duration::ZERO)]).await;
        // A backoff that does not fit is not asked about.
        assert!(deadline_ms < 1000 || !fake.asks.lock().is_empty());
        for (_, ask) in fake.asks.lock().iter() {
            assert_eq!(ask.deadline_ms - ask.max_wait_ms.unwrap(), kept_ms + 1, "{deadline_ms}");
            assert!(ask.earliest_ms <= ask.max_wait_ms.unwrap());
        }
    }
}
