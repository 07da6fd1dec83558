//! Services and a real server over real sockets: nested layers, and a server that dies.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    unreachable_pub,
    reason = "a test may fail in any way; the lints exempt only functions that are marked as tests"
)]

mod examples;
mod fleet;
mod outages;
mod peer;
mod process;
mod switches;

use std::time::Duration;

use damper_client::{Damper, Deadline, Failure, FailureClass, Idempotency, Profile, Reachability};
use fleet::{Broken, Killable, eventually, front, service};
use futures_util::future::join_all;

/// Grants every retry, and never stops anybody.
const GENEROUS: &str = "[dependencies.broken]\nmax_attempts = 3\n[dependencies.broken.retry]\nper_s = 100000\n\
    burst = 100000\n[dependencies.broken.breaker]\nmin_volume = 1000000\n\
    [dependencies.service]\nmax_attempts = 3\n[dependencies.service.retry]\nper_s = 100000\nburst = 100000\n\
    [dependencies.service.breaker]\nmin_volume = 1000000\n";

fn client(server: &Killable, id: &str) -> Damper {
    let patience = Duration::from_secs(20);
    Damper::builder(server.url()).client_id(id).answer_within(patience).build().unwrap()
}

#[tokio::test]
async fn c10_two_layers_of_three_attempts_make_three() {
    let (server, broken) = (Killable::start(GENEROUS), Broken::start().await);
    let (a, b) = (client(&server, "a"), client(&server, "b"));
    let service = service(b.dependency("broken"), broken.url()).await;
    let client = front(a.dependency("service"));
    a.flush().await.unwrap();
    let response = client.get(&service).send().await.unwrap();
    assert_eq!(response.status(), 502);
    assert_eq!(a.dependency("service").totals().physical, 3);
    assert_eq!(broken.calls(), 3, "one owner");
    assert_eq!(b.dependency("broken").totals().physical, 3);
}

#[tokio::test]
async fn c10_a_layer_that_knows_nothing_of_damper_shows_in_the_window() {
    let (server, broken) = (Killable::start(GENEROUS), Broken::start().await);
    let b = client(&server, "b");
    let service = service(b.dependency("broken"), broken.url()).await;
    b.flush().await.unwrap();
    let plain = reqwest::Client::builder().no_proxy().retry(reqwest::retry::never()).build().unwrap();
    let layer = |_| async {
        for repeat in 0..3 {
            plain.get(&service).header("x-stainless-retry-count", repeat).send().await.unwrap();
        }
    };
    join_all((0..120).map(layer)).await;
    b.flush().await.unwrap();
    let totals = b.dependency("broken").totals();
    assert_eq!((totals.logical, totals.foreign), (120, 240));
    let seen: serde_json::Value = plain
        .get(format!("{}/v1/dependencies/broken", server.url()))
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    let window = &seen["windows"]["5m"];
    assert!(window["observed_to_expected"].as_f64().unwrap() > 1.1, "{window}");
    assert_eq!(window["other_layers_retry"], true, "{window}");
}

#[tokio::test]
async fn c7_a_killed_server_costs_no_first_attempt_and_is_used_again_once_it_is_back() {
    let mut server = Killable::start(GENEROUS);
    let damper = Damper::builder(server.url()).client_id("c").build().unwrap();
    let dependency = damper.dependency("broken");
    let succeeds = async || dependency.operation("get").call(|_| async { Ok::<_, Failure>(()) }).await;
    succeeds().await.unwrap();
    eventually(async || damper.health().server == Reachability::Up).await;
    server.kill();
    for _ in 0..20 {
        succeeds().await.unwrap();
        let failing = dependency
            .operation("get")
            .idempotency(Idempotency::Safe)
            .profile(Profile::interactive())
            .deadline(Deadline::after(Duration::from_secs(5)))
            .call(|_| async { Err::<(), _>(Failure::new(FailureClass::Transient)) });
        let _ = failing.await;
    }
    let totals = dependency.totals();
    assert_eq!(totals.success, 21, "first attempts are untouched");
    assert!(totals.physical - totals.logical <= 4, "the emergency budget: {totals:?}");
    eventually(async || damper.health().server == Reachability::Down).await;
    server.start_again();
    eventually(async || damper.health().server == Reachability::Up).await;
    let emergency = dependency.totals().emergency;
    let recovers = dependency.operation("get").idempotency(Idempotency::Safe).call(|attempt| async move {
        if attempt.number() == 1 { Err(Failure::new(FailureClass::Transient)) } else { Ok(()) }
    });
    recovers.await.unwrap();
    assert_eq!(dependency.totals().emergency, emergency, "the server granted it");
}

#[test]
fn b49_a_shutdown_ends_in_time_with_operations_in_flight_and_the_server_away() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut server = Killable::start(GENEROUS);
        let damper = client(&server, "d");
        let dependency = damper.dependency("broken");
        dependency.operation("get").call(|_| async { Ok::<_, Failure>(()) }).await.unwrap();
        damper.flush().await.unwrap();
        server.kill();
        for _ in 0..10 {
            let operation = dependency.operation("hang").deadline(Deadline::unbounded());
            tokio::spawn(operation.call(|_| std::future::pending::<Result<(), Failure>>()));
        }
        eventually(async || dependency.in_flight() == 10).await;
        for _ in 0..2 {
            let report = damper.shutdown(Duration::from_millis(200)).await;
            assert_eq!((report.delivered, report.undelivered, report.in_flight), (0, 1, 10));
        }
        let zero = damper.shutdown(Duration::ZERO).await;
        assert_eq!(zero.in_flight, 10);
    });
}

#[tokio::test]
async fn refusals_and_late_requests_have_their_statuses() {
    let damper =
        Damper::builder("http://127.0.0.1:1").fail_mode(damper_client::FailMode::Closed).build().unwrap();
    let url = fleet::refusing(damper.dependency("broken")).await;
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let late = client.get(&url).header("damper-timeout-ms", "5").send().await.unwrap();
    assert_eq!((late.status().as_u16(), damper.dependency("broken").totals().logical), (504, 0));
    let refused = client.get(&url).send().await.unwrap();
    assert_eq!((refused.status().as_u16(), &refused.headers()["retry-after"]), (503, &"1".parse().unwrap()));
    assert!(!refused.headers().contains_key("damper-retry"), "nothing was retried here");
    let problem: serde_json::Value = refused.json().await.unwrap();
    assert_eq!((&problem["code"], &problem["retryable"]), (&"fail_closed".into(), &true.into()));
}
