//! What a scenario expects: measures and the bounds on them.

use serde::{Deserialize, Serialize};

/// A figure that a bound can be put on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Operations started per second.
    OfferedPerS,
    /// Attempts per second that reached the dependency.
    PhysicalPerS,
    /// Retries per second that reached the dependency.
    ExecutedPerS,
    /// The most of them in one second.
    ExecutedWorstS,
    /// Attempts per second that failed, could be retried, and were not the operation's last.
    WantedPerS,
    /// Attempts per operation.
    Amplification,
    /// Share of first attempts that succeeded.
    FirstSuccess,
    /// Share of operations that succeeded.
    OperationSuccess,
    /// Share of operations with a failed first attempt that succeeded after all.
    RecoveryRate,
    /// Share of attempts that failed, whatever the cause.
    ErrorShare,
    /// The largest error share of any five seconds.
    ErrorShareWorst,
    /// Share of attempts that failed for another cause than the dependency's own failure share: refused by
    /// the account limit or a full queue, or timed out.
    InflictedShare,
    /// The largest such share of any five seconds.
    InflictedShareWorst,
    /// Operations that sent no attempt at all.
    UnsentOperations,
}

impl Measure {
    /// Every measure.
    pub const ALL: [Self; 14] = [
        Self::OfferedPerS,
        Self::PhysicalPerS,
        Self::ExecutedPerS,
        Self::ExecutedWorstS,
        Self::WantedPerS,
        Self::Amplification,
        Self::FirstSuccess,
        Self::OperationSuccess,
        Self::RecoveryRate,
        Self::ErrorShare,
        Self::ErrorShareWorst,
        Self::InflictedShare,
        Self::InflictedShareWorst,
        Self::UnsentOperations,
    ];

    /// The word that stands for it in scenarios and reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OfferedPerS => "offered_per_s",
            Self::PhysicalPerS => "physical_per_s",
            Self::ExecutedPerS => "executed_per_s",
            Self::ExecutedWorstS => "executed_worst_s",
            Self::WantedPerS => "wanted_per_s",
            Self::Amplification => "amplification",
            Self::FirstSuccess => "first_success",
            Self::OperationSuccess => "operation_success",
            Self::RecoveryRate => "recovery_rate",
            Self::ErrorShare => "error_share",
            Self::ErrorShareWorst => "error_share_worst",
            Self::InflictedShare => "inflicted_share",
            Self::InflictedShareWorst => "inflicted_share_worst",
            Self::UnsentOperations => "unsent_operations",
        }
    }

    /// Whether it is a share of a sample, so that a sampling error can be worked out.
    #[must_use]
    pub const fn is_share(self) -> bool {
        matches!(
            self,
            Self::FirstSuccess
                | Self::OperationSuccess
                | Self::RecoveryRate
                | Self::ErrorShare
                | Self::ErrorShareWorst
                | Self::InflictedShare
                | Self::InflictedShareWorst
        )
    }
}

/// A bound on a measure, over the whole run or a part of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Bound {
    /// No less than this.
    pub at_least: Option<f64>,
    /// No more than this.
    pub at_most: Option<f64>,
    /// Widens the bound of a share by so many standard errors of its sample.
    pub sigmas: f64,
    /// Leave out what was before, in whole seconds.
    pub from_s: Option<u64>,
    /// Leave out what came after, in whole seconds.
    pub until_s: Option<u64>,
}
