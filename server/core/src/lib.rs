//! The domain of damper: who may retry, and when.
//!
//! Everything here is a pure state machine. [`Dependency`] holds all that a decision about one dependency reads
//! or writes; commands go in with the present [`Moment`], decisions and the next wake-up come out. It owns no
//! clock, lock, task or socket, so reading, deciding and writing are one step, a lock held around it is the
//! whole concurrency story, and a simulator can drive it through years in a second.
//!
//! ```
//! use damper_core::{Asked, Dependency, Moment, Policy, Verdict};
//! # use damper_core::{Ask, Class, Dispatch, Failure, Kind, Priority, Span};
//! let mut payments = Dependency::new(Moment::ORIGIN, Policy::default().into(), 7);
//! let ask = Ask {
//!     request_id: None,
//!     tenant: "checkout".into(),
//!     kind: Kind::Retry,
//!     attempt: 2,
//!     failure: Some(Failure {
//!         class: Class::Transient,
//!         reason: None,
//!         dispatch: Dispatch::NotSent,
//!         do_not_retry: false,
//!         caller_rejected: false,
//!         retry_after: None,
//!     }),
//!     idempotent: true,
//!     recovery_mode: None,
//!     priority: Priority::Normal,
//!     cost: 1,
//!     deadline: Span::from_secs(2),
//!     earliest: Span::ZERO,
//!     expected: Span::from_millis(50),
//!     max_wait: Some(Span::ZERO),
//! };
//! let verdict = |asked| match asked {
//!     Ok(Asked::Decided(decision)) => decision.verdict,
//!     other => panic!("it does not wait: {other:?}"),
//! };
//! // A new pool starts with one second of its floor of 1/s, so the second ask finds it empty.
//! assert_eq!(verdict(payments.ask(Moment::ORIGIN, &ask)), Verdict::Granted);
//! assert_eq!(verdict(payments.ask(Moment::ORIGIN, &ask)), Verdict::Shed);
//! ```

mod allocation;
mod answers;
mod ask;
mod breaker;
mod dependency;
mod feed;
pub mod histogram;
mod jitter;
mod leases;
mod ledger;
#[cfg(all(test, damper_model))]
mod model_check;
pub mod plan;
mod policy;
mod pool;
mod queue;
mod refusals;
mod report;
mod ring;
mod snapshot;
mod tenant_counts;
mod tenants;
mod throttle;
mod units;
mod vocabulary;

pub use allocation::{FirstLease, LEARNS_FOR};
pub use ask::{Ask, AskFault, AskId, Asked, BreakerVersion, Decision, Failure, Grant, TokenId};
pub use breaker::Force;
pub use dependency::{Dependency, Transition};
pub use policy::{BreakerDraft, CostDraft, Policy, PolicyDraft, PolicyFault, RetryDraft, TenantDraft};
pub use report::{Advice, BreakerView, Report, Totals};
pub use snapshot::{
    DecisionCount, FirstSnapshot, PoolSnapshot, RefusalSnapshot, Snapshot, TenantSnapshot, TransitionCounts,
    Waits, WindowSnapshot,
};
pub use tenant_counts::{TenantCounts, TenantRow, TenantUsage};
pub use throttle::Cause;
pub use units::{MicroTokens, MicrosPerSecond, Moment, Ppm, Span};
pub use vocabulary::{
    BoundBy, BreakerCause, BreakerState, Class, Dispatch, FailMode, FailureReason, Kind, OnOpen, Priority,
    Reason, RecoveryMode, RetryOwner, Scope, Verdict,
};
