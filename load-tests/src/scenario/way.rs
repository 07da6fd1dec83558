//! The ways of retrying.

use serde::{Deserialize, Serialize};

/// How the fleet retries. All but the last are rules that each client follows by itself; `crate::ways` says what
/// each does.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "snake_case")]
#[clap(rename_all = "snake_case")]
pub enum Way {
    /// Not at all.
    None,
    /// Some attempts, one right after the other.
    Fixed,
    /// Each client for itself: some attempts, exponential backoff, jitter.
    Local,
    /// The budget of Finagle and of Linkerd's service profiles.
    Finagle,
    /// gRPC's retry throttling.
    Grpc,
    /// Envoy's retry budget.
    Envoy,
    /// The standard mode of the AWS SDKs, version 2.0.
    #[serde(rename = "aws_2_0")]
    #[value(name = "aws_2_0")]
    Aws20,
    /// The standard mode of the AWS SDKs, version 2.1.
    #[serde(rename = "aws_2_1")]
    #[value(name = "aws_2_1")]
    Aws21,
    /// The per-client retry ratio of the SRE book.
    Sre,
    /// The same with the book's adaptive throttling in front of it.
    SreAdaptive,
    /// A breaker in each client.
    Breaker,
    /// A token bucket in each client.
    Bucket,
    /// One token bucket for the fleet, with nothing else to it.
    Shared,
    /// Through damper.
    Damper,
}

impl Way {
    /// All ways, in the order in which they run.
    pub const ALL: [Self; 14] = [
        Self::None,
        Self::Fixed,
        Self::Local,
        Self::Finagle,
        Self::Grpc,
        Self::Envoy,
        Self::Aws20,
        Self::Aws21,
        Self::Sre,
        Self::SreAdaptive,
        Self::Breaker,
        Self::Bucket,
        Self::Shared,
        Self::Damper,
    ];

    /// The ways of a storm unless told otherwise.
    pub const STORM: [Self; 3] = [Self::None, Self::Local, Self::Damper];

    /// The word that stands for it in scenarios and reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Fixed => "fixed",
            Self::Local => "local",
            Self::Finagle => "finagle",
            Self::Grpc => "grpc",
            Self::Envoy => "envoy",
            Self::Aws20 => "aws_2_0",
            Self::Aws21 => "aws_2_1",
            Self::Sre => "sre",
            Self::SreAdaptive => "sre_adaptive",
            Self::Breaker => "breaker",
            Self::Bucket => "bucket",
            Self::Shared => "shared",
            Self::Damper => "damper",
        }
    }

    /// What it is, in a few words.
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            Self::None => "no retries",
            Self::Fixed => "retries at once, without backoff",
            Self::Local => "each client retries by itself",
            Self::Finagle => "each client has the budget of Finagle and Linkerd",
            Self::Grpc => "each client has gRPC's retry throttling",
            Self::Envoy => "each client has Envoy's retry budget",
            Self::Aws20 => "each client has the AWS SDKs' standard mode 2.0",
            Self::Aws21 => "each client has the AWS SDKs' standard mode 2.1",
            Self::Sre => "each client keeps retries below a tenth of its requests",
            Self::SreAdaptive => "the same, and requests are throttled by their success",
            Self::Breaker => "each client stops retrying when a tenth of its attempts fail",
            Self::Bucket => "each client has a token bucket",
            Self::Shared => "one token bucket for the fleet",
            Self::Damper => "retries from damper's shared budget",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_has_the_same_name_everywhere() {
        for way in Way::ALL {
            let in_scenarios = serde_json::to_value(way).unwrap();
            let on_the_command_line = clap::ValueEnum::to_possible_value(&way).unwrap();
            assert_eq!((in_scenarios, on_the_command_line.get_name()), (way.as_str().into(), way.as_str()));
        }
        assert_eq!(Way::ALL.len(), <Way as clap::ValueEnum>::value_variants().len());
    }
}
