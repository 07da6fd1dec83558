//! The examples, run as they are built, against a real server.

use std::{
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Command, Output, Stdio},
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    http::{HeaderMap, StatusCode},
    routing::post,
};

use crate::{
    GENEROUS,
    fleet::{Broken, serve},
    process::Process,
};

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

/// What the README shows: the first answer is a 503, and the repeat has the same key.
#[tokio::test]
async fn charge() {
    let server = Process::start(
        "[dependencies.payments.retry]\nper_s = 100000\nburst = 100000\n[dependencies.payments.breaker]\nmin_volume = 1000000\n",
    );
    server.answers().await;
    let keys = Arc::<Mutex<Vec<String>>>::default();
    let seen = Arc::clone(&keys);
    let answer = async move |headers: HeaderMap| {
        let mut seen = seen.lock().unwrap();
        seen.push(headers["idempotency-key"].to_str().unwrap().to_owned());
        if seen.len() == 1 { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::CREATED }
    };
    let address = serve(Router::new().route("/charges", post(answer))).await;
    let mut command = example("charge", &server);
    command.arg(format!("http://{address}/charges"));
    let said = finished(command).await;
    assert!(said.contains("201 Created") && said.contains("2 attempts, 1 recovered"), "{said}");
    assert_eq!(*keys.lock().unwrap(), [r#""order-42""#; 2]);
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
