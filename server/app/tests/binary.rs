//! The binary `damper`, as people and supervisors meet it.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail in any way; the lints exempt only functions that are marked as tests"
)]

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

/// Longer than anything here takes on any machine.
const HARD: Duration = Duration::from_secs(30);

fn damper(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_damper"));
    command.args(arguments);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("DAMPER_")) {
        command.env_remove(name);
    }
    command
}

fn run(arguments: &[&str]) -> (i32, String, String) {
    finished(damper(arguments).output().unwrap())
}

fn finished(output: Output) -> (i32, String, String) {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}

/// A configuration file of a test's own.
fn file(name: &str, text: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, text).unwrap();
    path
}

/// A process that does not outlive its test, however that ends.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server, and the address that its log named.
fn serve(arguments: &[&str]) -> (Process, String, impl BufRead + use<>) {
    let mut command = damper(&[&["serve", "--listen", "127.0.0.1:0"], arguments].concat());
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    log.read_line(&mut line).unwrap();
    let address = line.split("127.0.0.1:").nth(1).map(|rest| {
        let port: String = rest.chars().take_while(char::is_ascii_digit).collect();
        format!("127.0.0.1:{port}")
    });
    (Process(child), address.unwrap_or_else(|| panic!("no address in {line:?}")), log)
}

fn terminate(process: &Process) {
    send("-TERM", process);
}

fn send(signal: &str, process: &Process) {
    let killed = Command::new("kill").args([signal, &process.0.id().to_string()]).status().unwrap();
    assert!(killed.success());
}

/// Reads the log up to a line that says this. A server that never says it does not keep the test waiting.
fn until(process: &Process, log: &mut impl BufRead, word: &str) -> String {
    let (said, saying) = mpsc::channel::<()>();
    let pid = process.0.id().to_string();
    thread::spawn(move || {
        if saying.recv_timeout(HARD) == Err(RecvTimeoutError::Timeout) {
            let _ = Command::new("kill").args(["-KILL", &pid]).status();
        }
    });
    let mut read = String::new();
    while !read.lines().last().is_some_and(|line| line.contains(word)) {
        assert_ne!(log.read_line(&mut read).unwrap(), 0, "the log ended: {read}");
    }
    drop(said);
    read
}

fn exit_code(process: &mut Process) -> i32 {
    let started = Instant::now();
    loop {
        if let Some(status) = process.0.try_wait().unwrap() {
            return status.code().unwrap_or(-1);
        }
        assert!(started.elapsed() < HARD);
        sleep(Duration::from_millis(10));
    }
}

#[test]
fn help_teaches() {
    for arguments in [&["--help"][..], &["serve", "--help"], &["check", "--help"]] {
        let (code, out, _) = run(arguments);
        assert_eq!(code, 0);
        let teaches = [
            "Examples:",
            "damper check --config",
            "retry.per_s",
            "DAMPER_SERVER__LISTEN",
            "caller_per_s",
            "kill -HUP",
            "Exit codes:",
            "75",
        ];
        for word in teaches {
            assert!(out.contains(word), "{arguments:?} does not say {word}");
        }
    }
    assert_eq!(run(&["--version"]).0, 0);
}

#[test]
fn usage_is_2() {
    for arguments in [
        &[][..],
        &["nonsense"],
        &["check"],
        &["serve", "--listen", "nowhere"],
        &["serve", "--log-format", "xml"],
    ] {
        assert_eq!(run(arguments).0, 2, "{arguments:?}");
    }
}

#[test]
fn check_prints_every_mistake_or_what_would_run() {
    let bad = file("bad.toml", "[dependencies.payments]\ncapacity_per_s = -1\n\nretry.brust = 2\n");
    let (code, out, err) = run(&["check", "--config", bad.to_str().unwrap()]);
    assert_eq!((code, out.as_str()), (1, ""));
    let lines: Vec<&str> = err.lines().collect();
    assert_eq!(lines.len(), 2, "{err}");
    assert!(lines[0].contains("bad.toml:4: dependencies.payments.retry.brust"), "{err}");
    assert!(lines[0].contains("did you mean retry.burst?"), "{err}");
    assert!(lines[1].contains("bad.toml:2: dependencies.payments.capacity_per_s is -1"), "{err}");

    let good = file("good.toml", "[dependencies.payments]\ncapacity_per_s = 130\nretry.per_s = 10\n");
    let (code, out, _) = run(&["check", "--config", good.to_str().unwrap()]);
    assert_eq!(code, 0);
    assert!(out.contains("127.0.0.1:7117") && out.contains("payments") && out.contains("130/s"), "{out}");

    let (code, _, err) = run(&["check", "--config", "/nowhere/damper.toml"]);
    assert_eq!(code, 1);
    assert!(err.contains("/nowhere/damper.toml"), "{err}");
}

