//! Spans of an operation and its attempts, for whoever exports them. Nothing is kept if nobody is interested.

use tracing::{Span, field::Empty, info_span};

use crate::StopReason;

/// The spans of one operation.
pub(super) struct Spans {
    operation: Span,
    attempt: Span,
}

impl Spans {
    /// `None` if no subscriber is interested.
    pub(super) fn start(dependency: &str, operation: &str) -> Option<Box<Self>> {
        let span = info_span!(
            target: "damper",
            "operation",
            damper.dependency = dependency,
            damper.operation = operation,
            damper.reason = Empty,
        );
        (!span.is_disabled()).then(|| Box::new(Self { operation: span, attempt: Span::none() }))
    }

    /// A span for the attempt of this number. The first is no resend.
    pub(super) fn attempt(&mut self, dependency: &str, operation: &str, number: u32) {
        self.attempt = info_span!(
            target: "damper",
            parent: &self.operation,
            "attempt",
            damper.dependency = dependency,
            damper.operation = operation,
            http.request.resend_count = Empty,
            "error.type" = Empty,
        );
        if number > 1 {
            self.attempt.record("http.request.resend_count", number.saturating_sub(1));
        }
    }

    pub(super) fn of_attempt(&self) -> &Span {
        &self.attempt
    }

    /// Ends the attempt's span.
    pub(super) fn ended(&mut self, error: Option<&str>) {
        if let Some(error) = error {
            self.attempt.record("error.type", error);
        }
        self.attempt = Span::none();
    }

    pub(super) fn stopped(&self, reason: StopReason) {
        self.operation.record("damper.reason", reason.as_str());
    }
}
