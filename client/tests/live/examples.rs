//! The examples, run as they are built, against a real server.

use std::{
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Command, Output, Stdio},
};

use crate::{GENEROUS, fleet::Broken, process::Process};

/// Beside this test binary, where cargo puts it.
fn built(name: &str) -> PathBuf {
    let here = std::env::current_exe().unwrap();
    let path = here.parent().unwrap().parent().unwrap().join("examples").join(name);
    assert!(path.exists(), "{} is not there: run all targets, or add --examples", path.display());
    path
}

fn example(name: &str, server: &Process) -> Command {
    let mut command = Command::new(built(name));
    command.env("DAMPER_ENDPOINT", server.url());
    command
}

async fn finished(mut command: Command) -> String {
    let Output { status, stdout, stderr } =
        tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{status}: {stdout}{stderr}");
    stdout.into_owned()
}

#[tokio::test]
async fn quickstart() {
    let server = Process::start(GENEROUS);
    server.answers().await;
    let said = finished(example("quickstart", &server)).await;
    assert!(said.contains("40 operations, 4") && said.contains("server: Up"), "{said}");
    assert!(said.contains("delivered: 1, undelivered: 0"), "{said}");
}

#[tokio::test]
async fn tower() {
    let server = Process::start(GENEROUS);
    server.answers().await;
    let said = finished(example("tower", &server)).await;
    assert_eq!(
        said.matches("200 OK").count() + said.matches("503 Service Unavailable").count(),
        20,
        "{said}"
    );
    assert!(said.contains("20 operations"), "{said}");
}

#[tokio::test]
async fn reqwest_middleware() {
    let (server, broken) = (Process::start(GENEROUS), Broken::start().await);
    server.answers().await;
    let mut command = example("reqwest_middleware", &server);
    command.arg(broken.url());
    let said = finished(command).await;
    assert!(said.contains("503 Service Unavailable"), "{said}");
    assert!(broken.calls() >= 1);
}

#[tokio::test]
async fn axum() {
    let server = Process::start(GENEROUS);
    let mut command = example("axum", &server);
    let mut service = command.arg("127.0.0.1:0").stdout(Stdio::piped()).spawn().unwrap();
    let mut url = String::new();
    BufReader::new(service.stdout.take().unwrap()).read_line(&mut url).unwrap();
    let request = reqwest::Client::builder().no_proxy().build().unwrap().get(url.trim());
    let answer = request.header("damper-timeout-ms", "60000").send().await.unwrap().text().await.unwrap();
    assert!(answer.contains("retries belong to this service"), "{answer}");
    let interrupt = ["-c", "kill -INT $0", &service.id().to_string()];
    assert!(Command::new("sh").args(interrupt).status().unwrap().success());
    assert!(tokio::task::spawn_blocking(move || service.wait().unwrap()).await.unwrap().success());
}