#[test]
fn the_environment_overrides_the_file_and_its_mistakes_are_reported_too() {
    let path = file("environment.toml", "[server]\nlisten = \"127.0.0.1:1\"\n[dependencies.Payments]\n");
    let mut command = damper(&["check", "--config", path.to_str().unwrap()]);
    command
        .env("DAMPER_SERVER__LISTEN", "127.0.0.1:2")
        .env("DAMPER_DEPENDENCIES__PAYMENTS__RETRY__PER_S", "7.5");
    command.env("DAMPER_ENDPOINT", "http://elsewhere").env("DAMPER_LOG", "debug");
    let (code, out, err) = finished(command.output().unwrap());
    assert_eq!(code, 0, "{err}");
    assert!(
        out.contains("127.0.0.1:2") && out.contains("dependency Payments") && out.contains("7.5/s"),
        "{out}"
    );

    command.env("DAMPER_DEFAULTS__RETRY__PER_S", "lots").env("DAMPER_SERVER__PORT", "1");
    let (code, _, err) = finished(command.output().unwrap());
    assert_eq!(code, 1);
    assert!(err.contains("DAMPER_DEFAULTS__RETRY__PER_S: defaults.retry.per_s is \"lots\""), "{err}");
    assert!(err.contains("DAMPER_SERVER__PORT: server.port is not a key"), "{err}");
}

#[test]
fn an_address_that_is_not_loopback_is_refused_unless_told_otherwise() {
    let (code, _, err) = run(&["serve", "--listen", "0.0.0.0:0"]);
    assert_eq!(code, 1);
    assert!(err.contains("--listen: server.listen is 0.0.0.0:0") && err.contains("--insecure"), "{err}");
    let open = file("open.toml", "[server]\nlisten = \"[::]:7117\"\n");
    assert_eq!(run(&["check", "--config", open.to_str().unwrap()]).0, 1);
    let insecure = file("insecure.toml", "[server]\nlisten = \"[::]:7117\"\ninsecure = true\n");
    let (code, out, _) = run(&["check", "--config", insecure.to_str().unwrap()]);
    assert_eq!(code, 0);
    assert!(out.contains("insecure"), "{out}");
}

#[test]
fn an_address_in_use_is_for_later() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let (code, _, err) = run(&["serve", "--listen", &taken.local_addr().unwrap().to_string()]);
    assert_eq!(code, 75, "{err}");
}

#[test]
fn sigterm_ends_it_well_and_a_second_one_changes_nothing() {
    let (mut server, address, mut log) = serve(&["--log-format", "json"]);
    assert!(std::net::TcpStream::connect(&address).is_ok());
    terminate(&server);
    terminate(&server);
    assert_eq!(exit_code(&mut server), 0);
    let mut rest = String::new();
    log.read_to_string(&mut rest).unwrap();
    for line in rest.lines() {
        assert!(serde_json::from_str::<serde_json::Value>(line).is_ok(), "{line}");
    }
    assert!(rest.contains("gone"), "{rest}");
    assert!(std::net::TcpStream::connect(&address).is_err());
}

#[test]
fn sighup_reads_the_configuration_again_and_mistakes_change_nothing() {
    let path = file("hangup.toml", "");
    let (mut server, address, mut log) = serve(&["--config", path.to_str().unwrap()]);
    for (text, says) in [
        ("[dependencies.payments]\n", "config_version=2 changed=[\"payments\"]"),
        (
            "[dependencies.payments]\nmax_attempts = 0\n",
            "hangup.toml:2: dependencies.payments.max_attempts is 0",
        ),
        ("[server]\ncaller_per_s = 5\n", "config_version=3 changed=[]"),
    ] {
        fs::write(&path, text).unwrap();
        send("-HUP", &server);
        until(&server, &mut log, says);
    }
    assert!(std::net::TcpStream::connect(&address).is_ok(), "it runs on, at the address of its flag");
    terminate(&server);
    assert_eq!(exit_code(&mut server), 0);
}
