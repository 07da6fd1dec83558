//! The operations of a fleet.

use std::time::Duration;

use serde::Deserialize;

/// The operations of a fleet.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Traffic {
    /// Logical operations per second, all clients together.
    pub arrival_per_s: f64,
    /// Other rates, each from its moment on.
    #[serde(default)]
    pub phases: Vec<Arrival>,
    /// How they are spaced.
    #[serde(default)]
    pub pacing: Pacing,
    /// Client instances; to be left out where tenants say how many they have.
    #[serde(default)]
    pub clients: Option<u64>,
    /// Which client an operation falls to.
    #[serde(default)]
    pub assignment: Assignment,
    /// Who the clients belong to. Without tenants all of them belong to one.
    #[serde(default)]
    pub tenants: Vec<Tenant>,
    /// Share of operations that fail whatever is done: each attempt of them ends with the same 503.
    #[serde(default)]
    pub poison_share: f64,
    /// Whether a layer above each client retries too, and whether it says so.
    #[serde(default)]
    pub above: Above,
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

/// A change of the arrival rate.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arrival {
    /// When it starts, in seconds.
    pub from_s: f64,
    /// Operations per second from then on.
    pub arrival_per_s: f64,
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

/// Which client an operation falls to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Assignment {
    /// They take turns.
    #[default]
    InTurn,
    /// Any of them, by chance.
    Random,
}

/// Tenants of one kind. Operations fall to them by chance, in proportion to their `load`; `clients` says how
/// many each has.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tenant {
    /// Its name; followed by a number if there are several: `quiet-0`, `quiet-1`.
    pub name: String,
    /// How many of this kind.
    #[serde(default = "one")]
    pub count: u64,
    /// Its part of the arrivals, in proportion to the others'.
    #[serde(default = "unit")]
    pub load: f64,
    /// Client instances of each.
    #[serde(default = "one")]
    pub clients: u64,
    /// Sends nothing before, in seconds.
    #[serde(default)]
    pub from_s: f64,
}

impl Tenant {
    /// The names of all tenants of this kind.
    pub fn names(&self) -> impl Iterator<Item = String> {
        let name =
            |number| if self.count == 1 { self.name.clone() } else { format!("{}-{number}", self.name) };
        (0..self.count).map(name)
    }
}

const fn one() -> u64 {
    1
}

const fn unit() -> f64 {
    1.0
}

/// A layer above each client that makes three attempts of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Above {
    /// There is none.
    #[default]
    Nobody,
    /// One with damper, which passes its context on.
    Damper,
    /// One that knows nothing of damper, and numbers its attempts in a header of its own.
    Foreign,
}
