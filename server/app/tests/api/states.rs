//! `GET /v1/dependencies` and the pages for people.

use serde_json::json;

use crate::support::{FULL_OF_TEN, Server, now, retry, with};

#[tokio::test]
async fn a_state_shows_pool_queue_breaker_decisions_and_tenants() {
    let server =
        Server::start(&format!("{FULL_OF_TEN}\ncapacity_per_s = 130\ntenants.checkout.weight = 3")).await;
    server.ask(&with(now(), json!({"tenant": "checkout"}))).await;
    server.ask(&with(now(), json!({"failure": {"class": "fatal"}}))).await;
    let state = server.state("payments").await;
    assert_eq!(state["capacity_per_s"], 130.0);
    assert_eq!((&state["pool"]["bound_by"], &state["pool"]["burst"]), (&json!("per_s"), &json!(10.0)));
    assert_eq!(state["decisions"], json!({"granted": {"within_budget": 1}, "shed": {"not_retryable": 1}}));
    assert_eq!((&state["queue"]["waiting"], &state["queue"]["limit"]), (&json!(0), &json!(20)));
    assert_eq!(state["tenants"]["checkout"]["weight"], 3);
    assert_eq!(state["tenants"]["default"]["shed"], 1);
    assert_eq!(state["policy"]["max_attempts"], 4);
    let windows: Vec<&String> = state["windows"].as_object().unwrap().keys().collect();
    assert_eq!(windows, ["10s", "1m", "5m"]);
    let (_, list) = server.get("/v1/dependencies").await;
    assert_eq!(list["dependencies"][0]["name"], "payments");
}

#[tokio::test]
async fn a_dependency_that_nobody_named_is_unknown() {
    let server = Server::start("").await;
    for path in ["/v1/dependencies/nobody", "/v1/dependencies/%ff", "/v1/plan?dependency=nobody"] {
        let (status, problem) = server.get(path).await;
        assert_eq!((status, &problem["code"]), (404, &json!("unknown_dependency")), "{path}");
    }
    assert_eq!(server.get("/v1/dependencies").await.1, json!({"dependencies": []}), "looking makes nothing");
}

#[tokio::test]
async fn a_hold_is_shown_and_keeps_others_from_retrying() {
    let server = Server::start(FULL_OF_TEN).await;
    let failure = json!({"class": "rate_limited", "retry_after_ms": 60_000});
    let first = server.ask(&with(retry(), json!({"failure": failure}))).await;
    assert_eq!(first["reason"], "retry_after_beyond_deadline");
    let hold = server.state("payments").await["hold_ms"].as_u64().unwrap();
    assert!((1..=60_000).contains(&hold));
    assert_eq!(server.ask(&now()).await["reason"], "retry_after_beyond_deadline");
}

#[tokio::test]
async fn the_process_answers_for_itself() {
    let server = Server::start("").await;
    assert_eq!(server.text("/livez").await, "alive\n");
    assert_eq!(server.text("/readyz").await, "ready\n");
    let home = server.text("/").await;
    let (_, document) = server.get("/openapi.json").await;
    for path in document["paths"].as_object().unwrap().keys() {
        assert!(home.contains(path.as_str()), "{path} is not on the first page");
    }
    let committed = include_str!("../../../../protocol/openapi.json");
    assert!(server.text("/openapi.json").await == committed, "the committed document is stale");
}
