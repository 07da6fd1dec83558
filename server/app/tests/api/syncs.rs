//! `POST /v1/sync`.

use serde_json::{Value, json};

use crate::support::{FULL_OF_TEN, Server, retry, with};

fn sync(incarnation: &str, payments: &Value) -> Value {
    json!({"client": {"id": "checkout-1", "incarnation": incarnation}, "dependencies": {"payments": payments}})
}

#[tokio::test]
async fn a_client_is_told_what_it_may_do() {
    let server = Server::start(&format!("{FULL_OF_TEN}\nfail_mode = \"closed\"")).await;
    let (status, answer) = server.post("/v1/sync", &sync("1", &json!({}))).await;
    assert_eq!(status, 200);
    assert_eq!(answer["epoch"].as_str().unwrap().len(), 16);
    assert_eq!((&answer["mode"], &answer["next_sync_ms"]), (&json!("learning"), &json!(1000)));
    let payments = &answer["dependencies"]["payments"];
    assert_eq!(payments["first"], Value::Null, "first attempts are not limited");
    assert_eq!(payments["emergency"], json!({"per_s": 1.0, "ratio": 0.1}), "a share of 10/s is capped");
    assert_eq!(payments["breaker"], json!({"state": "closed", "version": 1, "open_for_ms": 0}));
    assert_eq!(payments["policy"]["fail_mode"], "closed");
    let other = Server::start("").await;
    assert_ne!(other.post("/v1/sync", &sync("1", &json!({}))).await.1["epoch"], answer["epoch"]);
}

#[tokio::test]
async fn repeated_and_reordered_totals_count_once() {
    let server = Server::start("").await;
    for logical in [10, 30, 30, 20] {
        server
            .post("/v1/sync", &sync("1", &json!({"totals": {"logical": logical, "physical": logical}})))
            .await;
    }
    server
        .post("/v1/sync", &sync("2", &json!({"totals": {"logical": 107}, "acked": {"logical": 100}})))
        .await;
    let state = server.state("payments").await;
    assert_eq!((&state["windows"]["1m"]["logical"], &state["clients"]), (&json!(37), &json!(2)));
}

#[tokio::test]
async fn the_fleet_is_measured_against_independent_failures() {
    let server = Server::start("").await;
    let totals = json!({"logical": 1000, "physical": 1300, "success": 1144, "failures": {"transient": 156},
        "sources": {"runtime": 156}, "reasons": {"timeout": 100}, "affected": 100, "recovered": 70});
    server.post("/v1/sync", &sync("1", &json!({"totals": totals}))).await;
    let window = &server.state("payments").await["windows"]["10s"];
    assert_eq!((&window["amplification"], &window["recovery_rate"]), (&json!(1.3), &json!(0.7)));
    let expected = window["expected_amplification"].as_f64().unwrap();
    assert_eq!(format!("{expected:.6}"), "1.136128");
}

#[tokio::test]
async fn a_refused_dependency_does_not_hold_up_the_others() {
    let server = Server::start("server.unknown_dependencies = \"refuse\"\n[dependencies.payments]").await;
    let both = with(sync("1", &json!({})), json!({"dependencies": {"payments": {}, "unknown": {}}}));
    let (status, answer) = server.post("/v1/sync", &both).await;
    let told: Vec<&str> = answer["dependencies"].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!((status, told), (200, vec!["payments"]));
    assert!(
        server.text("/metrics").await.contains("damper_dependencies_refused_total{reason=\"unknown\"} 1")
    );
}

#[tokio::test]
async fn probes_of_a_half_open_breaker_are_rationed_and_close_it() {
    let server = Server::start(
        "[defaults]\nretry.per_s = 100\nretry.floor_per_s = 100\nbreaker.open_for_ms = 1\nbreaker.probes = 2\n\
         breaker.close_after = 2",
    )
    .await;
    let failures = json!({"totals": {"logical": 20, "physical": 20, "failures": {"fatal": 20}}});
    server.post("/v1/sync", &sync("1", &failures)).await;
    let mut granted = Vec::new();
    for _ in 0..20 {
        let answer = server.ask(&with(retry(), json!({"kind": "first", "attempt": 1}))).await;
        match answer["decision"].as_str().unwrap() {
            "granted" => granted.push(answer),
            _ => assert!(answer["reason"].as_str().unwrap().starts_with("breaker_"), "{answer}"),
        }
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    assert_eq!(granted.len(), 2);
    assert!(granted.iter().all(|answer| answer["reason"] == "probe"));
    let version = server.state("payments").await["breaker"]["version"].clone();
    let results: Vec<Value> =
        granted.iter().map(|answer| json!({"token": answer["token"], "success": true})).collect();
    let settled = json!({"breaker_version": version, "breaker_state": "half_open", "probes": results,
        "totals": {"logical": 22, "physical": 22, "success": 2, "failures": {"fatal": 20}}});
    let (_, answer) = server.post("/v1/sync", &sync("1", &settled)).await;
    assert_eq!(answer["dependencies"]["payments"]["breaker"]["state"], "closed");
}
