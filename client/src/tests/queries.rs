//! Operations whose effect can be looked up.

use super::*;
use crate::Effect;

fn granting() -> Arc<Fake> {
    Fake::new(|_| Step::at_once(Ok(granted())))
}

/// Each attempt fails with this dispatch; each query has this answer, after a while.
async fn queried(
    dependency: &Dependency,
    dispatch: Dispatch,
    takes_ms: u64,
    answer: fn(u32) -> Effect<u32>,
) -> (Result<u32, CallError<Failure>>, u32) {
    let queries = AtomicU32::new(0);
    let outcome = dependency
        .operation("charge")
        .deadline(ms(5000))
        .call_queried(
            |_| async { Err(transient().with_dispatch(dispatch)) },
            |_| {
                let number = queries.fetch_add(1, Ordering::Relaxed);
                async move {
                    tokio::time::sleep(ms(takes_ms)).await;
                    answer(number)
                }
            },
        )
        .await;
    (outcome, queries.into_inner())
}

#[tokio::test(start_paused = true)]
async fn what_is_done_is_a_success_and_is_not_repeated() {
    let dependency = client(&granting()).dependency("d");
    let (outcome, queries) = queried(&dependency, Dispatch::Ambiguous, 10, |_| Effect::Done(7)).await;
    assert_eq!((outcome.unwrap(), queries), (7, 1));
    let totals = dependency.totals();
    assert_eq!((totals.physical, totals.success, totals.recovered, totals.affected), (1, 1, 1, 1));
    assert_eq!((totals.ambiguous, totals.abandoned, dependency.in_flight()), (0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn what_is_not_done_may_be_repeated_although_it_is_unsafe() {
    let dependency = client(&granting()).dependency("d");
    let answer = |number| if number < 2 { Effect::NotDone } else { Effect::Done(number) };
    let (outcome, queries) = queried(&dependency, Dispatch::Ambiguous, 10, answer).await;
    assert_eq!((outcome.unwrap(), queries), (2, 3));
    assert_eq!(dependency.totals().physical, 3);
    let (outcome, _) = queried(&dependency, Dispatch::Ambiguous, 10, |_| Effect::NotDone).await;
    let error = outcome.unwrap_err();
    assert_eq!((error.reason, error.attempts), (StopReason::AttemptsExhausted, 4));
    assert!(!error.ambiguous && error.had_no_effect() && error.recovery.is_none());
}

#[tokio::test(start_paused = true)]
async fn what_nobody_knows_stays_ambiguous() {
    let dependency = client(&granting()).dependency("d");
    let (outcome, queries) = queried(&dependency, Dispatch::Ambiguous, 10, |_| Effect::Unknown).await;
    let error = outcome.unwrap_err();
    assert_eq!((error.reason, error.attempts, queries), (StopReason::AmbiguousNotRepeatable, 1, 1));
    assert_eq!((error.ambiguous, error.recovery), (true, Some(damper_protocol::RecoveryMode::Queryable)));
}

#[tokio::test(start_paused = true)]
async fn a_query_ends_with_the_operation_and_is_made_only_in_doubt() {
    let dependency = client(&granting()).dependency("d");
    let start = Instant::now();
    let (outcome, _) = queried(&dependency, Dispatch::Ambiguous, 3_600_000, |_| Effect::Done(1)).await;
    assert_eq!(outcome.unwrap_err().reason, StopReason::AmbiguousNotRepeatable);
    assert!(start.elapsed() <= ms(5001), "{:?}", start.elapsed());
    for dispatch in [Dispatch::NotSent, Dispatch::NotProcessed, Dispatch::Processed] {
        let (_, queries) = queried(&dependency, dispatch, 10, |_| Effect::Done(1)).await;
        assert_eq!(queries, 0, "{dispatch}");
    }
}
