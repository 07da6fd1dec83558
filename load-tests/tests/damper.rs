//! Short storms through a damper server on a real socket. Bounds are asserted, never timings.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may fail in any way; clippy exempts marked functions alone"
)]

use damper_load::measure::Second;
use damper_load::scenario::{Scenario, Way, parse};
use damper_load::stop;
use damper_load::storm::{self, Order, Progress, Run, ServerChoice};

struct Silent;

impl Progress for Silent {
    fn starts(&self, _: Way, _: &Scenario) {}
    fn second(&self, _: Way, _: usize, _: &Second) {}
    fn note(&self, _: &str) {}
}

fn scenario(more: &str) -> Scenario {
    let text = r#"
name = "smoke"
about = "failures enough to want more than the pool has"
duration_s = 4

[traffic]
arrival_per_s = 100
clients = 4
deadline_ms = 2000
attempt_timeout_ms = 1000

[dependency]
name = "payments"
capacity_per_s = 1000
queue_limit = 1000
latency_ms = 2
phases = [{ from_s = 0, failure_share = 0.3 }]

[damper]
max_attempts = 4
retry = { per_s = 5, burst = 5 }
"#;
    parse("smoke", &format!("{text}{more}")).unwrap()
}

async fn run(scenario: Scenario) -> Run {
    run_at(ServerChoice::Own(([127, 0, 0, 1], 0).into()), scenario).await
}

async fn run_at(server: ServerChoice, scenario: Scenario) -> Run {
    let (_stopper, stop) = stop::pair();
    let order = Order { scenario, ways: vec![Way::Damper], server };
    storm::run(&order, &Silent, &stop).await.unwrap().remove(0)
}

#[tokio::test]
async fn executed_retries_keep_within_the_pool_and_its_burst() {
    let run = run(scenario("")).await;
    let total: Second = run.seconds.iter().sum();
    assert_eq!((total.offered, total.unsent), (400, 0));
    assert_eq!(total.by_attempt[0], 400, "first attempts are untouched");
    assert!(total.wanted > 60, "demand is far above the pool: {}", total.wanted);
    for second in &run.seconds {
        assert!(second.executed() <= 10, "5 + 5 in {second:?}");
    }
    assert!(total.executed() <= 5 + 5 * run.seconds.len() as u64);
    assert!(total.executed() > 0 && total.shed + total.expired > 0);

    let server = run.server.unwrap();
    // A grant that crosses the end of its window on the wire is a token that nobody uses.
    let (spent, executed) = (server.pool.issued - server.pool.returned, total.executed() as f64);
    assert!(executed <= spent && spent <= executed + total.expired as f64, "{executed} {:?}", server.pool);
    assert_eq!(server.windows["1m"].logical, 400);
    assert_eq!(server.windows["1m"].physical, total.physical());
}

#[tokio::test]
async fn a_fleet_outlives_its_server_and_finds_it_again() {
    let events = "
[[events]]
at_s = 1
action = \"kill_server\"
[[events]]
at_s = 2
action = \"start_server\"
";
    let run = run(scenario(events)).await;
    let total: Second = run.seconds.iter().sum();
    assert_eq!((total.offered, total.unsent, total.by_attempt[0]), (400, 0, 400));
    assert!(run.server.is_some(), "the second server knows the dependency");
}

#[tokio::test]
async fn a_policy_that_is_none_names_its_key() {
    // No file comes to this: its `[damper]` is looked at when it is read.
    let mut scenario = scenario("");
    scenario.damper.insert("capacity".to_owned(), 3.into());
    let (_stopper, stop) = stop::pair();
    let server = ServerChoice::Own(([127, 0, 0, 1], 0).into());
    let order = Order { scenario, ways: vec![Way::Damper], server };
    let error = storm::run(&order, &Silent, &stop).await.unwrap_err().to_string();
    assert!(error.contains("capacity"), "{error}");
}

#[tokio::test]
async fn a_running_server_is_used_as_it_is() {
    let config = damper_server::Config::from_toml("dependencies.payments.retry = { per_s = 2, burst = 2 }");
    let server = damper_server::start(config.unwrap().on_any_port()).await.unwrap();
    let url = format!("http://{}", server.local_addr());
    let run = run_at(ServerChoice::Running(url), scenario("")).await;
    assert_eq!(run.server.unwrap().pool.burst, 2.0);
    for second in &run.seconds {
        assert!(second.executed() <= 4, "2 + 2 in {second:?}");
    }
    server.shutdown().await.unwrap();
}
