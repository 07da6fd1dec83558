//! `/v1/admin`: breakers, policies and dependencies by hand.

use serde_json::{Value, json};
use tokio::time::timeout;

use crate::support::{FULL_OF_TEN, HARD, Server, now, pointers, retry, with};
use crate::watch::Stream;

const BREAKER: &str = "/v1/admin/dependencies/payments/breaker";
const PAYMENTS: &str = "/v1/admin/dependencies/payments";

fn to(force: &str) -> Value {
    json!({"force": force})
}

#[tokio::test]
async fn a_breaker_is_forced_open_and_closed_and_released_to_probes() {
    let server = Server::start(FULL_OF_TEN).await;
    let mut stream = Stream::open(&server, "").await;
    stream.expect("snapshot").await;
    let (status, state) = server.post(BREAKER, &to("open")).await;
    assert_eq!((status, &state["breaker"]["state"]), (200, &json!("open")));
    assert_eq!(stream.expect("breaker").await["breaker"]["state"], "open");
    assert_eq!(server.ask(&now()).await["reason"], "breaker_open");
    let (_, state) = server.post(BREAKER, &to("auto")).await;
    assert_eq!(state["breaker"]["state"], "half_open");
    let first = json!({"kind": "first", "failure": null});
    let reasons = async || server.ask(&with(now(), first.clone())).await["reason"].clone();
    let handed_out = [reasons().await, reasons().await, reasons().await, reasons().await];
    assert_eq!(handed_out, ["probe", "probe", "probe", "breaker_half_open"]);
    let (_, state) = server.post(BREAKER, &to("closed")).await;
    assert_eq!(state["breaker"]["state"], "closed");
    assert_eq!(server.ask(&now()).await["reason"], "within_budget");
}

#[tokio::test]
async fn a_breaker_that_cannot_be_forced_says_why() {
    let server = Server::start("").await;
    let (status, problem) = server.post(BREAKER, &to("open")).await;
    assert_eq!((status, &problem["code"]), (404, &json!("unknown_dependency")));
    for (body, code) in
        [(json!({}), "missing"), (to("ajar"), "unknown_value"), (json!({"force": 1}), "wrong_type")]
    {
        let (status, problem) = server.post(BREAKER, &body).await;
        assert_eq!((status, pointers(&problem)), (422, vec!["/force"]));
        assert_eq!(problem["errors"][0]["code"], code);
    }
    assert_eq!(server.get("/v1/dependencies").await.1, json!({"dependencies": []}), "nothing was made");
}

#[tokio::test]
async fn a_policy_is_put_with_balances_kept() {
    let server = Server::start(FULL_OF_TEN).await;
    let mut stream = Stream::open(&server, "").await;
    stream.expect("snapshot").await;
    for _ in 0..10 {
        assert_eq!(server.ask(&now()).await["decision"], "granted");
    }
    let policy = json!({"capacity_per_s": 130, "max_attempts": 3, "retry": {"per_s": 0.001, "burst": 50,
        "floor_per_s": 0}, "tenants": {"a.b/c": {"weight": 3}}});
    let (status, state) = server.put(PAYMENTS, &policy).await;
    assert_eq!(
        (status, &state["capacity_per_s"], &state["pool"]["burst"]),
        (200, &json!(130.0), &json!(50.0))
    );
    assert_eq!(stream.expect("dependency").await["policy"]["max_attempts"], 3);
    assert_eq!(server.config_version().await, 2);
    assert_eq!(server.ask(&now()).await["reason"], "budget_exhausted", "a change refills nothing");
    assert_eq!(server.put(PAYMENTS, &policy).await.0, 200);
    assert_eq!(server.config_version().await, 2, "nothing changed");
    assert_eq!(server.put("/v1/admin/dependencies/a%2Fb", &json!({})).await.0, 201);
    assert_eq!(
        (server.state("a%2Fb").await["name"].clone(), server.config_version().await),
        (json!("a/b"), 3)
    );
}

