//! The rule of dependencies between the crates of this workspace: a machine checks it, or it does not exist.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail in any way; the lints exempt only functions that are marked as tests"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

/// What each crate may use of the workspace.
const MAY_USE: [(&str, &[&str]); 6] = [
    ("damper-protocol", &[]),
    ("damper-core", &[]),
    ("damper-engine", &["damper-core"]),
    ("damper-server", &["damper-core", "damper-engine", "damper-protocol"]),
    ("damper-client", &["damper-protocol"]),
    ("damper-load", &["damper-core", "damper-engine", "damper-server", "damper-client", "damper-protocol"]),
];

/// What the core may use of the world: nothing. Tests may check it against generated cases.
const CORE_MAY_USE: [(&str, &str); 4] =
    [("proptest", "dev"), ("criterion", "dev"), ("governor", "dev"), ("stateright", "dev")];

/// Crates outside this list are not part of the layout.
fn packages() -> Vec<Value> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

fn name(value: &Value) -> &str {
    value["name"].as_str().unwrap()
}

/// The kind of a dependency: `normal`, `dev` or `build`.
fn kind(dependency: &Value) -> &str {
    dependency["kind"].as_str().unwrap_or("normal")
}

#[test]
fn crates_use_only_those_below_them() {
    let may_use: BTreeMap<&str, &[&str]> = MAY_USE.into_iter().collect();
    let packages = packages();
    let known: BTreeSet<&str> = packages.iter().map(name).collect();
    assert_eq!(known, may_use.keys().copied().collect(), "give every crate its place in this table");
    for package in &packages {
        for dependency in package["dependencies"].as_array().unwrap() {
            let (user, used) = (name(package), name(dependency));
            // The client is tested against the real server, which its users never see.
            let is_test = user == "damper-client" && kind(dependency) == "dev";
            let is_ours = known.contains(used);
            assert!(!is_ours || is_test || may_use[user].contains(&used), "{user} must not use {used}");
        }
    }
}

#[test]
fn the_core_depends_on_nothing() {
    let packages = packages();
    let core = packages.iter().find(|package| name(package) == "damper-core").unwrap();
    for dependency in core["dependencies"].as_array().unwrap() {
        let used = (name(dependency), kind(dependency));
        assert!(CORE_MAY_USE.contains(&used), "the core must not use {used:?}");
    }
}

#[test]
fn the_wire_types_are_types_alone() {
    let packages = packages();
    let protocol = packages.iter().find(|package| name(package) == "damper-protocol").unwrap();
    let used = protocol["dependencies"].as_array().unwrap().iter().filter(|used| kind(used) == "normal");
    let used: BTreeSet<&str> = used.map(name).collect();
    assert_eq!(used, BTreeSet::from(["serde", "utoipa"]));
}
