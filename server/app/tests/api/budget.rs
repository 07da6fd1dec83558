//! The promise: never more tokens than the pool brings.

use std::time::Duration;

use damper_core::{Ask, Class, Dispatch, Failure, Kind, Priority, Span, Verdict};
use damper_engine::{Asking, Decided, MemoryEngine};
use damper_server::Config;
use futures_util::future::join_all;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::support::{Server, retry, with};

const TEN_PER_SECOND: &str = "[defaults]\nretry.per_s = 10\nretry.burst = 5";

fn ask(deadline_ms: u64) -> Ask {
    Ask {
        request_id: None,
        tenant: "default".into(),
        kind: Kind::Retry,
        attempt: 2,
        failure: Some(Failure {
            reason: None,
            do_not_retry: false,
            class: Class::Transient,
            dispatch: Dispatch::NotSent,
            caller_rejected: false,
            retry_after: None,
        }),
        idempotent: true,
        recovery_mode: None,
        priority: Priority::Normal,
        cost: 1,
        deadline: Span::from_millis(deadline_ms),
        earliest: Span::ZERO,
        expected: Span::ZERO,
        max_wait: None,
    }
}

fn engine(toml: &str) -> MemoryEngine {
    MemoryEngine::new(Config::from_toml(toml).unwrap().settings())
}

async fn decided(engine: &MemoryEngine, ask: &Ask) -> (Decided, Duration) {
    let started = Instant::now();
    let decided = match engine.ask("payments", ask).unwrap() {
        Asking::Decided(decided) => decided,
        Asking::Waiting(ticket) => ticket.await.unwrap(),
    };
    (decided, started.elapsed())
}

/// The most grants in any second, of grants at these moments.
fn most_in_a_second(grants: &[Duration]) -> usize {
    let second = Duration::from_secs(1);
    let within = |from: &Duration| grants.iter().filter(|at| (*from..*from + second).contains(*at)).count();
    grants.iter().map(within).max().unwrap_or(0)
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_asks_never_get_an_eleventh_token_in_a_second_beside_the_burst() {
    let engine = engine(TEN_PER_SECOND);
    let start = Instant::now();
    let asking = async |number: u64| {
        // Spread over five seconds, so that the queue is never empty.
        sleep(Duration::from_micros(number * 500)).await;
        let (decided, _) = decided(&engine, &ask(30_000)).await;
        (decided.decision.verdict == Verdict::Granted).then(|| start.elapsed())
    };
    let grants: Vec<Duration> = join_all((0..10_000).map(asking)).await.into_iter().flatten().collect();
    assert!(most_in_a_second(&grants) <= 10 + 5, "{grants:?}");
    let seconds = grants.iter().max().unwrap().as_secs_f64();
    assert!(grants.len() as f64 <= 5.0 + 10.0 * seconds, "{} in {seconds} s", grants.len());
    assert!(grants.len() as f64 >= 10.0 * seconds - 5.0, "the pool is used: {} in {seconds} s", grants.len());
    let issued = engine.snapshot("payments").unwrap().pool.issued.as_tokens();
    assert_eq!(issued, grants.len() as f64);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_granted_after_its_deadline() {
    let engine = engine(TEN_PER_SECOND);
    let asks = join_all((0..1000).map(|_| async { decided(&engine, &ask(100)).await })).await;
    let granted = asks.iter().filter(|(decided, _)| decided.decision.verdict == Verdict::Granted);
    assert!(granted.clone().count() >= 1);
    for (decided, took) in granted {
        assert!(*took < Duration::from_millis(100), "granted after {took:?}: {decided:?}");
    }
    assert!(
        asks.iter().all(|(_, took)| *took <= Duration::from_millis(101)),
        "everyone has an answer by then"
    );
}

#[tokio::test]
async fn over_http_the_pool_issues_what_it_has() {
    let server = Server::start("[defaults]\nretry.per_s = 10\nmax_delay_ms = 1000").await;
    let started = std::time::Instant::now();
    let ask = with(retry(), json!({"deadline_ms": 5000}));
    let answers = join_all((0..300).map(|_| server.ask(&ask))).await;
    let granted = answers.iter().filter(|answer| answer["decision"] == "granted").count() as f64;
    let bound = 10.0 + 10.0 * started.elapsed().as_secs_f64();
    assert!((1.0..=bound).contains(&granted), "{granted} of {bound}");
    assert_eq!(server.issued("payments").await, granted);
}

#[tokio::test]
async fn over_http_nothing_is_granted_that_waited_beyond_its_deadline() {
    let server = Server::start(TEN_PER_SECOND).await;
    let ask = with(retry(), json!({"deadline_ms": 100}));
    let answers = join_all((0..100).map(|_| server.ask(&ask))).await;
    let mut granted = answers.iter().filter(|answer| answer["decision"] == "granted").peekable();
    assert!(granted.peek().is_some());
    assert!(granted.all(|answer| answer["waited_ms"].as_u64().unwrap() < 100));
}
