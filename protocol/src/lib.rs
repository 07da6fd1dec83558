//! What damper's clients and servers say to each other: the wire types, and nothing else.
//!
//! JSON over HTTP. Durations are integers in milliseconds and always relative, so no two clocks have to
//! agree; rates are numbers per second. Unknown fields are ignored on both sides, which is what lets old
//! clients talk to new servers. These are not the domain types: the core has its own.

mod state;
mod sync;
mod tokens;
mod vocabulary;
mod watch;

pub mod admin;
pub mod plan;
pub mod problem;

pub use state::{
    BreakerDetail, DecisionCounts, DependencyList, DependencyState, PoolState, QueueState, RefusalState,
    TenantState, Window,
};
pub use sync::{
    BreakerView, ClientIdentity, Emergency, FailureCounts, FirstAttempts, PolicyView, ProbeResult,
    ReasonCounts, SourceCounts, SyncDependency, SyncRequest, SyncResponse, SyncedDependency, Totals,
};
pub use tokens::{
    AskRequest, AskResponse, BatchRequest, BatchResponse, BreakerVersion, FailureReport, ReturnRequest,
    ReturnResponse, WouldHaveBeen,
};
pub use vocabulary::{
    AskKind, BreakerState, Decision, Dispatch, FailMode, FailureClass, FailureReason, FailureSource,
    ForcedBreaker, Mode, OnOpen, Priority, Reason, RecoveryMode, RetryOwner,
};
pub use watch::{Bye, Snapshot, WatchBreaker, WatchDependency, event};

/// Where a server listens and a client looks for it unless told otherwise.
pub const DEFAULT_ADDRESS: &str = "127.0.0.1:7117";

/// Longest dependency, tenant, operation, request or client name, in bytes of UTF-8.
pub const MAX_NAME_BYTES: usize = 128;

/// Most asks in one `POST /v1/tokens/batch`.
pub const MAX_BATCH_ASKS: usize = 256;

/// Longest duration that a message may carry: 366 days in milliseconds.
pub const MAX_DURATION_MS: u64 = 366 * 24 * 60 * 60 * 1000;

/// Says why `name` cannot be a name, or `None` if it can: 1 to [`MAX_NAME_BYTES`] bytes of printable text.
///
/// Printable means no control characters and no surrounding white space; nothing is normalised or cut, so
/// two different names stay different everywhere.
#[must_use]
pub fn name_fault(name: &str) -> Option<&'static str> {
    if name.is_empty() {
        Some("is empty; give 1 to 128 bytes of printable text")
    } else if name.len() > MAX_NAME_BYTES {
        Some("is longer than 128 bytes")
    } else if name.chars().any(char::is_control) {
        Some("has a control character")
    } else if name.trim() != name {
        Some("starts or ends with white space")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::name_fault;

    #[test]
    fn names_are_1_to_128_bytes_of_printable_text() {
        for good in ["a", "payments", "a/b", "%2F", "a:b", "Ωμέγα", "a b", &"x".repeat(128)] {
            assert_eq!(name_fault(good), None, "{good:?}");
        }
        for bad in ["", "a\0b", "a\nb", " a", "a ", "\u{85}", &"x".repeat(129), &"é".repeat(65)] {
            assert!(name_fault(bad).is_some(), "{bad:?}");
        }
    }
}
