//! `GET /v1/watch`: server-sent events. `snapshot` comes first, then changes as they happen.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{BreakerView, PolicyView};

/// The names of the events.
pub mod event {
    /// [`Snapshot`](super::Snapshot): everything that the watcher asked for.
    pub const SNAPSHOT: &str = "snapshot";
    /// [`WatchBreaker`](super::WatchBreaker): a breaker changed its state.
    pub const BREAKER: &str = "breaker";
    /// [`WatchDependency`](super::WatchDependency): a hold or a policy changed, or it is new or was forgotten, which
    /// leaves a closed breaker of a higher version.
    pub const DEPENDENCY: &str = "dependency";
    /// [`Bye`](super::Bye): the server is going away.
    pub const BYE: &str = "bye";
}

/// The first event of a stream, and the one that follows a gap.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Snapshot {
    /// This life of the server's counters.
    pub epoch: String,
    /// Every dependency that the watcher asked for.
    #[serde(default)]
    pub dependencies: BTreeMap<String, WatchDependency>,
}

/// One dependency as its watchers see it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct WatchDependency {
    /// Its name.
    pub dependency: String,
    /// The breaker.
    pub breaker: BreakerView,
    /// Holds by tenant: no retry for so long, in milliseconds. Only tenants that the watcher may see.
    pub holds_ms: BTreeMap<String, u64>,
    /// The policy as far as clients carry it out.
    pub policy: PolicyView,
}

/// A breaker changed its state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WatchBreaker {
    /// The dependency.
    pub dependency: String,
    /// Whose breaker, where tenants have their own; absent where it is everyone's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The breaker after the change.
    pub breaker: BreakerView,
}

/// The server is going away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Bye {
    /// Spread reconnects over this span, in milliseconds.
    pub reconnect_within_ms: u64,
}
