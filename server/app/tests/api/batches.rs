//! `POST /v1/tokens/batch`.

use serde_json::{Value, json};

use crate::support::{FULL_OF_TEN, Server, pointers, retry, with};

fn batch(asks: &[Value]) -> Value {
    json!({"asks": asks})
}

#[tokio::test]
async fn a_batch_is_answered_in_order_and_never_waits() {
    let server = Server::start("[defaults]\nretry.per_s = 1").await;
    let invalid = with(retry(), json!({"failure": {"class": "invalid"}}));
    let other = with(retry(), json!({"dependency": "mail"}));
    // Each may wait by its own words; the second retry of payments finds an empty pool.
    let (status, answer) = server.post("/v1/tokens/batch", &batch(&[invalid, retry(), retry(), other])).await;
    assert_eq!(status, 200);
    let reasons: Vec<&str> = answer["answers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|answer| answer["reason"].as_str().unwrap())
        .collect();
    assert_eq!(reasons, ["not_retryable", "within_budget", "budget_exhausted", "within_budget"]);
    assert_eq!(server.post("/v1/tokens/batch", &batch(&[])).await, (200, json!({"answers": []})));
}

#[tokio::test]
async fn a_batch_has_at_most_256_asks() {
    let server = Server::start(FULL_OF_TEN).await;
    let (status, problem) = server.post("/v1/tokens/batch", &batch(&vec![retry(); 257])).await;
    assert_eq!((status, &problem["code"]), (413, &json!("batch_too_large")));
    assert_eq!(server.issued("payments").await, 0.0);
    let (status, answer) = server.post("/v1/tokens/batch", &batch(&vec![retry(); 256])).await;
    assert_eq!((status, answer["answers"].as_array().unwrap().len()), (200, 256));
    assert_eq!(server.issued("payments").await, 10.0);
}

#[tokio::test]
async fn a_batch_with_one_bad_ask_charges_nothing_and_names_it() {
    let server = Server::start(FULL_OF_TEN).await;
    let costly = with(retry(), json!({"cost": 11}));
    let (status, problem) = server.post("/v1/tokens/batch", &batch(&[retry(), costly.clone(), costly])).await;
    assert_eq!((status, pointers(&problem)), (422, vec!["/asks/1/cost", "/asks/2/cost"]));
    let nameless = with(retry(), json!({"operation": "", "kind": "x"}));
    let (status, problem) = server.post("/v1/tokens/batch", &batch(&[retry(), nameless])).await;
    assert_eq!((status, pointers(&problem)), (422, vec!["/asks/1/kind", "/asks/1/operation"]));
    assert_eq!(server.issued("payments").await, 0.0);
}

#[tokio::test]
async fn a_batch_that_names_a_refused_dependency_keeps_no_token() {
    let server = Server::start(&format!("server.unknown_dependencies = \"refuse\"\n{FULL_OF_TEN}")).await;
    let unknown = with(retry(), json!({"dependency": "unknown"}));
    let (status, _) = server.post("/v1/tokens/batch", &batch(&[retry(), unknown])).await;
    assert_eq!(status, 404);
    let pool = &server.state("payments").await["pool"];
    assert_eq!(
        (&pool["issued"], &pool["returned"], &pool["tokens"]),
        (&json!(0.0), &json!(0.0), &json!(10.0)),
        "no ask of it was decided"
    );
}
