//! `POST /v1/sync`: cumulative totals up; allocations, breaker states and policy down.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{BreakerState, FailMode, Mode, OnOpen, RetryOwner};

/// Who syncs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ClientIdentity {
    /// Stable for one place in the fleet, such as a pod's name.
    pub id: String,
    /// New for every life of that place, so that its counters may start at zero again.
    pub incarnation: String,
    /// The service's name, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The client crate's version, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// One client's periodic report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SyncRequest {
    /// Who reports.
    pub client: ClientIdentity,
    /// Who spends; the credential's only tenant, or `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The server's epoch as this client last saw it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<String>,
    /// What is reported, by dependency.
    #[serde(default)]
    pub dependencies: BTreeMap<String, SyncDependency>,
}

/// One client's report about one dependency.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SyncDependency {
    /// First attempts per second that the client would like to start.
    #[serde(default)]
    pub wants_first_per_s: f64,
    /// First attempts per second of the lease that it holds.
    #[serde(default)]
    pub has_first_per_s: f64,
    /// Attempts started and not ended.
    #[serde(default)]
    pub in_flight: u64,
    /// The latest breaker version that the client has seen.
    #[serde(default)]
    pub breaker_version: u64,
    /// The state that belonged to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub breaker_state: Option<BreakerState>,
    /// Counts since the client's incarnation began.
    #[serde(default)]
    pub totals: Totals,
    /// The totals that the last answered sync carried: the baseline for a server that does not know this client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acked: Option<Totals>,
    /// How the probes that this client was granted ended. A client that leaves this out has its probes
    /// settled by its totals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probes: Option<Vec<ProbeResult>>,
}

/// How one probe of a half-open breaker ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ProbeResult {
    /// The probe's token.
    pub token: String,
    /// Whether the dependency answered as it should.
    pub success: bool,
}

/// Cumulative counts of one client incarnation for one dependency. Operations and attempts are counted when
/// they start, outcomes when they end; no count ever falls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct Totals {
    /// Operations started: what users intended.
    pub logical: u64,
    /// Attempts started: load on the dependency.
    pub physical: u64,
    /// Operations that succeeded.
    pub success: u64,
    /// Failed attempts by class.
    pub failures: FailureCounts,
    /// Failed attempts by source.
    pub sources: SourceCounts,
    /// Failed attempts by reason.
    pub reasons: ReasonCounts,
    /// Operations whose first attempt failed.
    pub affected: u64,
    /// Operations that succeeded after at least one failure.
    pub recovered: u64,
    /// Operations that failed after their last attempt.
    pub exhausted: u64,
    /// Retries shed by the client itself: suppressed, held, or behind an open breaker.
    pub shed: u64,
    /// Retries that the client gave up because their deadline had passed.
    pub expired: u64,
    /// Retries that the emergency limiter granted.
    pub emergency: u64,
    /// Operations whose caller went away.
    pub abandoned: u64,
    /// Operations that ended with an unknown effect.
    pub ambiguous: u64,
    /// Extra attempts that another layer was seen to make.
    pub foreign: u64,
    /// Attempts that were overdue: still running, or ended, past the policy's `slow_call_ms`. Counted at the
    /// moment at which they pass it.
    pub slow: u64,
    /// How long attempts took, as counts of at most 1, 2, 4 ... 65 536 ms, and of more: 18 numbers, of which
    /// trailing zeros may be left out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub latency: Vec<u64>,
    /// How long operations took from their first failure to their success, counted alike.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub recovery: Vec<u64>,
}

/// Failed attempts by [`FailureClass`](crate::FailureClass).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
#[expect(missing_docs, reason = "the fields are the words of FailureClass")]
pub struct FailureCounts {
    pub transient: u64,
    pub rate_limited: u64,
    pub invalid: u64,
    pub permission: u64,
    pub fatal: u64,
    pub semantic: u64,
}

