//! Every key, in tables: what it is called, what it means, and how its value is taken.

use std::fmt::Write;
use std::net::SocketAddr;

use damper_core::{FailMode, OnOpen, PolicyDraft, RetryOwner, Scope};
use damper_engine::Unknown;

use super::sources::Value;

/// What is wrong with a value, and the remedy.
pub(super) type Wrong = String;

/// One key of a section that becomes a `T`.
pub(super) struct Key<T> {
    /// With dots, without the section.
    pub(super) path: &'static str,
    pub(super) default: &'static str,
    pub(super) help: &'static str,
    pub(super) set: fn(&mut T, &Value) -> Result<(), Wrong>,
}

macro_rules! keys {
    ($target:ty: $($($field:ident).+ = $default:literal, $take:expr, $help:literal;)+) => {
        &[$(Key {
            path: dotted!($($field).+),
            default: $default,
            help: $help,
            set: |target: &mut $target, value| {
                target.$($field).+ = Some($take(value)?);
                Ok(())
            },
        },)+]
    };
}

macro_rules! dotted {
    ($first:ident $(. $rest:ident)*) => { concat!(stringify!($first) $(, ".", stringify!($rest))*) };
}

/// The section `[server]` as written.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ServerDraft {
    pub(super) listen: Option<SocketAddr>,
    pub(super) insecure: Option<bool>,
    pub(super) engine: Option<()>,
    pub(super) unknown_dependencies: Option<Unknown>,
    pub(super) max_dependencies: Option<u32>,
}

/// The keys of `[server]`.
pub(super) const SERVER: &[Key<ServerDraft>] = keys! { ServerDraft:
    listen = "127.0.0.1:7117", address, "where the server listens";
    insecure = "false", flag, "listen on an address that is not loopback though nobody has to prove who they are";
    engine = "memory", engine, "where the budget is kept: memory";
    unknown_dependencies = "default", unknown, "make unknown dependencies from [defaults], or refuse them: default, refuse";
    max_dependencies = "1000", whole, "most dependencies; unknown ones beyond are refused";
};

/// The keys of `[defaults]` and of each `[dependencies.NAME]`; the keys of tenants come on top.
pub(super) const POLICY: &[Key<PolicyDraft>] = keys! { PolicyDraft:
    capacity_per_s = "unknown", number, "attempts per second that the dependency sustains";
    max_attempts = "4", whole, "attempts of one operation, the first included";
    max_delay_ms = "2000", long, "longest wait in the delay queue";
    token_ttl_ms = "2000", long, "how long a token may wait for its attempt to start";
    fail_mode = "open", |value| word(value, FailMode::ALL, FailMode::as_str), "retries while no server answers: open, closed";
    retry_owner = "outermost", |value| word(value, RetryOwner::ALL, RetryOwner::as_str), "which layer retries: outermost, innermost";
    shadow = "false", flag, "decide and count, and grant everything";
    amplification_cap = "none", number, "most attempts per operation of any one tenant, over ten seconds";
    retry.per_s = "none", number, "a plain fixed pool, in tokens per second";
    retry.ratio = "0.1, or 1.0 beside a capacity", number, "tokens per first attempt that succeeds";
    retry.floor_per_s = "1", number, "the least rate, for the whole fleet";
    retry.headroom_share = "0.8", number, "share of the room below the capacity that retries may use";
    retry.burst = "one second of the rate", number, "most tokens that can be saved up";
    retry.hedge_ratio = "0.05", number, "hedges per first attempt that succeeds";
    retry.cost.transient = "1", whole, "tokens for a retry after a transient failure";
    retry.cost.rate_limited = "1", whole, "tokens for a retry after a rate limit";
    retry.cost.timeout = "1", whole, "tokens for a retry after a timeout";
    retry.cost.no_resources = "1", whole, "tokens for a retry after a missing slot";
    breaker.failure_share = "0.8", number, "share of attempts that must fail to open it";
    breaker.min_volume = "20", long, "attempts without which no share counts";
    breaker.consecutive = "none", long, "failures in a row that open it whatever the share";
    breaker.window_ms = "10000", long, "how far back attempts count";
    breaker.open_for_ms = "30000", long, "how long it stays open the first time";
    breaker.open_for_max_ms = "10 x open_for_ms", long, "the longest that doubling may make this";
    breaker.probes = "3", whole, "probes out at once, for the whole fleet";
    breaker.probe_ttl_ms = "5000", long, "how long a probe may go without a result";
    breaker.close_after = "5", whole, "successful probes that close it";
    breaker.on_open = "all", |value| word(value, OnOpen::ALL, OnOpen::as_str), "what it stops when open: all, retries";
    breaker.scope = "dependency", |value| word(value, Scope::ALL, Scope::as_str), "for whom it is: dependency, tenant";
    breaker.slow_call_ms = "never", long, "from when on an attempt counts as slow, ended or not";
    breaker.slow_share = "0.8", number, "share of attempts that must be slow to open it";
    breaker.ramp_ms = "10000", long, "how long first attempts take to their full rate once it has closed";
};

