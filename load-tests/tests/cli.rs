//! The command line as its callers see it: exit codes and streams.

#![allow(clippy::unwrap_used, reason = "a test may fail in any way; clippy exempts marked functions alone")]

use std::process::{Command, Output};

fn damper_load(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_damper-load")).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn wrong_usage_is_2() {
    for arguments in [&["storm"][..], &["strom"], &["storm", "--scenario", "chapter-r2", "--only", "both"]] {
        assert_eq!(damper_load(arguments).status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn an_unreadable_scenario_is_1_and_says_where() {
    let output = damper_load(&["storm", "--scenario", "no/such.toml"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("no/such.toml") && output.stdout.is_empty());
}

#[test]
fn a_storm_against_a_server_that_is_not_there_is_1_and_measures_nothing() {
    let output = damper_load(&["storm", "--scenario", "chapter-r2", "--server", "http://127.0.0.1:1"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("no damper server is ready") && output.stdout.is_empty());
}

#[test]
fn help_and_scenarios_are_0() {
    let output = damper_load(&["--help"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stdout).contains("damper-load demo") && text(&output.stdout).contains("Exit codes"));
    let output = damper_load(&["scenarios", "chapter-r2"]);
    assert!(text(&output.stdout).contains("[damper.retry]"));
}

#[test]
fn the_result_is_on_standard_output_and_the_exit_code_tells_of_a_missed_expectation() {
    let path = std::env::temp_dir().join(format!("damper-load-cli-{}.toml", std::process::id()));
    let (code, stdout, stderr) = {
        let scenario = r#"
            name = "short"
            about = "one second"
            duration_s = 1
            traffic = { arrival_per_s = 20, clients = 1, deadline_ms = 500, attempt_timeout_ms = 500 }
            dependency = { name = "d", capacity_per_s = 100, queue_limit = 9, latency_ms = 1 }
            expect.none.offered_per_s = { at_least = 21 }
        "#;
        std::fs::write(&path, scenario).unwrap();
        let output = damper_load(&["storm", "--only", "none", "--scenario", path.to_str().unwrap()]);
        std::fs::remove_file(&path).unwrap();
        (output.status.code(), text(&output.stdout).to_owned(), text(&output.stderr).to_owned())
    };
    assert_eq!(code, Some(1), "{stdout}{stderr}");
    assert!(stdout.contains("MISSED      none    offered_per_s is 20.00"), "{stdout}");
    assert!(stderr.contains("none      1 s |") && !stdout.contains(" 1 s |"));
}

#[cfg(unix)]
#[test]
fn an_interrupt_ends_the_storm_and_not_the_report() {
    use std::io::{BufRead as _, BufReader, Read as _};
    use std::process::Stdio;

    let mut storm = Command::new(env!("CARGO_BIN_EXE_damper-load"))
        .args(["storm", "--scenario", "chapter-r2", "--only", "none"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(storm.stderr.take().unwrap()).lines();
    while !lines.next().unwrap().unwrap().contains(" 1 s |") {}
    let interrupted = Command::new("kill").args(["-INT", &storm.id().to_string()]).status().unwrap();
    assert!(interrupted.success());
    let mut stdout = String::new();
    storm.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
    drop(lines);
    assert_eq!(storm.wait().unwrap().code(), Some(1));
    assert!(stdout.contains("operations offered /s") && stdout.contains("not judged"), "{stdout}");
}
