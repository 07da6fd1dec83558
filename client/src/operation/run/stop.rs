//! Why an operation stops.

use std::time::Duration;

use crate::StopReason;

/// Why an operation stops, and who said so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::operation) struct Stop {
    pub(super) reason: StopReason,
    pub(super) by_server: bool,
    /// When the server may say otherwise, if it said so.
    pub(super) again_in: Option<Duration>,
}

impl Stop {
    /// What the server refused.
    pub(super) fn refused(reason: StopReason, again_in_ms: Option<u64>) -> Self {
        Self { reason, by_server: true, again_in: again_in_ms.map(Duration::from_millis) }
    }

    /// Whether it will be over by itself.
    pub(super) fn passes(self) -> bool {
        use StopReason as Reason;
        let away = matches!(self.reason, Reason::FailClosed | Reason::CircuitOpen);
        let breaker = matches!(self.reason, Reason::BreakerOpen | Reason::BreakerHalfOpen);
        self.reason.is_refusal() || breaker || away
    }
}

impl From<StopReason> for Stop {
    fn from(reason: StopReason) -> Self {
        Self { reason, by_server: false, again_in: None }
    }
}
