//! A scenario: one dependency, one fleet, what happens to them, and what is expected of each way of retrying.
//!
//! Scenarios are TOML. A key that nobody reads is an error that names its place, because a misspelt limit
//! that is silently ignored makes a load test prove the wrong thing.

mod check;
mod expect;
mod source;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use expect::{Bound, Measure};
pub use source::{EMBEDDED, ScenarioError, load, parse};

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
    /// What must hold: way, then measure, then bound.
    #[serde(default)]
    pub expect: BTreeMap<Way, BTreeMap<Measure, Bound>>,
}

const fn one() -> u64 {
    1
}

/// How the fleet retries.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// Not at all.
    None,
    /// Each client for itself: some attempts, exponential backoff, jitter.
    Local,
    /// Through damper.
    Damper,
}

impl Way {
    /// All ways, in the order in which they run.
    pub const ALL: [Self; 3] = [Self::None, Self::Local, Self::Damper];

    /// The word that stands for it in scenarios and reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Local => "local",
            Self::Damper => "damper",
        }
    }
}

/// The operations of a fleet.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Traffic {
    /// Logical operations per second, all clients together.
    pub arrival_per_s: f64,
    /// How they are spaced.
    #[serde(default)]
    pub pacing: Pacing,
    /// Client instances that take turns.
    pub clients: u64,
    /// Time for a whole operation, all attempts and waits included, in milliseconds.
    pub deadline_ms: u64,
    /// Time for one attempt, in milliseconds.
    pub attempt_timeout_ms: u64,
}

impl Traffic {
    /// Time for a whole operation.
    #[must_use]
    pub const fn deadline(&self) -> Duration {
        Duration::from_millis(self.deadline_ms)
    }

    /// Time for one attempt.
    #[must_use]
    pub const fn attempt_timeout(&self) -> Duration {
        Duration::from_millis(self.attempt_timeout_ms)
    }
}

/// How arrivals are spaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pacing {
    /// Evenly.
    #[default]
    Even,
    /// With exponential gaps.
    Poisson,
}

/// The flaky dependency; [`crate::flaky`] says how it behaves.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dependency {
    /// Its name in the server.
    pub name: String,
    /// Attempts per second that it can work off.
    pub capacity_per_s: f64,
    /// Attempts that may wait; one more is refused with 503 at once.
    pub queue_limit: u64,
    /// Time that an attempt takes beside its turn in the queue, in milliseconds.
    pub latency_ms: u64,
    /// What a refusal (429, or 503 of a full queue) costs, as a share of an attempt's work.
    #[serde(default)]
    pub refusal_cost: f64,
    /// The account's rate limit.
    #[serde(default)]
    pub account: Option<Account>,
    /// What changes and when; each phase lasts until the next one starts.
    #[serde(default)]
    pub phases: Vec<Phase>,
}

/// A rate limit as providers of metered APIs have it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Account {
    /// Requests per second.
    pub per_s: f64,
    /// Length of the sliding window over which they are counted, in milliseconds.
    #[serde(default = "thousand")]
    pub window_ms: u64,
    /// Whether a request answered 429 counts too.
    #[serde(default)]
    pub counts_refused: bool,
}

const fn thousand() -> u64 {
    1000
}

/// A stretch of time in the dependency's life.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    /// When it starts, in seconds.
    pub from_s: f64,
    /// Share of attempts that fail with 503, each independently of the others.
    pub failure_share: f64,
}

impl Dependency {
    /// The failure share that is in force `at` so long after the start.
    #[must_use]
    pub fn failure_share(&self, at: Duration) -> f64 {
        let at_s = at.as_secs_f64();
        let current = self.phases.iter().rev().find(|phase| phase.from_s <= at_s);
        current.map_or(0.0, |phase| phase.failure_share)
    }
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
