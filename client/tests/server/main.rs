//! The client against a scripted server over real sockets: what it does with answers, silence and garbage.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    unreachable_pub,
    reason = "a test may fail in any way; the lints exempt only functions that are marked as tests"
)]

mod runtimes;
mod support;

use std::time::Duration;

use axum::http::StatusCode;
use damper_client::{
    CallError, Damper, Dependency, Failure, FailureClass, Idempotency, Profile, Reachability, StopReason,
};
use serde_json::json;
use support::{Reply, Server, eventually};

/// A client with more patience than any machine needs: only silence is ever waited out.
fn damper(server: &Server) -> Damper {
    patient(server, Duration::from_secs(20))
}

fn patient(server: &Server, patience: Duration) -> Damper {
    let builder = Damper::builder(server.endpoint()).tenant("checkout").client_id("test-1");
    builder.answer_within(patience).build().unwrap()
}

/// Fails once, then succeeds. There is time for a second ask after all the patience of the first.
async fn once_failing(dependency: &Dependency) -> Result<u32, CallError<Failure>> {
    dependency
        .operation("test")
        .idempotency(Idempotency::Safe)
        .deadline(Duration::from_secs(60))
        .profile(Profile::interactive())
        .call(|attempt| async move {
            match attempt.number() {
                1 => Err(Failure::new(FailureClass::Transient).with_code("503")),
                number => Ok(number),
            }
        })
        .await
}

fn shed(reason: &str) -> serde_json::Value {
    json!({"decision":"shed","reason":reason,"token":null,"token_ttl_ms":null,"waited_ms":0,
        "retry_after_ms":900,"suppress_ms":0,"breaker":{"state":"closed","version":1}})
}

fn granted(token: &str) -> serde_json::Value {
    json!({"decision":"granted","reason":"within_budget","token":token,"token_ttl_ms":2000,"waited_ms":0,
        "retry_after_ms":null,"suppress_ms":0,"breaker":{"state":"closed","version":1},"of_the_future":1})
}

#[tokio::test]
async fn a_granted_retry_is_made() {
    let server = Server::start().await;
    server.asks(|_, _| Reply::json(granted("t1")));
    let damper = damper(&server);
    assert_eq!(once_failing(&damper.dependency("payments")).await.unwrap(), 2);
    let ask = server.seen("/v1/tokens").pop().unwrap();
    assert_eq!(ask["dependency"], "payments");
    assert_eq!(ask["tenant"], "checkout");
    assert_eq!((&ask["attempt"], &ask["kind"]), (&json!(2), &json!("retry")));
    assert_eq!(ask["failure"]["class"], "transient");
    assert_eq!(ask["failure"]["code"], "503");
    assert_eq!(ask["idempotent"], true);
}

#[tokio::test]
async fn a_shed_retry_is_not_made() {
    let server = Server::start().await;
    server.asks(|_, _| Reply::json(shed("queue_full")));
    let error = once_failing(&damper(&server).dependency("payments")).await.unwrap_err();
    assert_eq!((error.reason, error.attempts), (StopReason::QueueFull, 1));
}

#[tokio::test]
async fn a_queued_ask_is_waited_for_beyond_the_twenty_milliseconds() {
    let server = Server::start().await;
    server.asks(|_, _| Reply::json(granted("t1")).body_after(Duration::from_millis(200)));
    assert_eq!(once_failing(&damper(&server).dependency("payments")).await.unwrap(), 2);
    assert_eq!(server.seen("/v1/tokens").len(), 1);
}

#[tokio::test]
async fn a_lost_answer_is_asked_for_again_once_under_the_same_id() {
    let server = Server::start().await;
    server.asks(|_, number| match number {
        0 => Reply::json(granted("t1")).cut_off(),
        _ => Reply::json(granted("t1")),
    });
    assert_eq!(once_failing(&damper(&server).dependency("payments")).await.unwrap(), 2);
    let asks = server.seen("/v1/tokens");
    assert_eq!(asks.len(), 2);
    assert_eq!(asks[0]["request_id"], asks[1]["request_id"]);
    assert!(asks[0]["request_id"].is_string());
}

