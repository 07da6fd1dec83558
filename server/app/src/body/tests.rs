//! The quick way of taking a message and the slow way of explaining why it cannot be taken have to agree.

use damper_protocol::{
    AskRequest, BatchRequest, ClientIdentity, FailureReport, ProbeResult, ReturnRequest, SyncDependency,
    SyncRequest, Totals,
};
use serde::Serialize;
use serde_json::{Map, json};

use super::*;

/// A message with every field that its type has.
fn whole_ask() -> Value {
    json!({
        "request_id": "r", "dependency": "d", "tenant": "t", "kind": "retry", "operation": "o", "attempt": 2,
        "failure": {"class": "transient", "reason": "timeout", "source": "runtime", "dispatch": "not_sent",
            "do_not_retry": false, "caller_rejected": false, "code": "503", "retry_after_ms": 5},
        "idempotent": true, "recovery_mode": "opaque", "priority": "normal", "cost": 1, "deadline_ms": 100,
        "earliest_ms": 1, "expected_ms": 1, "max_wait_ms": 0
    })
}

fn whole_sync() -> Value {
    let totals = json!({
        "logical": 1, "physical": 1, "success": 1, "affected": 1, "recovered": 1, "exhausted": 1, "shed": 1,
        "expired": 1, "emergency": 1, "abandoned": 1, "ambiguous": 1, "foreign": 1,
        "slow": 1, "latency": [1, 2], "recovery": [1],
        "failures": {"transient": 1, "rate_limited": 1, "invalid": 1, "permission": 1, "fatal": 1, "semantic": 1},
        "sources": {"application": 1, "runtime": 1},
        "reasons": {"handler_error": 1, "timeout": 1, "no_resources": 1}
    });
    json!({
        "client": {"id": "c", "incarnation": "1", "name": "n", "version": "v"}, "tenant": "t", "epoch": "e",
        "dependencies": {"d": {
            "wants_first_per_s": 1.5, "has_first_per_s": 1.5, "in_flight": 1, "breaker_version": 1,
            "breaker_state": "open", "totals": totals, "acked": totals,
            "probes": [{"token": "t", "success": true}]
        }}
    })
}

fn odd_values() -> Vec<Value> {
    vec![
        json!(null),
        json!(true),
        json!(-1),
        json!(-0.5),
        json!(0),
        json!(1),
        json!(1.0),
        json!(1.5),
        json!(31_622_400_000_u64),
        json!(31_622_400_001_u64),
        json!(4_294_967_295_u64),
        json!(4_294_967_296_u64),
        json!(u64::MAX),
        json!(1e19),
        json!(1e300),
        json!(""),
        json!("a"),
        json!("a\nb"),
        json!("x".repeat(128)),
        json!("x".repeat(129)),
        json!("retry"),
        json!("hedge"),
        json!("transient"),
        json!([]),
        json!([1]),
        json!({}),
        json!({"class": "transient"}),
        json!({"d": {}}),
        json!({"": {}}),
    ]
}

/// Every message that differs from `value` in one part, however deep.
fn mutants(value: &Value) -> Vec<Value> {
    let mut mutants = odd_values();
    match value {
        Value::Object(object) => {
            for (name, part) in object {
                let with = |part: Option<Value>| {
                    let mut object: Map<String, Value> = object.clone();
                    object.remove(name);
                    object.extend(part.map(|part| (name.clone(), part)));
                    Value::Object(object)
                };
                mutants.push(with(None));
                mutants.extend(self::mutants(part).into_iter().map(|part| with(Some(part))));
            }
        }
        Value::Array(list) => {
            mutants.extend(list.iter().flat_map(self::mutants).map(|part| Value::Array(vec![part])));
        }
        _ => {}
    }
    mutants
}

/// What `parse` makes of a message agrees with the table, and the table explains every refusal.
fn agree<M: Message>(whole: &Value) {
    assert!(parse::<M>(whole.to_string().as_bytes()).is_ok(), "{whole}");
    let mutants = mutants(whole);
    assert!(mutants.len() > 20);
    for mutant in mutants {
        let faults = faults(M::SHAPE, &mutant);
        match parse::<M>(mutant.to_string().as_bytes()) {
            Ok(_) => assert!(faults.is_empty(), "taken in spite of {faults:?}: {mutant}"),
            Err(fault) => assert_eq!(fault, Fault::Invalid(faults), "{mutant}"),
        }
    }
}

#[test]
fn the_quick_way_and_the_slow_way_agree() {
    agree::<AskRequest>(&whole_ask());
    agree::<BatchRequest>(&json!({"asks": [whole_ask()]}));
    agree::<ReturnRequest>(&json!({"token": "t"}));
    agree::<SyncRequest>(&whole_sync());
}

/// The names of the fields that a type writes.
fn fields(value: &impl Serialize) -> Vec<String> {
    serde_json::to_value(value).unwrap().as_object().unwrap().keys().cloned().collect()
}

#[test]
fn the_whole_messages_have_every_field_of_their_types() {
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let ask: AskRequest = serde_json::from_value(whole_ask()).unwrap();
    assert_eq!(fields(&ask), keys(&whole_ask()));
    let failure: FailureReport = ask.failure.unwrap();
    assert_eq!(fields(&failure), keys(&whole_ask()["failure"]));
    let sync: SyncRequest = serde_json::from_value(whole_sync()).unwrap();
    assert_eq!(fields(&sync), keys(&whole_sync()));
    let client: &ClientIdentity = &sync.client;
    assert_eq!(fields(client), keys(&whole_sync()["client"]));
    let synced: &SyncDependency = &sync.dependencies["d"];
    assert_eq!(fields(synced), keys(&whole_sync()["dependencies"]["d"]));
    assert_eq!(
        fields(&Totals { latency: vec![1], recovery: vec![1], ..Totals::default() }),
        keys(&whole_sync()["dependencies"]["d"]["totals"])
    );
    assert_eq!(fields(&ProbeResult { token: String::new(), success: true }), ["success", "token"]);
}

#[test]
fn nesting_is_counted_outside_of_text_alone() {
    assert_eq!(depth(br#"{"a":[[{}]],"b":"[[[[{{{{","c":"\"[[["}"#), 4);
    assert_eq!(depth(b"]]]}}}["), 1);
    let of = |depth: usize| {
        format!("{{\"token\":\"t\",\"x\":{}{}}}", "[".repeat(depth - 1), "]".repeat(depth - 1))
    };
    assert!(parse::<ReturnRequest>(of(16).as_bytes()).is_ok());
    assert!(matches!(parse::<ReturnRequest>(of(17).as_bytes()), Err(Fault::Malformed(_))));
    let text = json!({"token": "[".repeat(100)}).to_string();
    assert!(parse::<ReturnRequest>(text.as_bytes()).is_ok(), "brackets in text are text");
}
