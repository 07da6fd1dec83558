//! The dependency of a scenario.

use std::time::Duration;

use serde::Deserialize;

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
    /// How this time is spread.
    #[serde(default)]
    pub latency: Spread,
    /// What each attempt that is under way adds to this time, in milliseconds: it collapses under concurrency.
    #[serde(default)]
    pub collapse_ms: u64,
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

/// How a time is spread around its mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Spread {
    /// Not at all.
    #[default]
    Fixed,
    /// Exponentially.
    Exponential,
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    /// When it starts, in seconds.
    pub from_s: f64,
    /// Share of attempts that fail with 503, each independently of the others.
    #[serde(default)]
    pub failure_share: f64,
    /// Share of attempts that succeed with a wrong answer.
    #[serde(default)]
    pub wrong_share: f64,
    /// In place of the dependency's `capacity_per_s`.
    #[serde(default)]
    pub capacity_per_s: Option<f64>,
    /// In place of the dependency's `latency_ms`.
    #[serde(default)]
    pub latency_ms: Option<u64>,
}

impl Dependency {
    /// The phase that is in force `at` so long after the start.
    #[must_use]
    pub fn phase(&self, at: Duration) -> Phase {
        let at_s = at.as_secs_f64();
        self.phases.iter().rev().find(|phase| phase.from_s <= at_s).copied().unwrap_or_default()
    }
}