#[tokio::test]
async fn every_mistake_of_a_policy_is_named_at_once() {
    let server = Server::start(FULL_OF_TEN).await;
    let before = server.state("payments").await["policy"].clone();
    let policy = json!({
        "capacity_per_s": -1,
        "max_attempts": 2.5,
        "max_delay_ms": -5,
        "max_atempts": 3,
        "fail_mode": "ajar",
        "retry_owner": 1,
        "shadow": null,
        "retry": {"per_s": "10", "burst": 0, "brust": 1, "cost": {"timeout": 1001}},
        "retry.per_s": 10,
        "breaker": [],
        "tenants": {"a.b/c~": {"weight": 0, "wieght": 1}, " padded": {}, "d": 5},
        "listen": {"port": 1},
    });
    let (status, problem) = server.put(PAYMENTS, &policy).await;
    assert_eq!((status, &problem["code"]), (422, &json!("invalid_field")));
    let mut found: Vec<(String, String)> = problem["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|error| {
            let text = |field: &str| error[field].as_str().unwrap().to_owned();
            assert!(
                text("detail").contains(';') || text("detail").contains("white space"),
                "no remedy: {error}"
            );
            (text("pointer"), text("code"))
        })
        .collect();
    found.sort();
    let expected = [
        ("/breaker", "wrong_type"),
        ("/capacity_per_s", "out_of_range"),
        ("/fail_mode", "unknown_value"),
        ("/listen/port", "unknown_key"),
        ("/max_atempts", "unknown_key"),
        ("/max_attempts", "wrong_type"),
        ("/max_delay_ms", "out_of_range"),
        ("/retry.per_s", "unknown_key"),
        ("/retry/brust", "unknown_key"),
        ("/retry/burst", "out_of_range"),
        ("/retry/cost/timeout", "out_of_range"),
        ("/retry/per_s", "wrong_type"),
        ("/retry_owner", "wrong_type"),
        ("/shadow", "wrong_type"),
        ("/tenants/ padded", "invalid_name"),
        ("/tenants/a.b~1c~0/weight", "out_of_range"),
        ("/tenants/a.b~1c~0/wieght", "unknown_key"),
        ("/tenants/d", "wrong_type"),
    ];
    assert_eq!(found, expected.map(|(pointer, code)| (pointer.to_owned(), code.to_owned())));
    assert_eq!(server.state("payments").await["policy"], before);
    assert_eq!(server.config_version().await, 1);
}

#[tokio::test]
async fn what_is_no_policy_at_all_is_refused() {
    let server = Server::start("server.max_dependencies = 1").await;
    for (body, status, code) in [
        ("[]", 422, "invalid_field"),
        ("null", 422, "invalid_field"),
        ("{", 400, "malformed"),
        (&("{\"a\":".repeat(20) + "1" + &"}".repeat(20)), 400, "malformed"),
        (&format!("{{\"a\":\"{}\"}}", "x".repeat(64 * 1024)), 413, "body_too_large"),
    ] {
        let request = server.http.put(server.url(PAYMENTS)).header("content-type", "application/json");
        let response = request.body(body.to_owned()).send().await.unwrap();
        assert_eq!(response.status(), status, "{body:.80}");
        assert_eq!(response.json::<Value>().await.unwrap()["code"], code);
    }
    assert_eq!(server.http.put(server.url(PAYMENTS)).body("{}").send().await.unwrap().status(), 415);
    for name in ["%00", "%20x", "%ff", &"x".repeat(129)] {
        let (status, problem) = server.put(&format!("/v1/admin/dependencies/{name}"), &json!({})).await;
        assert_eq!((status, pointers(&problem)), (422, vec!["?name"]), "{name}");
    }
    assert_eq!(server.put(PAYMENTS, &json!({})).await.0, 201);
    assert_eq!(
        server.put("/v1/admin/dependencies/second", &json!({})).await.1["code"],
        "too_many_dependencies"
    );
    assert_eq!(server.delete(PAYMENTS).await.0, 204);
    assert_eq!(server.put("/v1/admin/dependencies/second", &json!({})).await.0, 201, "there is room again");
}

#[tokio::test]
async fn a_dependency_is_forgotten_while_asks_wait_and_others_keep_their_tokens() {
    let server =
        Server::start("[defaults]\nretry.per_s = 0.01\nretry.floor_per_s = 1\nmax_delay_ms = 600000").await;
    let of = |name: &str| with(now(), json!({"dependency": name}));
    let tokens = [server.ask(&of("a")).await, server.ask(&of("payments")).await, server.ask(&of("z")).await];
    let long = with(retry(), json!({"deadline_ms": 600_000, "earliest_ms": 500_000}));
    let waiting =
        [server.posting("/v1/tokens", &long).send().await, server.posting("/v1/tokens", &long).send().await];
    server.until_waiting("payments", 2).await;
    assert_eq!(server.delete(PAYMENTS).await.0, 204);
    for waited in waiting {
        let answer: Value = timeout(HARD, waited.unwrap().json()).await.unwrap().unwrap();
        let told = (&answer["decision"], &answer["reason"], &answer["token"]);
        assert_eq!(told, (&json!("shed"), &json!("no_capacity_before_deadline"), &Value::Null));
    }
    assert_eq!(server.get("/v1/dependencies/payments").await.0, 404);
    assert_eq!(server.ask(&now()).await["decision"], "granted", "a fresh start");
    assert_eq!(server.ask(&now()).await["decision"], "shed", "and no more");
    let mut returned = Vec::new();
    for token in tokens {
        returned.push(
            server.post("/v1/tokens/return", &json!({"token": token["token"]})).await.1["returned"].clone(),
        );
    }
    assert_eq!(returned, [true, false, true]);
    assert_eq!(server.state("payments").await["pool"]["returned"], 0.0);
}

#[tokio::test]
async fn what_is_configured_or_unknown_is_not_forgotten() {
    let server = Server::start(FULL_OF_TEN).await;
    let (status, problem) = server.delete(PAYMENTS).await;
    assert_eq!((status, &problem["code"]), (409, &json!("configured_dependency")));
    assert!(problem["detail"].as_str().unwrap().contains("reload"), "{problem}");
    assert_eq!(server.delete("/v1/admin/dependencies/nobody").await.1["code"], "unknown_dependency");
    assert_eq!(server.config_version().await, 1);
}
