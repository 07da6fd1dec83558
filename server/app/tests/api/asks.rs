//! `POST /v1/tokens` and `/v1/tokens/return`.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::support::{FULL_OF_TEN, HARD, ONE_PER_SECOND, Server, now, pointers, retry, with};

#[tokio::test]
async fn the_answer_is_200_whatever_the_decision() {
    let server = Server::start(ONE_PER_SECOND).await;
    let granted = server.ask(&now()).await;
    assert_eq!((&granted["decision"], &granted["reason"]), (&json!("granted"), &json!("within_budget")));
    assert_eq!(granted["token_ttl_ms"], 2000);
    assert_eq!(granted["breaker"], json!({"state": "closed", "version": 1}));
    let shed = server.ask(&now()).await;
    assert_eq!((&shed["decision"], &shed["reason"]), (&json!("shed"), &json!("budget_exhausted")));
    assert_eq!(shed["token"], Value::Null);
    assert!((1..=1000).contains(&shed["retry_after_ms"].as_u64().unwrap()));
    let never = server.ask(&with(now(), json!({"failure": {"class": "invalid"}}))).await;
    assert_eq!(never["reason"], "not_retryable");
}

#[tokio::test]
async fn one_request_id_has_one_answer_and_is_charged_once() {
    let server = Server::start(FULL_OF_TEN).await;
    let ask = with(retry(), json!({"request_id": "c1.i1.42"}));
    let (first, second) = (server.ask(&ask).await, server.ask(&ask).await);
    assert_eq!(first["decision"], "granted");
    assert_eq!(first, second);
    assert_eq!(server.issued("payments").await, 1.0);
    let other_tenant = server.ask(&with(ask, json!({"tenant": "other"}))).await;
    assert_ne!(other_tenant["token"], first["token"], "ids are each tenant's own");
}

#[tokio::test]
async fn a_repeat_of_an_ask_that_waits_gets_the_same_answer() {
    let server = Server::start(ONE_PER_SECOND).await;
    server.ask(&now()).await;
    let ask = with(retry(), json!({"request_id": "r"}));
    let waiting = server.posting("/v1/tokens", &ask).send().await.unwrap();
    let batch = json!({"asks": [ask]});
    let (first, second, (status, batched)) =
        tokio::join!(waiting.json::<Value>(), server.ask(&ask), server.post("/v1/tokens/batch", &batch));
    let first = first.unwrap();
    assert_eq!((&first["decision"], status), (&json!("granted"), 200), "{batched}");
    assert_eq!(first, second);
    assert_eq!(first, batched["answers"][0], "a batch waits for this alone");
    assert_eq!(server.issued("payments").await, 2.0);
}

#[tokio::test]
async fn the_head_comes_at_once_and_the_body_when_it_is_decided() {
    let server = Server::start(ONE_PER_SECOND).await;
    server.ask(&now()).await;
    let response = server.posting("/v1/tokens", &retry()).send().await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "application/json");
    assert_eq!(server.state("payments").await["queue"]["waiting"], 1, "the head is here, and the ask waits");
    let answer: Value = response.json().await.unwrap();
    assert_eq!((&answer["decision"], &answer["reason"]), (&json!("granted"), &json!("after_delay")));
    assert!(answer["waited_ms"].as_u64().unwrap() > 0);
}

#[tokio::test]
async fn a_client_that_hangs_up_leaves_the_queue() {
    let server = Server::start("[defaults]\nretry.per_s = 0.01\nmax_delay_ms = 600000").await;
    let ask = with(retry(), json!({"deadline_ms": 600_000, "earliest_ms": 500_000}));
    let body = ask.to_string();
    let mut stream = server.connect().await;
    let head = format!(
        "POST /v1/tokens HTTP/1.1\r\nhost: d\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    let mut first = [0; 15];
    timeout(HARD, stream.read_exact(&mut first)).await.unwrap().unwrap();
    assert_eq!(&first, b"HTTP/1.1 200 OK");
    server.until_waiting("payments", 1).await;
    drop(stream);
    server.until_waiting("payments", 0).await;
    assert_eq!(server.issued("payments").await, 0.0);
    assert_eq!(server.state("payments").await["decisions"], json!({}), "it was not decided");
}

#[tokio::test]
async fn a_client_that_resets_its_http2_stream_leaves_the_queue() {
    let mut server = Server::start("[defaults]\nretry.per_s = 1").await;
    server.http = reqwest::Client::builder().no_proxy().http2_prior_knowledge().build().unwrap();
    server.ask(&now()).await;
    let ask = with(retry(), json!({"earliest_ms": 1900}));
    let response = server.posting("/v1/tokens", &ask).send().await.unwrap();
    assert_eq!(response.version(), reqwest::Version::HTTP_2);
    assert_eq!(server.state("payments").await["queue"]["waiting"], 1);
    drop(response);
    server.until_waiting("payments", 0).await;
    assert_eq!(server.state("payments").await["decisions"]["granted"], json!({"within_budget": 1}));
}

#[tokio::test]
async fn an_ask_that_costs_more_than_the_burst_is_invalid() {
    let server = Server::start(FULL_OF_TEN).await;
    let (status, problem) = server.post("/v1/tokens", &with(retry(), json!({"cost": 11}))).await;
    assert_eq!((status, pointers(&problem)), (422, vec!["/cost"]));
    assert!(problem["errors"][0]["detail"].as_str().unwrap().contains("burst of 10"), "{problem}");
    assert_eq!(server.issued("payments").await, 0.0);
    assert_eq!(server.ask(&with(retry(), json!({"cost": 10}))).await["decision"], "granted");
}

#[tokio::test]
async fn a_token_comes_back_once() {
    let server = Server::start(FULL_OF_TEN).await;
    let token = json!({"token": server.ask(&now()).await["token"]});
    assert_eq!(server.post("/v1/tokens/return", &token).await, (200, json!({"returned": true})));
    assert_eq!(server.post("/v1/tokens/return", &token).await, (200, json!({"returned": false})));
    let unknown = json!({"token": "0-0-0000000000000000"});
    assert_eq!(server.post("/v1/tokens/return", &unknown).await, (200, json!({"returned": false})));
    assert_eq!(server.state("payments").await["pool"]["returned"], 1.0);
}

#[tokio::test]
async fn unknown_dependencies_can_be_refused() {
    let server = Server::start("server.unknown_dependencies = \"refuse\"\n[dependencies.mail]").await;
    let (status, problem) = server.post("/v1/tokens", &retry()).await;
    assert_eq!((status, &problem["code"]), (404, &json!("unknown_dependency")));
    assert_eq!(server.ask(&with(retry(), json!({"dependency": "mail"}))).await["decision"], "granted");
}

#[tokio::test]
async fn the_number_of_dependencies_is_bounded() {
    let server = Server::start("server.max_dependencies = 1").await;
    server.ask(&retry()).await;
    let ask = with(retry(), json!({"dependency": "another"}));
    let response = server.posting("/v1/tokens", &ask).send().await.unwrap();
    assert_eq!(
        (response.status().as_u16(), &response.headers()["retry-after"]),
        (429, &"60".parse().unwrap())
    );
    let problem: Value = response.json().await.unwrap();
    assert_eq!(
        (&problem["code"], &problem["retry_after_ms"]),
        (&json!("too_many_dependencies"), &json!(60_000))
    );
}
