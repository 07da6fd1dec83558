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
    /// Attempts per operation in the worst second.
    AmplificationWorstS,
    /// Share of the operations started that succeeded, whenever they did.
    Fulfilled,
    /// Seconds from the end of the trouble (`drill.over_s`) to the first of ten seconds in which 95 % of the
    /// operations started succeed. Drills only, as the rest.
    RecoveryS,
    /// The same, less what it takes the way `none` with the same seed.
    RecoveryBeyondNoneS,
    /// How far fleets of different sizes are apart in attempts per operation.
    AmplificationSpread,
    /// The least that any tenant but the first got in any ten seconds, by an even share of all retries.
    FairShareLeast,
    /// Most attempts that arrived while the breaker was half-open, once.
    HalfOpenWorst,
    /// Attempts in the first second after the breaker closed for good, by those of a second before it opened.
    FirstAfterClose,
    /// Seconds from then to the first with 95 % of the attempts before it opened.
    RampS,
    /// Observed by expected amplification in the server's last minute.
    ObservedToExpected,
}

impl Measure {
    /// Every measure.
    pub const ALL: [Self; 24] = [
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
        Self::AmplificationWorstS,
        Self::Fulfilled,
        Self::RecoveryS,
        Self::RecoveryBeyondNoneS,
        Self::AmplificationSpread,
        Self::FairShareLeast,
        Self::HalfOpenWorst,
        Self::FirstAfterClose,
        Self::RampS,
        Self::ObservedToExpected,
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
            Self::AmplificationWorstS => "amplification_worst_s",
            Self::Fulfilled => "fulfilled",
            Self::RecoveryS => "recovery_s",
            Self::RecoveryBeyondNoneS => "recovery_beyond_none_s",
            Self::AmplificationSpread => "amplification_spread",
            Self::FairShareLeast => "fair_share_least",
            Self::HalfOpenWorst => "half_open_worst",
            Self::FirstAfterClose => "first_after_close",
            Self::RampS => "ramp_s",
            Self::ObservedToExpected => "observed_to_expected",
        }
    }

    /// Whether only drills measure it.
    #[must_use]
    pub const fn is_of_drills(self) -> bool {
        matches!(
            self,
            Self::RecoveryS
                | Self::RecoveryBeyondNoneS
                | Self::AmplificationSpread
                | Self::FairShareLeast
                | Self::HalfOpenWorst
                | Self::FirstAfterClose
                | Self::RampS
                | Self::ObservedToExpected
        )
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
                | Self::Fulfilled
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
