//! Scenarios: what is read, and that every mistake names its place.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail in any way; the lints exempt only functions that are marked as tests"
)]

use damper_load::scenario::{EMBEDDED, Measure, Pacing, Way, load, parse};

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
    for (name, _) in EMBEDDED {
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
fn an_unknown_key_names_file_line_and_key() {
    for (from, to, line, key) in [
        ("clients = 2", "clients = 2\nclientz = 3", "line 9", "clientz"),
        (
            "latency_ms = 5",
            "latency_ms = 5\n[dependency.account]\nper_s = 1\nwindow = 2",
            "line 19",
            "window",
        ),
    ] {
        let error = mistake(from, to);
        for part in ["mine.toml", line, &format!("unknown field `{key}`")] {
            assert!(error.contains(part), "{part:?} is not in: {error}");
        }
    }
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
