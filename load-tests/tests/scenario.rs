//! Scenarios: what is read, and that every mistake names its place.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail in any way; the lints exempt only functions that are marked as tests"
)]

use damper_load::scenario::{Measure, Pacing, Way, embedded, load, parse};

const LEAST: &str = r#"
name = "least"
about = "the least that a scenario needs"
duration_s = 10

[traffic]
arrival_per_s = 10
clients = 2
deadline_ms = 1000
attempt_timeout_ms = 500

[dependency]
name = "d"
capacity_per_s = 20
queue_limit = 10
latency_ms = 5
"#;

fn mistake(from: &str, to: &str) -> String {
    assert!(LEAST.contains(from));
    parse("mine.toml", &LEAST.replace(from, to)).unwrap_err().to_string()
}

#[test]
fn every_embedded_scenario_is_sound_and_bears_its_name() {
    for (name, _) in embedded() {
        let scenario = load(name).unwrap();
        assert_eq!(scenario.name, name);
        assert!(scenario.expect.contains_key(&Way::Damper), "{name} expects nothing of damper");
    }
}

#[test]
fn a_file_is_read_as_a_scenario_too() {
    let path = std::env::temp_dir().join(format!("damper-load-{}.toml", std::process::id()));
    std::fs::write(&path, LEAST).unwrap();
    let scenario = load(path.to_str().unwrap()).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!((scenario.traffic.pacing, scenario.seed, scenario.local.max_attempts), (Pacing::Even, 1, 4));
}

#[test]
fn an_unknown_scenario_names_the_known_ones() {
    let error = load("chapter-r3").unwrap_err().to_string();
    assert!(error.contains("`chapter-r3`") && error.contains("chapter-r2, incident-0312"), "{error}");
}

#[test]
fn an_unknown_key_of_any_section_names_file_line_and_key() {
    let before = |key: &str| LEAST.replacen(key, &format!("keyy = 1\n{key}"), 1);
    let after = |section: &str| format!("{LEAST}{section}\nkeyy = 1\n");
    for text in [
        before("duration_s"),
        before("arrival_per_s"),
        before("queue_limit"),
        after("[local]"),
        after("[drill]"),
        after("[dependency.account]\nper_s = 1"),
        after("[[dependency.phases]]\nfrom_s = 1"),
        after("[[traffic.phases]]\nfrom_s = 1\narrival_per_s = 1"),
        after("[[traffic.tenants]]\nname = \"a\""),
        after("[[events]]\nat_s = 1\naction = \"kill_server\""),
        after("[expect.damper.amplification]\nat_most = 1"),
    ] {
        let line = text.lines().position(|line| line.starts_with("keyy")).unwrap() + 1;
        let error = parse("mine.toml", &text).unwrap_err().to_string();
        for part in ["mine.toml", &format!("line {line},"), "unknown field `keyy`"] {
            assert!(error.contains(part), "{part:?} is not in: {error}");
        }
    }
}

#[test]
fn a_key_that_no_policy_has_is_found_before_the_server_starts() {
    let error = mistake("latency_ms = 5", "latency_ms = 5\n[damper]\nretry.brust = 1\nmax_attempts = 0");
    assert!(error.contains("`damper.retry.brust` is not a key; did you mean retry.burst?"), "{error}");
    assert!(error.contains("`damper.max_attempts` is 0; give 1 to 100"), "{error}");
}

#[test]
fn clients_that_nobody_would_start_are_a_mistake() {
    const TENANTS: &str = "tenants = [{ name = \"a\", count = 2 }, { name = \"b\" }]";
    let cases = [
        (format!("clients = 2\n{TENANTS}"), "`traffic.clients` must be left out where tenants say"),
        (String::new(), "`traffic.clients` must be given where no tenant has any"),
        (
            "tenants = [{ name = \"a\" }, { name = \"b\" }, { name = \"a\" }]".to_owned(),
            "`traffic.tenants[2].name` must be another than that of traffic.tenants[0]: both come to be `a`",
        ),
        (
            "tenants = [{ name = \"a-1\" }, { name = \"a\", count = 2 }]".to_owned(),
            "`traffic.tenants[1].name` must be another than that of traffic.tenants[0]: both come to be `a-1`",
        ),
    ];
    for (clients, expected) in cases {
        let error = mistake("clients = 2", &clients);
        assert!(error.contains(expected), "{clients}: {error}");
        assert_eq!(error.lines().count(), 2, "nothing else is wrong: {error}");
    }
    assert!(parse("mine.toml", &LEAST.replace("clients = 2", TENANTS)).is_ok());
    let sizes = |sizes: &str| format!("latency_ms = 5\n[drill]\nclients = {sizes}");
    let error = mistake("latency_ms = 5", &sizes("[10, 20, 10]"));
    assert!(error.contains("`drill.clients[2]` must be a size that is not in the list before"), "{error}");
    assert!(parse("mine.toml", &LEAST.replace("latency_ms = 5", &sizes("[10, 20]"))).is_ok());
}

#[test]
fn an_unknown_way_or_measure_names_its_line_and_the_known_ones() {
    let error = mistake("latency_ms = 5", "latency_ms = 5\n[expect.damper]\nphysical = { at_most = 1 }");
    for part in ["mine.toml", "line 18", "unknown variant `physical`", "`physical_per_s`"] {
        assert!(error.contains(part), "{part:?} is not in: {error}");
    }
    let error = mistake("latency_ms = 5", "latency_ms = 5\n[expect.dampr]\nphysical_per_s = { at_most = 1 }");
    assert!(error.contains("line 17") && error.contains("`damper`"), "{error}");
}

#[test]
fn all_impossible_values_are_named_at_once() {
    let text = LEAST
        .replace("arrival_per_s = 10", "arrival_per_s = -1")
        .replace("queue_limit = 10", "queue_limit = 0")
        .replace(
            "latency_ms = 5",
            r#"latency_ms = 5
phases = [{ from_s = 3, failure_share = 1.5 }, { from_s = 2, failure_share = 0.1 }]
account = { per_s = 0, window_ms = 0 }
[local]
max_attempts = 0
base_ms = 5000
[[events]]
at_s = 1
action = "start_server"
[expect.damper]
amplification = { at_most = 1, sigmas = 3 }
first_success = { from_s = 5 }
error_share = { at_most = 1, from_s = 9, until_s = 9 }"#,
        );
    let error = parse("mine.toml", &text).unwrap_err().to_string();
    for key in [
        "traffic.arrival_per_s",
        "dependency.queue_limit",
        "dependency.phases[0].failure_share",
        "dependency.phases[1].from_s",
        "dependency.account.per_s",
        "dependency.account.window_ms",
        "local.max_attempts",
        "local.cap_ms",
        "events[0].action",
        "expect.damper.amplification.sigmas",
        "expect.damper.first_success",
        "expect.damper.error_share",
    ] {
        assert!(error.contains(&format!("`{key}` must be")), "{key} is not in: {error}");
    }
}

#[test]
fn the_failure_share_follows_the_phases() {
    let scenario = load("incident-0312").unwrap();
    let share = |s| scenario.dependency.phase(std::time::Duration::from_secs(s)).failure_share;
    assert_eq!([share(0), share(4), share(5), share(19), share(20)], [0.0, 0.0, 0.125, 0.125, 0.0]);
}

#[test]
fn a_measure_is_written_as_it_is_read() {
    for measure in Measure::ALL {
        assert_eq!(serde_json::to_string(&measure).unwrap(), format!("\"{}\"", measure.as_str()));
    }
}
