//! Every key, in tables: what it is called, what it means, and how its value is taken. TOML, variables, flags and
//! JSON all go through them; help and manual are made of them.

use std::fmt::Write;
use std::net::SocketAddr;

use damper_core::{FailMode, OnOpen, PolicyDraft, RetryOwner, Scope, TenantDraft};
use damper_engine::Unknown;

use super::types::{
    ADDRESS, ENDPOINT, ENGINE, FLAG, LOG_FORMAT, LONG, NUMBER, RATE, SHARE, TENANTS, Type, UNKNOWN, WHOLE,
    words,
};
use super::value::{Value, Wrong};
use crate::logs::LogFormat;

/// One key of a section that becomes a `T`.
pub(super) struct Key<T> {
    /// With dots, without the section.
    pub(super) path: &'static str,
    pub(super) default: &'static str,
    pub(super) help: &'static str,
    /// What a value is, for people.
    pub(super) takes: fn() -> String,
    pub(super) set: fn(&mut T, &Value) -> Result<(), Wrong>,
}

macro_rules! keys {
    ($target:ty: $($($field:ident).+ = $default:literal, $type:expr, $help:literal;)+) => {
        &[$(Key {
            path: dotted!($($field).+),
            default: $default,
            help: $help,
            takes: || $type.describe(),
            set: |target: &mut $target, value| {
                target.$($field).+ = Some($type.take(value)?);
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
    pub(super) caller_per_s: Option<f64>,
}

/// The keys of `[server]`.
pub(super) const SERVER: &[Key<ServerDraft>] = keys! { ServerDraft:
    listen = "127.0.0.1:7117", ADDRESS, "where the server listens";
    insecure = "false", FLAG, "listen on an address that is not loopback though nobody has to prove who they are";
    engine = "memory", ENGINE, "where the budget is kept";
    unknown_dependencies = "default", UNKNOWN, "make unknown dependencies from [defaults], or refuse them";
    max_dependencies = "1000", WHOLE, "most dependencies; unknown ones beyond are refused";
    caller_per_s = "none", RATE, "most requests per second of one peer's address, at most a second's worth at once";
};

/// The section `[telemetry]` as written.
#[derive(Clone, Debug, Default)]
pub(super) struct TelemetryDraft {
    pub(super) tenants: Option<bool>,
    pub(super) max_tenants: Option<usize>,
    pub(super) log_format: Option<LogFormat>,
    pub(super) otlp_endpoint: Option<String>,
    pub(super) trace_ratio: Option<f64>,
}

/// The keys of `[telemetry]`.
pub(super) const TELEMETRY: &[Key<TelemetryDraft>] = keys! { TelemetryDraft:
    tenants = "false", FLAG, "metrics by tenant too: many rows, so they have to be asked for";
    max_tenants = "100", TENANTS, "most tenants of each dependency with metrics of their own; the rest is tenant=\"_other\"";
    log_format = "text", LOG_FORMAT, "the form of the log: lines for people, or one JSON object on each line";
    otlp_endpoint = "none", ENDPOINT, "where traces go, by OTLP over HTTP as JSON and without credentials; no traces without it";
    trace_ratio = "1", SHARE, "share of traces that begin here and are kept; a caller's own decision comes first";
};

/// The keys of `[defaults]` and of each `[dependencies.NAME]`; the keys of tenants come on top.
pub(super) const POLICY: &[Key<PolicyDraft>] = keys! { PolicyDraft:
    capacity_per_s = "unknown", NUMBER, "attempts per second that the dependency sustains";
    max_attempts = "4", WHOLE, "attempts of one operation, the first included";
    max_delay_ms = "2000", LONG, "longest wait in the delay queue";
    token_ttl_ms = "2000", LONG, "how long a token may wait for its attempt to start";
    fail_mode = "open", words!(FailMode), "what becomes of retries while no server answers";
    retry_owner = "outermost", words!(RetryOwner), "which of several nested layers retries";
    shadow = "false", FLAG, "decide and count, and grant everything";
    amplification_cap = "none", NUMBER, "most attempts per operation of any one tenant, over ten seconds";
    retry.per_s = "none", NUMBER, "a plain fixed pool, in tokens per second";
    retry.ratio = "0.1, or 1.0 beside a capacity", NUMBER, "tokens per first attempt that succeeds";
    retry.floor_per_s = "1", NUMBER, "the least rate, for the whole fleet";
    retry.headroom_share = "0.8", NUMBER, "share of the room below the capacity that retries may use";
    retry.burst = "one second of the rate", NUMBER, "most tokens that can be saved up";
    retry.hedge_ratio = "0.05", NUMBER, "hedges per first attempt that succeeds";
    retry.cost.transient = "1", WHOLE, "tokens for a retry after a transient failure";
    retry.cost.rate_limited = "1", WHOLE, "tokens for a retry after a rate limit";
    retry.cost.timeout = "1", WHOLE, "tokens for a retry after a timeout";
    retry.cost.no_resources = "1", WHOLE, "tokens for a retry after a missing slot";
    breaker.failure_share = "0.8", NUMBER, "share of attempts that must fail to open it";
    breaker.min_volume = "20", LONG, "attempts without which no share counts";
    breaker.consecutive = "none", LONG, "failures in a row that open it whatever the share";
    breaker.window_ms = "10000", LONG, "how far back attempts count";
    breaker.open_for_ms = "30000", LONG, "how long it stays open the first time";
    breaker.open_for_max_ms = "10 x open_for_ms", LONG, "the longest that doubling may make this, at least open_for_ms";
    breaker.probes = "3", WHOLE, "probes out at once, for the whole fleet";
    breaker.probe_ttl_ms = "5000", LONG, "how long a probe may go without a result";
    breaker.close_after = "5", WHOLE, "successful probes that close it";
    breaker.on_open = "all", words!(OnOpen), "what it stops when open: first attempts too, or retries alone";
    breaker.scope = "dependency", words!(Scope), "for whom it is: everyone together, or each tenant";
    breaker.slow_call_ms = "never", LONG, "from when on an attempt counts as slow, ended or not";
    breaker.slow_share = "0.8", NUMBER, "share of attempts that must be slow to open it";
    breaker.ramp_ms = "10000", LONG, "how long first attempts take to their full rate once it has closed";
};

/// The keys of each `tenants.NAME` of a policy.
pub(super) const TENANT: &[Key<TenantDraft>] = keys! { TenantDraft:
    weight = "1", WHOLE, "weight in the delay queue and in the shares of first attempts";
    amplification_cap = "the dependency's", NUMBER, "most attempts per operation, over ten seconds";
};

/// Keys that the design names and this version does not have: the section, and the path in it.
pub(super) const ABSENT: &[(&str, &str)] = &[("server", "state_dir"), ("", "redis"), ("", "credentials")];

/// Every key with its default and meaning, for people.
pub(crate) fn reference() -> String {
    let mut text = String::new();
    list(&mut text, "[server]", SERVER);
    list(&mut text, "[telemetry]", TELEMETRY);
    list(&mut text, "[defaults] and [dependencies.NAME]", POLICY);
    list(&mut text, "[defaults.tenants.NAME] and [dependencies.NAME.tenants.NAME]", TENANT);
    text
}

fn list<T>(text: &mut String, section: &str, keys: &[Key<T>]) {
    let _ = writeln!(text, "{section}");
    for Key { path, default, help, takes, .. } in keys {
        let _ = writeln!(text, "  {path:<24} {help} ({}; default: {default})", takes());
    }
}
