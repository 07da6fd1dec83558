use damper_protocol::{AskRequest, SyncRequest};
use serde_json::json;

use super::*;

fn pointers(faults: &[InvalidField]) -> Vec<(&str, &str)> {
    faults.iter().map(|fault| (fault.pointer.as_str(), fault.code.as_str())).collect()
}

#[test]
fn every_fault_has_its_pointer_and_code() {
    let ask = json!({
        "dependency": " d", "operation": 5, "attempt": 1.5, "deadline_ms": -1, "kind": "someday",
        "failure": {"class": null, "caller_rejected": "yes"}
    });
    assert_eq!(
        pointers(&faults(AskRequest::SHAPE, &ask)),
        [
            ("/dependency", "invalid_name"),
            ("/kind", "unknown_value"),
            ("/operation", "wrong_type"),
            ("/attempt", "wrong_type"),
            ("/failure/class", "wrong_type"),
            ("/failure/caller_rejected", "wrong_type"),
            ("/deadline_ms", "out_of_range"),
        ]
    );
    assert_eq!(pointers(&faults(AskRequest::SHAPE, &json!([]))), [("", "wrong_type")]);
}

#[test]
fn a_retry_has_to_say_what_failed_and_others_need_not() {
    let ask = |kind: &str| json!({"dependency": "d", "operation": "o", "attempt": 2, "deadline_ms": 1, "kind": kind});
    assert_eq!(pointers(&faults(AskRequest::SHAPE, &ask("retry"))), [("/failure/class", "missing")]);
    assert_eq!(pointers(&faults(AskRequest::SHAPE, &ask("hedge"))), []);
}

#[test]
fn pointers_are_escaped_and_neither_they_nor_their_number_grow_with_nonsense() {
    let names = ["a/b~", &"x".repeat(100_000)];
    let dependencies: Value = names.into_iter().map(|name| (name.to_owned(), json!({"totals": 1}))).collect();
    let sync = json!({"client": {"id": "c", "incarnation": "1"}, "dependencies": dependencies});
    let found = faults(SyncRequest::SHAPE, &sync);
    assert_eq!(found[0].pointer, "/dependencies/a~1b~0/totals");
    assert!(found.iter().all(|fault| fault.pointer.len() < 200));

    let many: Value = (0..5000).map(|number| (number.to_string(), json!(null))).collect();
    let sync = json!({"client": {"id": "c", "incarnation": "1"}, "dependencies": many});
    assert_eq!(faults(SyncRequest::SHAPE, &sync).len(), MOST_FAULTS);
}