/// Keys that the design names and this version does not have: the section, and the path in it.
pub(super) const ABSENT: &[(&str, &str)] = &[("server", "state_dir"), ("", "redis"), ("", "credentials")];

/// Every key with its default and meaning, for people.
pub(crate) fn reference() -> String {
    let mut text = String::new();
    list(&mut text, "[server]", SERVER);
    list(&mut text, "[defaults] and [dependencies.NAME]", POLICY);
    let _ = writeln!(text, "  {:<24} weight in queue and shares (default: 1)", "tenants.NAME.weight");
    let cap = "tenants.NAME.amplification_cap";
    let _ = writeln!(text, "  {cap:<24} in place of the dependency's (default: that)");
    text
}

fn list<T>(text: &mut String, section: &str, keys: &[Key<T>]) {
    let _ = writeln!(text, "{section}");
    for Key { path, default, help, set: _ } in keys {
        let _ = writeln!(text, "  {path:<24} {help} (default: {default})");
    }
}

pub(super) fn number(value: &Value) -> Result<f64, Wrong> {
    match value {
        #[expect(clippy::cast_precision_loss, reason = "what is too large to be exact is out of every range")]
        Value::Whole(number) => Ok(*number as f64),
        Value::Number(number) => Ok(*number),
        other => Err(format!("is {other}; give a number")),
    }
}

fn long(value: &Value) -> Result<u64, Wrong> {
    let Value::Whole(number) = value else { return Err(format!("is {value}; give a whole number")) };
    u64::try_from(*number).map_err(|_| format!("is {number}; give a whole number from 0 to {}", u64::MAX))
}

pub(super) fn whole(value: &Value) -> Result<u32, Wrong> {
    let number = long(value)?;
    u32::try_from(number).map_err(|_| format!("is {number}; give a whole number from 0 to {}", u32::MAX))
}

fn flag(value: &Value) -> Result<bool, Wrong> {
    match value {
        Value::Flag(flag) => Ok(*flag),
        other => Err(format!("is {other}; give true or false")),
    }
}

fn word<T: Copy>(value: &Value, words: &[T], spelt: fn(T) -> &'static str) -> Result<T, Wrong> {
    let given = |word: &&T| matches!(value, Value::Text(text) if text == spelt(**word));
    words.iter().find(given).copied().ok_or_else(|| {
        let words: Vec<&str> = words.iter().map(|word| spelt(*word)).collect();
        format!("is {value}; give one of: {}", words.join(", "))
    })
}

fn unknown(value: &Value) -> Result<Unknown, Wrong> {
    word(value, &[Unknown::Create, Unknown::Refuse], |unknown| match unknown {
        Unknown::Create => "default",
        Unknown::Refuse => "refuse",
    })
}

fn engine(value: &Value) -> Result<(), Wrong> {
    match value {
        Value::Text(text) if text == "redis" => {
            Err("is \"redis\", which is not available in this version; give \"memory\"".to_owned())
        }
        other => word(other, &[()], |()| "memory"),
    }
}

fn address(value: &Value) -> Result<SocketAddr, Wrong> {
    let text = if let Value::Text(text) = value { text.parse().ok() } else { None };
    text.ok_or_else(|| format!("is {value}; give an IP address and a port, such as \"127.0.0.1:7117\""))
}
