//! A scenario: one dependency, one fleet, what happens to them, and what is expected of each way of retrying.
//!
//! Scenarios are TOML. A key that nobody reads is an error that names its place, because a misspelt limit
//! that is silently ignored makes a load test prove the wrong thing.

mod check;
mod dependency;
mod expect;
mod source;
mod traffic;
mod way;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use dependency::{Account, Dependency, Phase, Spread};
pub use expect::{Bound, Measure};
pub use source::{DRILLS, Embedded, STORMS, ScenarioError, embedded, load, parse};
pub use traffic::{Above, Arrival, Assignment, Pacing, Tenant, Traffic};
pub use way::Way;

/// A whole scenario.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Short name, as in its file's name.
    pub name: String,
    /// What it shows, in a sentence or two.
    pub about: String,
    /// How long operations keep arriving, in seconds.
    pub duration_s: u64,
    /// Fixes every random draw of the dependency and of the arrivals.
    #[serde(default = "one")]
    pub seed: u64,
    /// The fleet's operations.
    pub traffic: Traffic,
    /// What they call.
    pub dependency: Dependency,
    /// The retries of the way `local`.
    #[serde(default)]
    pub local: LocalRetries,
    /// The dependency's policy in the server of the way `damper`: the keys of `[dependencies.NAME]`.
    #[serde(default)]
    pub damper: toml::Table,
    /// What happens to the server of the way `damper`.
    #[serde(default)]
    pub events: Vec<Event>,
    /// How it is run in virtual time; storms take no notice of it.
    #[serde(default)]
    pub drill: Drill,
    /// What must hold: way, then measure, then bound.
    #[serde(default)]
    pub expect: BTreeMap<Way, BTreeMap<Measure, Bound>>,
}

const fn one() -> u64 {
    1
}

/// The retries of one client that knows nothing of the others. The defaults are what a careful-looking wrapper
/// does: four attempts, exponential backoff, full jitter, and no notice of Retry-After.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LocalRetries {
    /// Attempts of one operation, the first included.
    pub max_attempts: u32,
    /// Backoff before the first retry, in milliseconds.
    pub base_ms: u64,
    /// What each further retry multiplies it by.
    pub factor: f64,
    /// Longest backoff, in milliseconds.
    pub cap_ms: u64,
    /// Whether the backoff is drawn between zero and its value.
    pub jitter: bool,
    /// Whether Retry-After is a floor under the backoff.
    pub honour_retry_after: bool,
}

impl Default for LocalRetries {
    fn default() -> Self {
        Self {
            max_attempts: 4,
            base_ms: 100,
            factor: 2.0,
            cap_ms: 2000,
            jitter: true,
            honour_retry_after: false,
        }
    }
}

/// How a scenario is run in virtual time.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Drill {
    /// Which ways are compared.
    pub ways: Vec<Way>,
    /// Whether it belongs to the short check, which comes with every test run.
    pub short: bool,
    /// How many seeds the expectations have to hold for, from the scenario's own on.
    pub seeds: u64,
    /// Fleets of these sizes, one after the other, in place of `traffic.clients`.
    pub clients: Vec<u64>,
    /// How long a message between a client and the server takes, each way, in milliseconds.
    pub latency_ms: u64,
    /// Share of messages that are lost.
    pub loss: f64,
    /// Whether the rules of peers wait before a retry as their originals do.
    pub peer_backoff: bool,
    /// When the trouble is over, in seconds: from then on the time to recover counts.
    pub over_s: Option<u64>,
}

impl Default for Drill {
    fn default() -> Self {
        Self {
            ways: Way::ALL.to_vec(),
            short: false,
            seeds: 1,
            clients: Vec::new(),
            latency_ms: 1,
            loss: 0.0,
            peer_backoff: true,
            over_s: None,
        }
    }
}

/// Something that happens to the server.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    /// When, in seconds.
    pub at_s: f64,
    /// What.
    pub action: Action,
}

/// What can happen to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// It dies without a word: connections break, nothing listens.
    KillServer,
    /// It starts on the same address, remembering nothing.
    StartServer,
}

impl Action {
    /// The word that stands for it in scenarios and reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::KillServer => "kill_server",
            Self::StartServer => "start_server",
        }
    }
}
