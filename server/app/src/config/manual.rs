//! The manual of the configuration, made from the tables of keys. Only a test makes it: the committed one is what
//! people read.

use std::fmt::Write;
use std::{env, fs, path::Path};

use damper_core::{Policy, PolicyDraft};

use super::keys::{Key, POLICY, SERVER, TELEMETRY, TENANT};
use super::value::Value;
use super::{Config, Sources};

/// Set this to write the committed manual anew.
const BLESS: &str = "DAMPER_BLESS";

const INTRODUCTION: &str = "\
# Configuration

<!-- Made from the tables of keys in server/app/src/config/keys.rs: run the tests with DAMPER_BLESS=1 to write it anew. -->

damper reads TOML, then variables of the environment, then flags; what comes later wins. Every key may be left out,
and a server without any configuration is a good one for a first look. Durations are whole milliseconds, rates are
numbers per second. A key that does not exist is a mistake, and all mistakes are reported at once, each with its place
and its remedy: `damper check --config damper.toml`.

A variable is the key in capitals behind `DAMPER_`, with two underscores for each dot:
`DAMPER_DEPENDENCIES__PAYMENTS__RETRY__PER_S` is `dependencies.payments.retry.per_s`. A name is spelt as in the file, if
it is there; else in small letters.

## An example

```toml
";

const EXAMPLE: &str = r#"[server]
listen = "127.0.0.1:7117"
unknown_dependencies = "default"   # or "refuse"
caller_per_s = 200

[defaults]
max_attempts = 3

[dependencies.payments]
capacity_per_s = 130
max_attempts = 4
fail_mode = "closed"               # or "open"

[dependencies.payments.retry]
per_s = 10
burst = 10

[dependencies.payments.breaker]
failure_share = 0.5
on_open = "retries"                # or "all"

[dependencies.payments.tenants.checkout]
weight = 3

[dependencies.mail]
retry.ratio = 0.2
"#;

const TELEMETRY_NOTE: &str = "\
[metrics.md](metrics.md) lists the metrics. The log goes to standard error; how much of it, `damper serve --help` says,
and `--log-format` comes before `log_format`. Traces are off until there is an endpoint. Without the key, the standard
variables `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` and `OTEL_EXPORTER_OTLP_ENDPOINT` are read; a collector's own port for
it is 4318. This version speaks http, not https: keep a collector beside the server.

";

const RUNNING: &str = "\
## While the server runs

`SIGHUP` and `POST /v1/admin/reload` read the same file again, with the variables and flags of the start.

- A file with mistakes changes nothing. Every mistake is in the log, and in the answer.
- A policy that stays the same notices nothing: its pool is neither refilled nor emptied. A changed one is in force at
  once; balances, queue and windows stay, clamped to the new bounds.
- A dependency that is not in the file any more goes by `[defaults]` again. `DELETE /v1/admin/dependencies/{name}` then
  forgets it.
- What `PUT /v1/admin/dependencies/{name}` has put is in force until the next reload or restart: the file is the truth.
- `server.listen` and `server.engine` cannot change; a file that changes one of them is refused as a whole. Restart the
  server. `server.insecure` only matters at the start. Every other key of `[server]` is in force at once.
- `telemetry.tenants` and `telemetry.max_tenants` are in force at once, the other keys of `[telemetry]` from the next
  start on.
- `config_version` in the answers to syncs, and `damper_config_version`, rise with every reload, `PUT` or `DELETE` that
  changes anything.
";

/// The manual, in Markdown.
fn manual() -> String {
    let mut text = format!("{INTRODUCTION}{EXAMPLE}```\n\n");
    section(&mut text, "`[server]`", "DAMPER_SERVER__", SERVER, bounds_of_value);
    text += "A peer is known by the address that it connects from; an IPv6 network of 64 bits counts as one. `/livez`,\n\
             `/readyz` and `/metrics` are never refused for calling too often.\n\n";
    section(&mut text, "`[telemetry]`", "DAMPER_TELEMETRY__", TELEMETRY, bounds_of_value);
    text += TELEMETRY_NOTE;
    section(
        &mut text,
        "`[defaults]` and `[dependencies.NAME]`",
        "DAMPER_DEPENDENCIES__NAME__",
        POLICY,
        |key| {
            // The least of breaker.open_for_max_ms is this.
            let mut draft = PolicyDraft::default();
            draft.breaker.open_for_ms = Some(1);
            bounds(key, &mut draft, |draft| Policy::new(draft).err().map(|faults| faults[0].message.clone()))
        },
    );
    text += "A dependency takes from `[defaults]` what it leaves open; in the variables, `DEFAULTS` then stands for\n\
             `DEPENDENCIES__NAME`. `PUT /v1/admin/dependencies/{name}` takes the same keys as JSON, with the same\n\
             nesting.\n\n";
    let tenants = "`[defaults.tenants.NAME]` and `[dependencies.NAME.tenants.NAME]`";
    section(&mut text, tenants, "DAMPER_DEPENDENCIES__NAME__TENANTS__NAME__", TENANT, |key| {
        bounds(key, &mut Default::default(), |tenant| {
            let tenants = [("x".to_owned(), tenant.clone())].into();
            let faults = Policy::new(&PolicyDraft { tenants, ..PolicyDraft::default() }).err();
            faults.map(|faults| faults[0].message.clone())
        })
    });
    text + RUNNING
}