/// Failed attempts by [`FailureSource`](crate::FailureSource).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
#[expect(missing_docs, reason = "the fields are the words of FailureSource")]
pub struct SourceCounts {
    pub application: u64,
    pub runtime: u64,
}

/// Failed attempts by [`FailureReason`](crate::FailureReason).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
#[expect(missing_docs, reason = "the fields are the words of FailureReason")]
pub struct ReasonCounts {
    pub handler_error: u64,
    pub timeout: u64,
    pub no_resources: u64,
}

/// The server's answer to a sync.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SyncResponse {
    /// This life of the server's counters. When it changes, the next sync carries `acked` as the baseline.
    pub epoch: String,
    /// Rises with every change of configuration.
    pub config_version: u64,
    /// How far the server's decisions can be trusted.
    #[serde(default)]
    pub mode: Mode,
    /// When to sync again, in milliseconds.
    pub next_sync_ms: u64,
    /// What the client may do, by dependency.
    #[serde(default)]
    pub dependencies: BTreeMap<String, SyncedDependency>,
}

/// What one client may do on one dependency.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct SyncedDependency {
    /// The lease of first attempts; absent where they are not limited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first: Option<FirstAttempts>,
    /// This client's share of retries while no server answers.
    pub emergency: Emergency,
    /// The breaker.
    pub breaker: BreakerView,
    /// No retry of this tenant for so long, in milliseconds: a Retry-After that some client was given.
    pub hold_ms: u64,
    /// Ask nothing for so long and shed locally, in milliseconds.
    pub suppress_ms: u64,
    /// The dependency's policy as far as clients carry it out.
    pub policy: PolicyView,
}

/// A leased rate of first attempts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FirstAttempts {
    /// Attempts per second.
    pub per_s: f64,
    /// Attempts that may start at once after a quiet while. Less than one is for a fleet that is held back: a client
    /// saves up no whole attempt, and starts anywhere between two, so that the fleet does not start as one.
    pub burst: f64,
    /// How long the lease lasts, in milliseconds.
    pub ttl_ms: u64,
    /// Attempts per second once the lease has ended without a server.
    pub safe_per_s: f64,
    /// How long that rate holds then, in milliseconds: where no capacity is known, first attempts are free again
    /// after it. Absent: until a server is back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub safe_for_ms: Option<u64>,
}

/// One client's share of retries while no server answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct Emergency {
    /// Retries per second.
    pub per_s: f64,
    /// Retries per recent successful first attempt.
    pub ratio: f64,
    /// Retries are throttled, because they were in vain or the dependency was overloaded. Without a server nobody
    /// hears of its recovery: the share fades away, as it does where a breaker was open.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub throttled: bool,
}

/// The breaker as clients need it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct BreakerView {
    /// The state.
    pub state: BreakerState,
    /// Rises with every transition.
    pub version: u64,
    /// How long it stays open yet, in milliseconds; 0 unless open.
    pub open_for_ms: u64,
}

/// The part of a policy that clients carry out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct PolicyView {
    /// Attempts of one operation, the first included.
    pub max_attempts: u32,
    /// Longest wait in the server's delay queue, in milliseconds.
    pub max_delay_ms: u64,
    /// What to do about retries while no server answers.
    pub fail_mode: FailMode,
    /// Which layer owns the retries.
    pub retry_owner: RetryOwner,
    /// What an open breaker stops.
    pub on_open: OnOpen,
    /// Decisions are made and counted, and everything is granted: clients refuse nothing themselves either.
    pub shadow: bool,
    /// From when on an attempt counts as slow, in milliseconds; absent where none does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slow_call_ms: Option<u64>,
}

impl Default for PolicyView {
    fn default() -> Self {
        Self {
            max_attempts: 4,
            max_delay_ms: 2000,
            fail_mode: FailMode::default(),
            retry_owner: RetryOwner::default(),
            on_open: OnOpen::default(),
            shadow: false,
            slow_call_ms: None,
        }
    }
}
