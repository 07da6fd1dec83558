//! What clients report, and what they are told in return.

use crate::histogram::BUCKETS;
use crate::{BreakerState, Class, FirstLease, MicrosPerSecond, Moment, Policy, Span, TokenId};
use std::sync::Arc;

/// Declares the counts of [`Totals`] once, with the field-wise operations on them.
macro_rules! totals {
    ($($(#[$meta:meta])* $field:ident,)+; $($(#[$list_meta:meta])* $list:ident: $length:expr,)+) => {
        /// Counts of operations and attempts; cumulative in a report, a difference in a window.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Totals {
            $($(#[$meta])* pub $field: u64,)+
            $($(#[$list_meta])* pub $list: [u64; $length],)+
        }

        impl Totals {
            /// Both together.
            pub fn add(&mut self, other: &Self) {
                $(self.$field = self.$field.saturating_add(other.$field);)+
                $(for (mine, theirs) in self.$list.iter_mut().zip(other.$list) {
                    *mine = mine.saturating_add(theirs);
                })+
            }

            /// What `self` has above `before`, count by count; never negative.
            #[must_use]
            pub fn above(&self, before: &Self) -> Self {
                let mut difference = *self;
                $(difference.$field = self.$field.saturating_sub(before.$field);)+
                $(for (mine, theirs) in difference.$list.iter_mut().zip(before.$list) {
                    *mine = mine.saturating_sub(theirs);
                })+
                difference
            }

            /// The larger of both, count by count: what is known of counts that never fall.
            #[must_use]
            pub fn max(&self, other: &Self) -> Self {
                let mut larger = *self;
                $(larger.$field = self.$field.max(other.$field);)+
                $(for (mine, theirs) in larger.$list.iter_mut().zip(other.$list) {
                    *mine = (*mine).max(theirs);
                })+
                larger
            }
        }
    };
}

totals! {
    /// Operations started: what users intended.
    logical,
    /// Attempts started: load on the dependency.
    physical,
    /// Operations that succeeded.
    success,
    /// Failed attempts of the caller's own making.
    source_application,
    /// Failed attempts of the platform's or the network's making.
    source_runtime,
    /// Failed attempts whose handler returned an error.
    reason_handler_error,
    /// Failed attempts that took too long.
    reason_timeout,
    /// Failed attempts that found no free slot.
    reason_no_resources,
    /// Operations whose first attempt failed.
    affected,
    /// Operations that succeeded after at least one failure.
    recovered,
    /// Operations that failed after their last attempt.
    exhausted,
    /// Retries that clients shed themselves.
    shed,
    /// Retries that clients gave up because their deadline had passed.
    expired,
    /// Retries granted by emergency limiters.
    emergency,
    /// Operations whose caller went away.
    abandoned,
    /// Operations that ended with an unknown effect.
    ambiguous,
    /// Extra attempts that another layer was seen to make.
    foreign,
    /// Attempts that were overdue: still running, or ended, past the policy's `slow_call_ms`. Counted at the
    /// moment at which they pass it.
    slow,;
    /// Failed attempts by class, in the order of [`Class::ALL`].
    failures: Class::ALL.len(),
    /// How long attempts took.
    latency: BUCKETS,
    /// How long operations took from their first failure to their success.
    recovery: BUCKETS,
}

impl Totals {
    /// Failed attempts of `class`.
    #[must_use]
    pub fn failed(&self, class: Class) -> u64 {
        self.failures.get(class.index()).copied().unwrap_or(0)
    }

    /// Failed attempts of every class.
    #[must_use]
    pub fn failed_attempts(&self) -> u64 {
        self.failures.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Operations whose first attempt succeeded: every operation succeeds at most once.
    #[must_use]
    pub const fn first_successes(&self) -> u64 {
        self.success.saturating_sub(self.recovered)
    }

    /// Attempts after the first.
    #[must_use]
    pub const fn retries(&self) -> u64 {
        self.physical.saturating_sub(self.logical)
    }
}

/// One client's periodic report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The client and its incarnation, as one key.
    pub client: Box<str>,
    /// Who spends.
    pub tenant: Box<str>,
    /// Counts since the incarnation began.
    pub totals: Totals,
    /// First attempts per second that the client would like to start.
    pub wants_first: MicrosPerSecond,
    /// First attempts per second of the lease that it holds.
    pub has_first: MicrosPerSecond,
    /// The totals that the client knows to be counted: the baseline if its record is not here.
    pub acked: Totals,
    /// The latest breaker version that the client saw.
    pub breaker_version: u64,
    /// The state that belonged to it.
    pub breaker_state: Option<BreakerState>,
    /// How its probes ended; [`None`] settles them by the totals.
    pub probes: Option<Vec<(TokenId, bool)>>,
}

/// What a client is told in return.
#[derive(Clone, Debug)]
pub struct Advice {
    /// Its lease of first attempts; [`None`] while they are not limited.
    pub first: Option<FirstLease>,
    /// Whether the dependency is too young to know who holds what.
    pub learning: bool,
    /// Its share of retries while no server answers.
    pub emergency_per_s: MicrosPerSecond,
    /// Whether retries are throttled.
    pub throttled: bool,
    /// The breaker.
    pub breaker: BreakerView,
    /// No retry of its tenant for so long.
    pub hold: Span,
    /// Ask nothing for so long: the delay queue is full.
    pub suppress: Span,
    /// The policy in force.
    pub policy: Arc<Policy>,
}

/// The breaker for people and clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerView {
    /// The state.
    pub state: BreakerState,
    /// Rises with every transition.
    pub version: u64,
    /// Since when it is in this state.
    pub since: Moment,
    /// How long it stays open yet; zero unless open.
    pub open_for: Span,
    /// Probes out.
    pub probes_out: u32,
}