fn section<T>(
    text: &mut String,
    title: &str,
    variable: &str,
    keys: &[Key<T>],
    bounds: impl Fn(&Key<T>) -> Option<String>,
) {
    let _ =
        writeln!(text, "## {title}\n\n| key | value | default | meaning | variable |\n|---|---|---|---|---|");
    for key in keys {
        let Key { path, default, help, takes, .. } = key;
        let bounds = bounds(key).map_or_else(String::new, |bounds| format!(", {bounds}"));
        let variable = format!("{variable}{}", path.to_uppercase().replace('.', "__"));
        let _ = writeln!(text, "| `{path}` | {}{bounds} | {default} | {help} | `{variable}` |", takes());
    }
    text.push('\n');
}

fn bounds_of_value<T: Clone + Default>(key: &Key<T>) -> Option<String> {
    bounds(key, &mut T::default(), |_| None)
}

/// The bounds of a number, as the complaint about one that is far outside of them names them.
fn bounds<T: Clone>(key: &Key<T>, draft: &mut T, complaint: impl Fn(&T) -> Option<String>) -> Option<String> {
    let outside = match (key.takes)().as_str() {
        "number" => vec![Value::Number(-1.0)],
        "whole number" => vec![Value::Whole(u64::MAX.into()), Value::Whole(u32::MAX.into()), Value::Whole(0)],
        _ => return None,
    };
    let complaints = outside.into_iter().find_map(|value| {
        let mut draft = draft.clone();
        match (key.set)(&mut draft, &value) {
            Ok(()) => complaint(&draft),
            Err(wrong) if wrong.message.contains("whole") => None,
            Err(wrong) => Some(wrong.message),
        }
    })?;
    complaints.split_once("give ").map(|(_, bounds)| bounds.to_owned())
}

#[test]
fn the_committed_manual_is_the_generated_one() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    if env::var_os(BLESS).is_some() {
        fs::write(&path, manual()).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == manual(), "{} is stale: run this test with {BLESS}=1", path.display());
}

#[test]
fn the_example_of_the_manual_is_valid_and_its_variables_are_keys() {
    let config = Config::from_toml(EXAMPLE).unwrap();
    assert_eq!(config.settings().dependencies.len(), 2);
    let text = manual();
    let variables = text.split('`').filter(|word| word.starts_with("DAMPER_") && word.len() > 7);
    let names: Vec<&str> = variables.collect();
    assert!(names.len() > POLICY.len() + SERVER.len());
    for name in names {
        let set = [(name.to_owned(), "nonsense of no type".to_owned())];
        let error = Sources::default().with_environment(set).read().unwrap_err();
        assert!(!error.to_string().contains("is not a key"), "{error}");
    }
}

#[test]
fn every_number_of_the_manual_has_its_bounds() {
    let without = |line: &&str| line.contains("number |");
    let missing: Vec<String> = manual().lines().filter(without).map(str::to_owned).collect();
    assert_eq!(
        missing,
        ["| `max_dependencies` | whole number | 1000 | most dependencies; unknown ones beyond are \
                          refused | `DAMPER_SERVER__MAX_DEPENDENCIES` |"]
    );
}