#[tokio::test]
async fn outages_of_every_kind_leave_first_attempts_alone_and_end_in_the_emergency_budget() {
    type Case = (&'static str, fn() -> Reply);
    let cases: [Case; 8] = [
        ("silence, but for a drip", || Reply::json(granted("t1")).dripping()),
        ("503", || Reply::status(StatusCode::SERVICE_UNAVAILABLE)),
        ("garbage", || Reply::text("<html>it works</html>")),
        ("another answer", || Reply::json(json!({"decision":"maybe"}))),
        ("an endless answer", || Reply::text(&"x".repeat(200_000))),
        ("cut off", || Reply::json(granted("t1")).cut_off()),
        ("silence", Reply::silence),
        ("silence after the head", || Reply::json(granted("t1")).body_after(Duration::from_secs(3600))),
    ];
    for (name, reply) in cases {
        let server = Server::start().await;
        server.asks(move |_, _| reply());
        // What is never answered costs all of it, and a busy machine has to get both asks to the server within it.
        let patience = if name.starts_with("silence") { 500 } else { 20_000 };
        let dependency = patient(&server, Duration::from_millis(patience)).dependency("payments");
        let error = once_failing(&dependency).await.unwrap_err();
        assert_eq!((error.reason, error.attempts), (StopReason::EmergencyExhausted, 1), "{name}");
        assert_eq!(server.seen("/v1/tokens").len(), 2, "{name}: repeated once");
    }
}

#[tokio::test]
async fn a_server_that_says_when_it_is_ready_is_not_asked_again_at_once() {
    let problem = json!({"type":"urn:damper:problem:unavailable","title":"t","status":503,"detail":"d",
        "code":"unavailable","retryable":true,"retry_after_ms":900});
    let problem = problem.to_string();
    for (name, body, header) in [("header", "", Some("1")), ("problem", &*problem, None)] {
        let server = Server::start().await;
        let body = body.to_owned();
        server.asks(move |_, _| {
            let reply = Reply::text(&body).with_status(StatusCode::SERVICE_UNAVAILABLE);
            if let Some(seconds) = header { reply.header("retry-after", seconds) } else { reply }
        });
        let error = once_failing(&damper(&server).dependency("payments")).await.unwrap_err();
        assert_eq!((error.reason, error.attempts), (StopReason::EmergencyExhausted, 1), "{name}");
        assert_eq!(server.seen("/v1/tokens").len(), 1, "{name}");
    }
}

#[tokio::test]
async fn a_dead_server_fails_open_or_closed() {
    let endpoint = Server::start().await.into_dead_endpoint().await;
    let open = Damper::builder(endpoint.clone()).build().unwrap().dependency("payments");
    assert_eq!(once_failing(&open).await.unwrap_err().reason, StopReason::EmergencyExhausted);
    for _ in 0..50 {
        open.operation("warm").call(|_| async { Ok::<_, Failure>(()) }).await.unwrap();
    }
    eventually(async || once_failing(&open).await.is_ok()).await;
    assert_eq!(open.totals().emergency, 1);

    let closed = Damper::builder(endpoint).fail_mode(damper_client::FailMode::Closed).build().unwrap();
    let dependency = closed.dependency("payments");
    assert_eq!(once_failing(&dependency).await.unwrap_err().reason, StopReason::FailClosed);
    assert_eq!(dependency.totals().physical, 1);
}

#[tokio::test]
async fn a_rejected_client_is_a_mistake_and_no_outage() {
    for status in [401, 403, 404, 422] {
        let server = Server::start().await;
        server.asks(move |_, _| Reply::status(StatusCode::from_u16(status).unwrap()));
        let damper = damper(&server);
        let dependency = damper.dependency("payments");
        assert_eq!(once_failing(&dependency).await.unwrap_err().reason, StopReason::AskRejected);
        assert_eq!(damper.health().server, Reachability::Rejected(status));
        assert_eq!(dependency.totals().emergency, 0);
    }
}

#[tokio::test]
async fn a_limited_client_keeps_quiet() {
    let server = Server::start().await;
    server.asks(|_, _| Reply::status(StatusCode::TOO_MANY_REQUESTS).header("retry-after", "60"));
    let dependency = damper(&server).dependency("payments");
    for _ in 0..3 {
        assert_eq!(once_failing(&dependency).await.unwrap_err().reason, StopReason::Suppressed);
    }
    assert_eq!(server.seen("/v1/tokens").len(), 1);
}

#[tokio::test]
async fn a_breaker_that_the_watch_opens_stops_attempts_and_closing_lets_them_pass() {
    let server = Server::start().await;
    let damper = damper(&server);
    let dependency = damper.dependency("payments");
    let succeeds = async || dependency.operation("test").call(|_| async { Ok::<_, Failure>(()) }).await;
    succeeds().await.unwrap();
    server.event("snapshot", json!({"epoch":"e1","dependencies":{}}));
    server.event(
        "breaker",
        json!({"dependency":"payments","breaker":{"state":"open","version":7,"open_for_ms":60000}}),
    );
    eventually(async || succeeds().await.is_err()).await;
    let physical = dependency.totals().physical;
    let error = succeeds().await.unwrap_err();
    assert_eq!((error.reason, error.attempts), (StopReason::BreakerOpen, 0));
    assert_eq!(dependency.totals().physical, physical);
    assert!(damper.health().watching);
    server.event("breaker", json!({"dependency":"payments","breaker":{"state":"closed","version":6}}));
    server.event("breaker", json!({"dependency":"payments","breaker":"garbage"}));
    server.event("breaker", json!({"dependency":"payments","breaker":{"state":"closed","version":8}}));
    eventually(async || succeeds().await.is_ok()).await;
}

/// What a watch is answered, and what the client's health says then.
const NO_STREAMS: [(u16, &str, Reachability); 10] = [
    (204, "text/event-stream", Reachability::Rejected(204)),
    (302, "text/plain", Reachability::Rejected(302)),
    (401, "application/problem+json", Reachability::Rejected(401)),
    (403, "application/problem+json", Reachability::Rejected(403)),
    (404, "text/html", Reachability::Rejected(404)),
    (200, "text/html", Reachability::Rejected(200)),
    // Asks and syncs tell an outage, not the watch.
    (408, "text/plain", Reachability::Up),
    (429, "application/problem+json", Reachability::Up),
    (500, "text/html", Reachability::Up),
    (503, "application/problem+json", Reachability::Up),
];

#[tokio::test]
async fn no_answer_ends_the_watch_for_ever() {
    let cases = NO_STREAMS.map(|(status, kind, expected)| async move {
        let server = Server::start().await;
        server.no_stream(Some((status, kind)));
        let damper = damper(&server);
        let dependency = damper.dependency("payments");
        let succeeds = async || dependency.operation("test").call(|_| async { Ok::<_, Failure>(()) }).await;
        succeeds().await.unwrap();
        eventually(async || server.watches() >= 2).await;
        eventually(async || damper.health().since_sync.is_some()).await;
        let health = damper.health();
        assert_eq!((health.server, health.watching), (expected, false), "{status} {kind}");
        succeeds().await.unwrap();

        server.no_stream(None);
        let breaker = json!({"state":"open","version":7,"open_for_ms":60000});
        server.event("breaker", json!({"dependency":"payments","breaker":breaker}));
        eventually(async || succeeds().await.is_err()).await;
        let health = damper.health();
        assert_eq!((health.server, health.watching), (Reachability::Up, true), "{status} {kind}: mended");
    });
    futures_util::future::join_all(cases).await;
}

#[tokio::test]
async fn syncs_carry_cumulative_totals_and_the_baseline_of_the_last_answer() {
    let server = Server::start().await;
    let damper = damper(&server);
    let dependency = damper.dependency("payments");
    let succeeds = async || dependency.operation("test").call(|_| async { Ok::<_, Failure>(()) }).await;
    succeeds().await.unwrap();
    damper.flush().await.unwrap();
    server.epoch("e2");
    succeeds().await.unwrap();
    damper.flush().await.unwrap();
    succeeds().await.unwrap();
    damper.flush().await.unwrap();
    let syncs = server.seen("/v1/sync");
    let last = syncs.last().unwrap();
    assert_eq!(last["client"]["id"], "test-1");
    assert_eq!(last["epoch"], "e2");
    assert_eq!(last["dependencies"]["payments"]["totals"]["logical"], 3);
    assert_eq!(last["dependencies"]["payments"]["acked"]["logical"], 2);
    let first_of_e2 = syncs.iter().find(|sync| sync["dependencies"]["payments"]["totals"]["logical"] == 2);
    assert_eq!(first_of_e2.unwrap()["epoch"], "e1");
    assert_eq!(first_of_e2.unwrap()["dependencies"]["payments"]["acked"]["logical"], 1);
    assert!(syncs.iter().all(|sync| sync["client"]["incarnation"] == last["client"]["incarnation"]));
}

#[tokio::test]
async fn a_policy_of_the_server_is_carried_out() {
    let server = Server::start().await;
    server.asks(|_, _| Reply::json(granted("t")));
    server
        .tells(json!({"policy":{"max_attempts":2},"breaker":{"state":"closed","version":1,"open_for_ms":0}}));
    let damper = damper(&server);
    let dependency = damper.dependency("payments");
    dependency.operation("test").call(|_| async { Ok::<_, Failure>(()) }).await.unwrap();
    damper.flush().await.unwrap();
    let error = dependency
        .operation("test")
        .idempotency(Idempotency::Safe)
        .profile(Profile::standard())
        .call(|_| async { Err::<(), _>(Failure::new(FailureClass::Transient)) })
        .await
        .unwrap_err();
    assert_eq!((error.reason, error.attempts), (StopReason::AttemptsExhausted, 2));
    assert_eq!(dependency.totals().exhausted, 1);
}

#[tokio::test]
async fn a_dropped_future_returns_its_token() {
    let server = Server::start().await;
    server.asks(|_, _| Reply::json(granted("t9")));
    let dependency = damper(&server).dependency("payments");
    // The grant comes at once; the future is dropped in what is left of the backoff.
    eventually(async || {
        let operation =
            dependency.operation("test").idempotency(Idempotency::Safe).call(|attempt| async move {
                match attempt.number() {
                    1 => Err(Failure::new(FailureClass::RateLimited)),
                    _ => Ok(()),
                }
            });
        let asked = server.seen("/v1/tokens").len();
        tokio::select! {
            _ = operation => {}
            () = eventually(async || server.seen("/v1/tokens").len() > asked) => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        !server.seen("/v1/tokens/return").is_empty()
    })
    .await;
    assert_eq!(server.seen("/v1/tokens/return")[0], json!({"token":"t9"}));
}

#[tokio::test]
async fn transport_errors_of_the_caller_s_own_client_are_understood() {
    let server = Server::start().await;
    let endpoint = server.endpoint();
    let dead = Server::start().await.into_dead_endpoint().await;
    let client = reqwest::Client::builder().no_proxy().retry(reqwest::retry::never()).build().unwrap();
    let dependency = Damper::inert().dependency("d");
    let failure = async |url: String| {
        let call = |_| async { client.get(&url).send().await?.error_for_status()?.json::<u32>().await };
        let error = dependency.operation("get").call(call).await.unwrap_err();
        let failure = error.failure.unwrap();
        (failure.class, failure.dispatch.as_str())
    };
    use FailureClass::{Fatal, Permission, Semantic, Transient};
    assert_eq!(failure(dead).await, (Transient, "not_sent"));
    assert_eq!(failure(format!("{endpoint}/status/503")).await, (Transient, "ambiguous"));
    assert_eq!(failure(format!("{endpoint}/status/403")).await, (Permission, "processed"));
    assert_eq!(failure(format!("{endpoint}/text")).await, (Semantic, "processed"));
    assert_eq!(failure(format!("{endpoint}/truncated")).await, (Transient, "ambiguous"));
    assert_eq!(failure(support::raw(b"HTTP/1.1 2").await).await, (Transient, "ambiguous"));
    assert_eq!(failure(support::raw(b"SSH-2.0-OpenSSH_9.9\r\n\r\n").await).await, (Fatal, "ambiguous"));
    assert_eq!(failure(support::raw(b"").await).await, (Transient, "ambiguous"));
}
