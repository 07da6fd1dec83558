//! What peers may get wrong. Nothing of it is the server's fault, and nothing of it is charged.

use serde_json::{Value, json};

use crate::support::{FULL_OF_TEN, Server, pointers, retry, with};

/// Values that are wrong for most fields and right for some.
fn odd_values() -> Vec<Value> {
    vec![
        json!(null),
        json!(true),
        json!(-1),
        json!(0),
        json!(1.5),
        json!(4_294_967_296_u64),
        json!(18_446_744_073_709_551_615_u64),
        json!(1e300),
        json!(""),
        json!(" padded "),
        json!("a\u{0}b"),
        json!("x".repeat(129)),
        json!("x".repeat(1_000_000)),
        json!([]),
        json!([1, 2]),
        json!({}),
        json!({"class": "solar_flare"}),
        nested(20),
    ]
}

fn nested(depth: usize) -> Value {
    (0..depth).fold(json!(1), |inner, _| json!([inner]))
}

fn sync() -> Value {
    json!({"client": {"id": "c", "incarnation": "1"}, "dependencies": {"payments": {}}})
}

#[tokio::test]
async fn no_field_of_an_ask_can_be_wrong_enough_for_a_5xx_or_a_charge() {
    let server = Server::start(
        "[dependencies.payments]\nretry.per_s = 100000\nretry.burst = 100000\nretry.floor_per_s = 100000",
    )
    .await;
    let whole = with(
        retry(),
        json!({
            "request_id": "r", "tenant": "t", "kind": "retry", "recovery_mode": null, "priority": "normal",
            "cost": 1, "earliest_ms": 0, "expected_ms": 0, "max_wait_ms": 0
        }),
    );
    for field in whole.as_object().unwrap().keys() {
        for value in odd_values() {
            let before = server.issued("payments").await;
            let (status, answer) =
                server.post("/v1/tokens", &with(whole.clone(), json!({ field: value }))).await;
            let shown: String = value.to_string().chars().take(40).collect();
            assert!([200, 400, 413, 422].contains(&status), "{field} = {shown}: {status} {answer}");
            if status != 200 {
                assert_eq!(server.issued("payments").await, before, "{field} = {shown} was charged");
            }
            if status == 422 {
                let at = format!("/{field}");
                assert!(
                    pointers(&answer).iter().all(|pointer| pointer.starts_with(&at)),
                    "{shown}: {answer}"
                );
            }
        }
    }
}

#[tokio::test]
async fn no_field_of_a_sync_can_be_wrong_enough_for_a_5xx() {
    let server = Server::start("").await;
    let fields =
        ["wants_first_per_s", "in_flight", "breaker_version", "breaker_state", "totals", "acked", "probes"];
    for field in fields {
        for value in odd_values() {
            let message = with(sync(), json!({"dependencies": {"payments": {field: value}}}));
            let (status, answer) = server.post("/v1/sync", &message).await;
            assert!([200, 400, 422].contains(&status), "{field}: {status} {answer}");
        }
    }
    for name in ["", " a", "a\u{7f}", &"x".repeat(129), &"x".repeat(500_000)] {
        let (status, problem) =
            server.post("/v1/sync", &with(sync(), json!({"dependencies": {name: {}}}))).await;
        assert_eq!((status, &problem["errors"][0]["code"]), (422, &json!("invalid_name")));
        assert!(problem.to_string().len() < 1000, "what a peer made long is not repeated to it");
    }
    assert_eq!(
        server.get("/v1/dependencies").await.1["dependencies"][0]["clients"],
        1,
        "only the sound ones"
    );
}

