//! The flaky dependency on a real socket.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail in any way; the lints exempt only functions that are marked as tests"
)]

use std::sync::Arc;
use std::time::Duration;

use damper_load::flaky::{self, Desk, Flaky, Model};
use damper_load::measure::{Outcome, Recorder, Second};
use damper_load::scenario::{Account, Dependency, Phase, Spread};
use damper_load::ways::{Operation, Road, Wire};

fn dependency() -> Dependency {
    Dependency {
        name: "d".to_owned(),
        capacity_per_s: 1000.0,
        queue_limit: 100,
        latency_ms: 1,
        latency: Spread::Fixed,
        collapse_ms: 0,
        refusal_cost: 0.0,
        account: None,
        phases: vec![],
    }
}

async fn started(dependency: &Dependency, timeout_ms: u64) -> (Flaky, Wire, Arc<Recorder>) {
    let recorder = Arc::new(Recorder::default());
    let flaky = flaky::serve(Desk::new(Model::new(dependency, 1), Arc::clone(&recorder))).await.unwrap();
    let url = format!("http://{}/", flaky.address());
    let road = Road::http(url).unwrap();
    let wire = Wire::new(road, Arc::clone(&recorder), 0, Duration::from_millis(timeout_ms), 4);
    (flaky, wire, recorder)
}

async fn outcomes(wire: &Wire, operations: u64) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    for number in 0..operations {
        outcomes
            .push(wire.attempt(&Operation::new(number, Duration::ZERO, Duration::from_secs(10)), 1).await);
    }
    outcomes
}

fn total(recorder: &Recorder) -> Second {
    recorder.seconds().iter().sum()
}

#[tokio::test]
async fn the_same_seed_fails_the_same_operations() {
    let phases = vec![Phase { failure_share: 0.3, ..Phase::default() }];
    let dependency = Dependency { phases, ..dependency() };
    let (_first, one, recorder) = started(&dependency, 5000).await;
    let (_second, other, _) = started(&dependency, 5000).await;
    let seen = outcomes(&one, 100).await;
    assert_eq!(seen, outcomes(&other, 100).await);
    let failed = seen.iter().filter(|outcome| **outcome == Outcome::Unavailable).count();
    assert!((12..=48).contains(&failed), "four standard deviations: {failed}");
    let total = total(&recorder);
    assert_eq!(
        (total.physical(), total.failed_by_cause, total.affected),
        (100, failed as u64, failed as u64)
    );
}

#[tokio::test]
async fn over_the_account_limit_the_answer_is_429_with_retry_after() {
    let account = Some(Account { per_s: 5.0, window_ms: 60_000, counts_refused: true });
    let (_flaky, wire, recorder) = started(&Dependency { account, ..dependency() }, 5000).await;
    let seen = outcomes(&wire, 310).await;
    assert!(seen[..300].iter().all(|outcome| *outcome == Outcome::Success));
    let Outcome::RateLimited(Some(retry_after)) = seen[300] else { panic!("{:?}", seen[300]) };
    assert!((1..=60).contains(&retry_after.as_secs()));
    assert_eq!((total(&recorder).rate_limited, total(&recorder).inflicted()), (10, 10));
}

#[tokio::test]
async fn a_full_queue_refuses_and_work_for_callers_that_hung_up_is_done_for_nothing() {
    let slow = Dependency { capacity_per_s: 1.0, queue_limit: 3, ..dependency() };
    let (_flaky, wire, recorder) = started(&slow, 300).await;
    let wire = Arc::new(wire);
    let calls: Vec<_> = (0..5)
        .map(|number| {
            let wire = Arc::clone(&wire);
            tokio::spawn(async move {
                wire.attempt(&Operation::new(number, Duration::ZERO, Duration::from_secs(5)), 1).await
            })
        })
        .collect();
    let mut seen = Vec::new();
    for call in calls {
        seen.push(call.await.unwrap());
    }
    let count = |wanted| seen.iter().filter(|outcome| **outcome == wanted).count();
    assert_eq!((count(Outcome::Timeout), count(Outcome::Unavailable)), (3, 2), "{seen:?}");
    for _ in 0..100 {
        if total(&recorder).abandoned == 3 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!((total(&recorder).abandoned, total(&recorder).queue_full), (3, 2));
}

#[tokio::test]
async fn attempts_are_told_apart_by_their_number() {
    let (_flaky, wire, recorder) = started(&dependency(), 5000).await;
    let operation = Operation::new(1, Duration::ZERO, Duration::from_secs(5));
    for number in 1..=3 {
        wire.attempt(&operation, number).await;
    }
    assert_eq!(total(&recorder).by_attempt, [1, 1, 1, 0, 0, 0, 0, 0]);
    assert_eq!(operation.first_ok(), Some(true));
}
