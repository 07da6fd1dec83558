//! The switches of the environment, in the environment of a real process: this test binary once more.

use std::process::{Command, Output};

use http::HeaderMap;

use super::*;
use crate::process::Process;

const NAME: &str = "DAMPER_TEST_DEPENDENCY";

/// What a process did that fails once and would succeed then.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    attempts: u32,
    end: &'static str,
    sets_headers: bool,
    reports: bool,
    warns: bool,
}

const RETRIES: Seen = Seen { attempts: 2, end: "success", sets_headers: true, reports: true, warns: false };
const INERT: Seen =
    Seen { attempts: 1, end: "retries_off", sets_headers: false, reports: false, warns: false };
const NO_RETRY: Seen = Seen { sets_headers: true, reports: true, ..INERT };
const WARNED: Seen = Seen { warns: true, ..RETRIES };
const CAPPED: Seen = Seen { attempts: 1, end: "attempts_exhausted", ..RETRIES };
const TABLE: &[(&[(&str, &str)], Seen)] = &[
    (&[], RETRIES),
    (&[("DAMPER_DISABLED", "true")], INERT),
    (&[("DAMPER_DISABLED", "TRUE")], INERT),
    (&[("DAMPER_DISABLED", "true"), ("DAMPER_CREDENTIAL_FILE", "no/such/file")], INERT),
    (&[("DAMPER_DISABLED", "true"), ("DAMPER_ENDPOINT", "nonsense")], INERT),
    (&[("DAMPER_DISABLED", "false")], RETRIES),
    (&[("DAMPER_DISABLED", "1")], WARNED),
    (&[("DAMPER_DISABLED", "yes")], WARNED),
    (&[("DAMPER_NO_RETRY", "true")], NO_RETRY),
    (&[("DAMPER_NO_RETRY", "on")], WARNED),
    (&[("DAMPER_NO_RETRY", "true"), ("DAMPER_DISABLED", "true")], INERT),
    (&[("DAMPER_MODE", "enforce")], RETRIES),
    (&[("DAMPER_MODE", "observe")], RETRIES),
    (&[("DAMPER_MODE", "bypass")], INERT),
    (&[("DAMPER_MODE", "off")], WARNED),
    (&[("DAMPER_MODE", "observe"), ("DAMPER_NO_RETRY", "true")], NO_RETRY),
    (&[("DAMPER_MAX_ATTEMPTS", "1")], CAPPED),
    (&[("DAMPER_MAX_ATTEMPTS", "3")], RETRIES),
    (&[("DAMPER_MAX_ATTEMPTS", "0")], CAPPED),
    (&[("DAMPER_TENANT", "")], WARNED),
    (&[("DAMPER_MAX_ATTEMPTS", "many")], WARNED),
];

#[tokio::test]
async fn every_switch_does_what_it_says() {
    let server = Process::start(GENEROUS);
    server.answers().await;
    for (number, (variables, expected)) in TABLE.iter().enumerate() {
        let name = format!("d{number}");
        let mut output = service(&server, &name, variables).await;
        // On a busy machine the server's answer can come too late, which no variable changes.
        for _ in 0..20 {
            if text(&output.stdout).contains("end=emergency_exhausted") {
                output = service(&server, &name, variables).await;
            }
        }
        let (said, logged) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{variables:?}: {said}{logged}");
        let seen = Seen {
            attempts: if said.contains("attempts=2 ") { 2 } else { 1 },
            end: if said.contains(&format!("end={} ", expected.end)) {
                expected.end
            } else {
                "something else"
            },
            sets_headers: said.contains("headers=true"),
            reports: server.knows(&name).await,
            warns: logged.contains("ignored"),
        };
        assert_eq!(seen, *expected, "{variables:?}: {said}{logged}");
    }
}

#[tokio::test]
async fn a_credential_that_cannot_be_read_is_a_mistake_at_the_start() {
    let server = Process::start(GENEROUS);
    let output = service(&server, "d", &[("DAMPER_CREDENTIAL_FILE", "no/such/file")]).await;
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("\"no/such/file\" cannot be read"), "{}", text(&output.stderr));
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

async fn service(server: &Process, name: &str, variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "switches::a_service", "--ignored", "--nocapture"]);
    command.env("DAMPER_ENDPOINT", server.url()).env(NAME, name).envs(variables.iter().copied());
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

#[tokio::test]
#[ignore = "is the service process of other tests"]
async fn a_service() {
    let Ok(name) = std::env::var(NAME) else { return };
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let damper = Damper::from_env().unwrap_or_else(|error| panic!("{error}"));
    let mut headers = HeaderMap::new();
    let operation = damper.dependency(&name).operation("get").idempotency(Idempotency::Safe);
    let outcome = operation
        .profile(Profile::interactive())
        .deadline(Duration::from_secs(60))
        .call(|attempt| {
            attempt.inject(&mut headers);
            async move {
                match attempt.number() {
                    1 => Err(Failure::new(FailureClass::Transient)),
                    number => Ok(number),
                }
            }
        })
        .await;
    let (attempts, end) = match outcome {
        Ok(attempts) => (attempts, "success".to_owned()),
        Err(error) => (error.attempts, error.reason.to_string()),
    };
    damper.shutdown(Duration::from_secs(20)).await;
    println!("attempts={attempts} end={end} headers={}", !headers.is_empty());
}
