//! The binary `damper`, as people and supervisors meet it.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail in any way; the lints exempt only functions that are marked as tests"
)]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
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
        &["plan"],
        &["plan", "--arrival-per-s", "120", "--failure-rate", "0.1"],
        &["plan", "--arrival-per-s", "-1", "--failure-rate", "0.1", "--max-attempts", "2"],
        &["plan", "--arrival-per-s", "120", "--failure-rate", "1.1", "--max-attempts", "2"],
        &["plan", "--dependency", "payments", "--max-attempts", "101"],
        &["plan", "--dependency", "payments", "--server", "ftp://127.0.0.1"],
        &["plan", "--server", "http://127.0.0.1"],
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

const CHAPTER: [&str; 11] = [
    "plan",
    "--arrival-per-s",
    "120",
    "--failure-rate",
    "0.12",
    "--max-attempts",
    "4",
    "--capacity-per-s",
    "130",
    "--retry-per-s",
    "10",
];

#[test]
fn plan_prints_the_arithmetic_from_numbers_alone() {
    let (code, out, err) = run(&CHAPTER);
    assert_eq!((code, err.as_str()), (0, ""));
    let row = |attempts| {
        let words = out.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        words.into_iter().find(|words| words.first() == Some(&attempts)).unwrap()
    };
    assert_eq!(
        row("1"),
        ["1", "1.000000", "120.000", "105.600", "yes", "10.000", "130.000", "120.000", "yes"]
    );
    let four = ["4", "1.136128", "136.335", "119.975", "no", "-6.335", "114.424", "130.000", "yes"];
    assert_eq!(row("4"), four, "all retries do not fit, those of the pool do");
    for line in [
        "114.424  at this failure rate",
        "120.000  whatever fails",
        "32.500  if all fails",
        "6.335/s are beyond",
    ] {
        assert!(out.contains(line), "{line} is not in {out}");
    }
    let (_, csv, _) = run(&[&CHAPTER[..], &["--format", "csv"]].concat());
    assert_eq!(csv.lines().count(), 5);
    let (_, json, _) = run(&[&CHAPTER[..], &["--format", "json"]].concat());
    let plan: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(format!("{:.3}", plan["safe_arrival_per_s"].as_f64().unwrap()), "114.424");
}

#[test]
fn plan_takes_what_a_server_sees_and_says_why_it_cannot() {
    let (_server, address, _log) = serve(&[]);
    let server = format!("http://{address}");
    let ask = |arguments: &[&str]| {
        let ask = [&["plan", "--dependency", "pay ments", "--server", &server], arguments].concat();
        run(&ask)
    };
    let (code, _, err) = ask(&[]);
    assert!(code == 1 && err.contains("not known"), "{code} {err}");
    let sync = r#"{"client":{"id":"c","incarnation":"1"},"dependencies":{"pay ments":{"totals":{}}}}"#;
    post(&address, "/v1/sync", sync);
    let (code, _, err) = ask(&[]);
    assert!(code == 1 && err.contains("--arrival-per-s is required"), "{code} {err}");
    let (code, out, err) = ask(&["--arrival-per-s", "120", "--failure-rate", "0.12"]);
    assert!(code == 0 && out.contains("136.335"), "{code} {out} {err}");
    let planned = "at most 4 attempts, pool 10.56/s (by its ratio), ratio 0.1\n";
    let measured =
        "measured now, over 60 s: no operations; the pool brings 1/s (by its floor), throttled to 100 %\n";
    assert!(out.contains(&[planned, measured].concat()), "{out}");
}

#[test]
fn plan_without_a_server_is_to_be_tried_again_later() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (code, _, err) = run(&["plan", "--dependency", "payments", "--server", &format!("http://{free}")]);
    assert!(
        code == 75 && err.contains("cannot be reached") && err.contains("DAMPER_ENDPOINT"),
        "{code} {err}"
    );
    let mut told = damper(&["plan", "--dependency", "payments"]);
    let (code, _, err) = finished(told.env("DAMPER_ENDPOINT", format!("http://{free}")).output().unwrap());
    assert!(code == 75 && err.contains(&free.to_string()), "{code} {err}");
}

fn post(address: &str, path: &str, body: &str) {
    let mut stream = TcpStream::connect(address).unwrap();
    let length = body.len();
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}
