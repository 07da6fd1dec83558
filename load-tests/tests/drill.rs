//! Drills: the same in every run, judged trial by trial, and written in every form.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may fail in any way; the lints exempt only functions that are marked as tests"
)]

use damper_load::drill::{self, Order, Report};
use damper_load::scenario::{Scenario, Way, parse};

/// Everything that could make two runs differ: chance, loss, several tenants, a server that dies, queues.
const SCENARIO: &str = r#"
name = "small"
about = "a bit of everything"
duration_s = 20

[traffic]
arrival_per_s = 100
pacing = "poisson"
deadline_ms = 3000
attempt_timeout_ms = 200
tenants = [{ name = "a", load = 3, clients = 5 }, { name = "b", count = 4, clients = 3, from_s = 2 }]

[dependency]
name = "payments"
capacity_per_s = 150
queue_limit = 50
latency_ms = 20
latency = "exponential"
phases = [{ from_s = 5, failure_share = 0.3 }, { from_s = 15, failure_share = 0.9, latency_ms = 60 }]

[[events]]
at_s = 10
action = "kill_server"

[[events]]
at_s = 12
action = "start_server"

[drill]
ways = ["none", "finagle", "shared", "damper"]
seeds = 2
latency_ms = 3
loss = 0.05
over_s = 18

[damper]
capacity_per_s = 150

[expect.damper]
amplification = { at_most = 1.5 }
operation_success = { at_least = 1.1 }
"#;

fn drilled(scenario: &str, only: Option<&[Way]>) -> Report {
    let scenario: Scenario = parse("small", scenario).unwrap();
    let config = drill::policy_of(&scenario, None).unwrap();
    let order = Order { trials: drill::plan(&scenario, only), scenario, config };
    let trials = drill::run(&order, &|_| {}).unwrap();
    let judgements = drill::judge(&order.scenario, &trials);
    Report { scenario: order.scenario, trials, judgements }
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let [first, second] = [0, 1].map(|_| [drilled(SCENARIO, None)]);
    assert_eq!(drill::csv(&first), drill::csv(&second));
    assert_eq!(drill::html(&first), drill::html(&second));
    assert_eq!(drill::json(&first).unwrap(), drill::json(&second).unwrap());
    let other = [drilled(&SCENARIO.replace("about =", "seed = 77\nabout ="), None)];
    assert_ne!(drill::csv(&first), drill::csv(&other), "the test can tell");
}

#[test]
fn a_name_with_a_comma_is_one_field_of_the_csv() {
    let named = SCENARIO.replace("name = \"small\"", "name = 'small, \"odd\"'");
    let csv = drill::csv(&[drilled(&named, Some(&[Way::None]))]);
    let mut lines = csv.lines();
    assert!(lines.next().unwrap().starts_with("scenario,way,clients,seed,second,operations,"));
    assert!(lines.next().unwrap().starts_with("\"small, \"\"odd\"\"\",none,17,1,0,"), "{csv}");
}

#[test]
fn ways_that_are_judged_are_tried_with_every_seed() {
    let report = drilled(SCENARIO, None);
    let tried: Vec<(Way, u64)> = report.trials.iter().map(|trial| (trial.way, trial.seed)).collect();
    let expected = [(Way::None, 1), (Way::Finagle, 1), (Way::Shared, 1), (Way::Damper, 1), (Way::Damper, 2)];
    assert_eq!(tried, expected);
    let met: Vec<(bool, usize)> = report.judgements.iter().map(|one| (one.is_met(), one.trials)).collect();
    assert_eq!(met, [(true, 2), (false, 2)], "{:?}", report.judgements);
    let told = drill::judgements(&report);
    assert!(told.contains("MISSED  damper  operation_success"), "{told}");
    assert!(told.contains("in 0 of 2 trials, not with seed 1"), "{told}");
}

#[test]
fn a_table_has_a_line_for_each_way_and_every_number_finds_its_column() {
    let report = drilled(SCENARIO, Some(&[Way::Damper, Way::None]));
    let table = drill::table(&report);
    let lines: Vec<&str> = table.lines().take(3).collect();
    assert!(lines[0].starts_with("way") && lines[1].starts_with("none") && lines[2].starts_with("damper"));
    assert!(table.contains("operations started from second 5 on"), "the first change: {table}");
    let page = drill::html(&[report]);
    assert_eq!(page.matches("<svg").count(), 4, "three figures, and damper's decisions");
    assert!(!page.contains("http") || !page.contains("src="), "it needs nothing else");
}

#[test]
fn what_damper_counts_is_what_the_dependency_saw() {
    let quiet = SCENARIO.replace("loss = 0.05", "loss = 0").replace("[[events]]", "[[unused]]");
    let quiet: String =
        quiet.lines().filter(|line| !is_event(line)).map(|line| format!("{line}\n")).collect();
    let report = drilled(&quiet, Some(&[Way::Damper]));
    let trial = &report.trials[0];
    let total: damper_load::measure::Second = trial.seconds.iter().sum();
    let server = trial.server.as_ref().unwrap();
    let window = &server.windows["5m"];
    assert_eq!(window.logical, total.offered);
    assert_eq!(window.physical, total.physical(), "attempts that clients counted, and those that arrived");
    let granted: u64 = server.decisions["granted"].values().sum();
    assert_eq!(granted, total.executed(), "every retry had its token");
}

#[test]
fn a_file_for_another_machine_can_be_drilled() {
    let path = std::env::temp_dir().join(format!("damper-drill-{}.toml", std::process::id()));
    let scenario = parse("small", SCENARIO).unwrap();
    let policy = |text: &str| {
        std::fs::write(&path, text).unwrap();
        drill::policy_of(&scenario, Some(&path))
    };
    let served = "server.listen = \"0.0.0.0:7117\"\ntelemetry.otlp_endpoint = \"http://collector:4318\"\n";
    let config = policy(&format!("{served}[dependencies.payments]\nmax_attempts = 3")).unwrap();
    assert_eq!(config.settings().dependencies["payments"].max_attempts(), 3);
    assert!(config.listen().ip().is_loopback(), "whatever runs with it is heard by nobody");
    let error = policy("[dependencies.payments]\nmax_atempts = 3").unwrap_err().to_string();
    let junk = policy("server.listen = \"anywhere\"").unwrap_err().to_string();
    std::fs::remove_file(&path).unwrap();
    assert!(error.contains(":2: dependencies.payments.max_atempts is not a key"), "{error}");
    assert!(junk.contains(":1: server.listen is \"anywhere\""), "{junk}");
}

fn is_event(line: &str) -> bool {
    ["[[unused]]", "at_s", "action"].iter().any(|start| line.starts_with(start))
}