#[tokio::test]
async fn every_invalid_field_is_named_at_once() {
    let server = Server::start(FULL_OF_TEN).await;
    let cases = [
        (
            "/v1/tokens",
            json!({}),
            vec!["/dependency", "/operation", "/attempt", "/deadline_ms", "/failure/class"],
        ),
        (
            "/v1/tokens",
            json!({"dependency": "d", "operation": "o", "attempt": 0, "deadline_ms": -5, "cost": 0, "kind": "first",
                "failure": {"class": "?", "retry_after_ms": 1e18}}),
            vec!["/attempt", "/failure/class", "/failure/retry_after_ms", "/cost", "/deadline_ms"],
        ),
        ("/v1/tokens/return", json!({}), vec!["/token"]),
        ("/v1/tokens/batch", json!({"asks": [1]}), vec!["/asks/0"]),
        (
            "/v1/sync",
            json!({"client": {"id": ""}, "dependencies": {"a/b~c": {"wants_first_per_s": -1, "totals": {"logical": -1}}}}),
            vec![
                "/client/id",
                "/client/incarnation",
                "/dependencies/a~1b~0c/wants_first_per_s",
                "/dependencies/a~1b~0c/totals/logical",
            ],
        ),
    ];
    for (path, body, expected) in cases {
        let (status, problem) = server.post(path, &body).await;
        assert_eq!((status, &problem["code"]), (422, &json!("invalid_field")), "{path}");
        assert_eq!(pointers(&problem), expected, "{path}");
    }
    assert_eq!(server.issued("payments").await, 0.0);
}

#[tokio::test]
async fn what_is_not_json_is_malformed() {
    let server = Server::start(FULL_OF_TEN).await;
    let ask = retry().to_string();
    let deep = format!("{{\"unknown\":{}1{}}}", "[".repeat(16), "]".repeat(16));
    let bodies: Vec<Vec<u8>> = vec![
        b"".to_vec(),
        b"{".to_vec(),
        b"nonsense".to_vec(),
        ask.replace('}', "").into_bytes(),
        ask.replace("transient", "\u{1}").into_bytes(),
        [ask.as_bytes(), b"x"].concat(),
        [b"\xff\xfe", ask.as_bytes()].concat(),
        ask.replace("op-1", "op-\u{fffd}").replace('\u{fffd}', "\\ud800").into_bytes(),
        format!("{{{}", "\"a\":{".repeat(10_000)).into_bytes(),
        deep.into_bytes(),
        ask.replace("\"attempt\":2", "\"attempt\":2,\"attempt\":3").into_bytes(),
        ask.replace("30000", "1e999").into_bytes(),
    ];
    for path in ["/v1/tokens", "/v1/tokens/batch", "/v1/tokens/return", "/v1/sync"] {
        for body in &bodies {
            let (status, problem) = server.post_text(path, body.clone()).await;
            let shown = String::from_utf8_lossy(body).chars().take(60).collect::<String>();
            assert!(
                status == 400 || (status == 422 && path != "/v1/tokens"),
                "{path} {shown}: {status} {problem}"
            );
        }
    }
    assert_eq!(server.issued("payments").await, 0.0);
}

#[tokio::test]
async fn a_list_is_not_taken_for_an_object() {
    let server = Server::start(FULL_OF_TEN).await;
    let positional = json!([null, "payments", null, "retry", "o", 2, {"class": "transient"}, true]);
    let (status, problem) = server.post("/v1/tokens", &positional).await;
    assert_eq!((status, pointers(&problem)), (422, vec![""]));
    let (status, problem) =
        server.post("/v1/tokens", &with(retry(), json!({"failure": ["transient"]}))).await;
    assert_eq!((status, pointers(&problem)), (422, vec!["/failure"]));
    assert_eq!(server.issued("payments").await, 0.0);
}

#[tokio::test]
async fn unknown_fields_are_ignored_and_names_with_any_characters_stay_apart() {
    let server = Server::start("").await;
    for name in ["a/b", "%2F", "a:b", "Ωμέγα", "a b", "a?b#c", "{x}", &"x".repeat(128)] {
        let ask = with(retry(), json!({"dependency": name, "a_field_of_the_future": [{"x": [1, 2]}]}));
        assert_eq!(server.ask(&ask).await["decision"], "granted", "{name}");
        let encoded: String = name.bytes().map(|byte| format!("%{byte:02x}")).collect();
        assert_eq!(server.state(&encoded).await["name"], name);
    }
}
