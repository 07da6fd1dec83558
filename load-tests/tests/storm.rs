//! Short storms on real sockets. Only what holds on any machine is asserted: counts and bounds, never timings.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail in any way; the lints exempt only functions that are marked as tests"
)]

use damper_load::measure::Second;
use damper_load::report::{Report, judgements, svg, table, to_json};
use damper_load::scenario::{Scenario, Way, parse};
use damper_load::stop::{self, Stop};
use damper_load::storm::{self, Order, Progress, Run, ServerChoice};

const SCENARIO: &str = r#"
name = "smoke"
about = "three seconds of trouble"
duration_s = 3

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

[local]
base_ms = 10

[damper]
max_attempts = 4
retry = { per_s = 5, burst = 5 }

[expect.none]
amplification = { at_most = 1 }
[expect.local]
amplification = { at_most = 1.1 }
[expect.damper]
executed_worst_s = { at_most = 10 }
"#;

struct Silent;

impl Progress for Silent {
    fn starts(&self, _: Way, _: &Scenario) {}
    fn second(&self, _: Way, _: usize, _: &Second) {}
    fn note(&self, _: &str) {}
}

async fn run(ways: &[Way], stop: &Stop) -> Report {
    let scenario = parse("smoke", SCENARIO).unwrap();
    let server = ServerChoice::Own(([127, 0, 0, 1], 0).into());
    let order = Order { scenario, ways: ways.to_vec(), server };
    let runs = storm::run(&order, &Silent, stop).await.unwrap();
    Report::new(order.scenario, runs)
}

fn total(run: &Run) -> Second {
    run.seconds.iter().sum()
}

/// What must be true of every run, whatever the way.
fn adds_up(run: &Run) {
    let total = total(run);
    assert_eq!(total.offered, 300, "{:?}", run.way);
    assert_eq!(total.succeeded + total.failed, 300);
    assert_eq!(total.first_ok + total.affected + total.unsent, 300);
    assert_eq!(total.ended(), total.physical(), "every attempt that was sent arrived");
    assert!(total.recovered <= total.affected);
}

#[tokio::test]
async fn the_ways_differ_in_their_retries_alone() {
    let (_stopper, stop) = stop::pair();
    let report = run(&[Way::None, Way::Local], &stop).await;
    let [none, local] = &report.runs[..] else { panic!("two ways") };
    adds_up(none);
    adds_up(local);
    assert_eq!(total(none).executed(), 0);
    assert!(total(local).executed() > 30, "300 x (0.3 + 0.09 + 0.027) = 125");
    assert_eq!(total(none).affected, total(local).affected, "the same first attempts fail");
    assert!(total(local).recovered > 0);

    assert!(report.needs_a_human());
    let lines = judgements(&report);
    assert!(lines.contains("met         none") && lines.contains("MISSED      local"), "{lines}");
    let table = table(&report);
    let header = table.lines().next().unwrap();
    assert!(header.contains("none") && header.contains("local") && !header.contains("damper"));
    assert!(table.lines().any(|line| line.starts_with("amplification observed") && line.contains("1.000")));
    assert!(svg(&report).contains("each client retries by itself"));
}

#[tokio::test]
async fn the_json_holds_the_figures_and_every_second() {
    let (_stopper, stop) = stop::pair();
    let report = run(&[Way::None], &stop).await;
    let json: serde_json::Value = serde_json::from_str(&to_json(&report).unwrap()).unwrap();
    assert_eq!((json["scenario"].as_str(), json["seed"].as_u64()), (Some("smoke"), Some(1)));
    let way = &json["ways"][0];
    assert_eq!((way["way"].as_str(), way["interrupted"].as_bool()), (Some("none"), Some(false)));
    assert_eq!(way["figures"]["offered_per_s"], 100.0);
    assert_eq!(way["figures"]["amplification"], 1.0);
    assert_eq!(way["expected_amplification"], 1.0);
    assert_eq!(way["totals"]["offered"], 300);
    assert!(way["seconds"].as_array().unwrap().len() >= 3);
    assert_eq!(way["seconds"][0]["by_attempt"].as_array().unwrap().len(), 8);
    let expectation = &json["expectations"][0];
    assert_eq!((expectation["verdict"].as_str(), expectation["at_most"].as_f64()), (Some("met"), Some(1.0)));
}

#[tokio::test]
async fn a_storm_that_is_stopped_keeps_what_was_measured_and_judges_nothing() {
    let (stopper, stop) = stop::pair();
    tokio::spawn(async move {
        tokio::time::sleep(std::time::Duration::from_millis(1800)).await;
        stopper.stop();
        std::future::pending::<()>().await;
    });
    let report = run(&[Way::None, Way::Local], &stop).await;
    assert_eq!(report.runs.len(), 1, "the second way does not start");
    assert!(report.runs[0].interrupted && total(&report.runs[0]).offered > 0);
    assert!(judgements(&report).starts_with("not judged") && report.needs_a_human());
}
