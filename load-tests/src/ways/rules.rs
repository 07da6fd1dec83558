//! The rules by which clients retry that know nothing of each other: what the budgets in use today do, from their
//! sources and specifications. `docs/drill.md` says where each model is weaker than the original.

mod aws;
mod backoff;
mod breaker;
mod bucket;
mod envoy;
mod finagle;
mod grpc;
mod sre;
mod window;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::measure::Outcome;
use crate::scenario::{Scenario, Way};

pub use aws::Aws;
pub use backoff::{Backoff, Backoffs};
pub use breaker::Breaker;
pub use bucket::Bucket;
pub use envoy::Envoy;
pub use finagle::Finagle;
pub use grpc::Grpc;
pub use sre::Sre;

/// When something happens, since the run's start, and a draw from [0, 1) for it.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// When.
    pub now: Duration,
    /// The draw.
    pub random: f64,
}

/// A rule about retries, apart from how attempts are made.
pub trait Rule: fmt::Debug + Send {
    /// A first attempt is about to start; false refuses it. Default: it may.
    fn first(&mut self, _: Moment) -> bool {
        true
    }

    /// An attempt has ended. Default: this changes nothing.
    fn ended(&mut self, _: Moment, _attempt: u32, _: Outcome) {}

    /// Whether the attempt after `attempt` may be made, and after what wait.
    fn retry(&mut self, moment: Moment, attempt: u32, outcome: Outcome) -> Option<Duration>;

    /// A retry that was allowed will not be made. Default: this changes nothing.
    fn given_up(&mut self) {}

    /// An operation whose first attempt was let through is over. Default: this changes nothing.
    fn over(&mut self) {}
}

/// Where each client of a way gets its rule from.
#[derive(Debug)]
pub enum Source {
    /// Each has its own.
    Each(Way, Backoffs, Backoff),
    /// All have the same.
    Shared(Arc<Mutex<dyn Rule>>),
}

impl Source {
    /// The rules of a way that is not damper's.
    #[must_use]
    pub fn of(scenario: &Scenario, way: Way) -> Self {
        let backoffs = if scenario.drill.peer_backoff { Backoffs::Own } else { Backoffs::None };
        let local = Backoff::of(&scenario.local);
        match way {
            Way::Shared => Self::Shared(Arc::new(Mutex::new(Bucket::shared(backoffs.or(local))))),
            _ => Self::Each(way, backoffs, local),
        }
    }

    /// The rule of one client.
    #[must_use]
    pub fn rule(&self) -> Arc<Mutex<dyn Rule>> {
        match self {
            Self::Shared(rule) => Arc::clone(rule),
            Self::Each(way, backoffs, local) => each(*way, *backoffs, *local),
        }
    }
}

fn each(way: Way, backoffs: Backoffs, local: Backoff) -> Arc<Mutex<dyn Rule>> {
    match way {
        Way::Finagle => Arc::new(Mutex::new(Finagle::default())),
        Way::Grpc => Arc::new(Mutex::new(Grpc::new(backoffs.or(Backoff::GRPC)))),
        Way::Envoy => Arc::new(Mutex::new(Envoy::new(backoffs.or(Backoff::ENVOY)))),
        Way::Aws20 => Arc::new(Mutex::new(Aws::v2_0(backoffs))),
        Way::Aws21 => Arc::new(Mutex::new(Aws::v2_1(backoffs))),
        Way::Sre => Arc::new(Mutex::new(Sre::ratio(backoffs.or(local)))),
        Way::SreAdaptive => Arc::new(Mutex::new(Sre::adaptive(backoffs.or(local)))),
        Way::Breaker => Arc::new(Mutex::new(Breaker::new(backoffs.or(local)))),
        Way::Bucket | Way::Shared => Arc::new(Mutex::new(Bucket::own(backoffs.or(local)))),
        Way::Local => Arc::new(Mutex::new(local)),
        // The first two make no use of a wait, and damper's clients none of a rule.
        Way::None | Way::Fixed | Way::Damper => Arc::new(Mutex::new(Backoff::NONE)),
    }
}

/// Attempts that a way's policy allows to an operation.
#[must_use]
pub fn attempts_of(scenario: &Scenario, way: Way) -> u32 {
    let policy = || scenario.damper.get("max_attempts")?.as_integer()?.try_into().ok();
    match way {
        Way::None => 1,
        // Their defaults; whoever allows fewer gets fewer.
        Way::Aws20 | Way::Aws21 | Way::Sre | Way::SreAdaptive => scenario.local.max_attempts.min(3),
        Way::Grpc => scenario.local.max_attempts.min(5),
        Way::Damper => policy().unwrap_or(4),
        _ => scenario.local.max_attempts,
    }
}
