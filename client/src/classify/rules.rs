//! What a dependency's HTTP responses mean: the table of statuses, the headers, and what one may say differently.

use std::time::SystemTime;

use damper_protocol::{Dispatch, FailureClass as Class};
use http::{HeaderMap, StatusCode};

use super::{Classifier, Outcome, Verdict, pause, status::from_status};
use crate::{Failure, clock, context};

/// What the HTTP responses of one dependency mean. The default is what [`Failure::from_http`] does; each method
/// switches on what a dependency does differently.
///
/// It is a [`Classifier`] too, for operations whose attempts return a [`reqwest::Response`] or fail with a
/// [`reqwest::Error`] that has a status. Such an error has no headers, so that only the status is judged. Adapters have
/// judged the response before a classifier sees it: give them their rules by `statuses`, not by `shape`.
///
/// ```
/// use damper_client::{Damper, StatusRules};
///
/// let payments = Damper::inert().dependency("payments");
/// let rules = StatusRules::new().unprocessed_rejections().millisecond_headers();
/// let operation = payments.operation("charge").classifier(rules);
/// # drop(operation);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "rules do nothing until they are given to somebody"]
pub struct StatusRules {
    pub(super) unprocessed_rejections: bool,
    pub(super) millisecond_headers: bool,
    pub(super) limited_403: bool,
    pub(super) keyed_conflicts: bool,
    pub(super) gateway_errors: bool,
    pub(super) internal_errors: bool,
}

impl StatusRules {
    /// Those of [`Failure::from_http`].
    pub const fn new() -> Self {
        Self {
            unprocessed_rejections: false,
            millisecond_headers: false,
            limited_403: false,
            keyed_conflicts: false,
            gateway_errors: false,
            internal_errors: false,
        }
    }

    /// 429, 509 and 529 come before any work is done: even what is unsafe to repeat is sent again.
    pub const fn unprocessed_rejections(self) -> Self {
        Self { unprocessed_rejections: true, ..self }
    }

    /// `retry-after-ms`, `x-ms-retry-after-ms` and `x-amz-retry-after` are pauses in milliseconds, and count before
    /// `Retry-After`, which is rounded to seconds.
    pub const fn millisecond_headers(self) -> Self {
        Self { millisecond_headers: true, ..self }
    }

    /// A 403 that has a `Retry-After` is a rate limit.
    pub const fn limited_403(self) -> Self {
        Self { limited_403: true, ..self }
    }

    /// A 409 says that the request with the same idempotency key is still under way: transient, with an unknown
    /// effect. The adapters go by it only for [keyed](crate::Idempotency::Keyed) requests; whoever calls
    /// [`failure`](Self::failure) should do so too.
    pub const fn keyed_conflicts(self) -> Self {
        Self { keyed_conflicts: true, ..self }
    }

    /// 520 to 524 and 530, the words of some proxies for 502 and 504, are retried.
    pub const fn gateway_errors(self) -> Self {
        Self { gateway_errors: true, ..self }
    }

    /// 500 is retried.
    pub const fn internal_errors(self) -> Self {
        Self { internal_errors: true, ..self }
    }

    /// The same for a request without an idempotency key.
    #[cfg(any(feature = "tower", feature = "reqwest-middleware"))]
    pub(crate) const fn of_keyed(self, keyed: bool) -> Self {
        Self { keyed_conflicts: self.keyed_conflicts && keyed, ..self }
    }

    /// The failure that a response stands for, or `None` if its status is a success (2xx or 304).
    #[must_use]
    pub fn failure(self, status: StatusCode, headers: &HeaderMap) -> Option<Failure> {
        self.failure_at(status, headers, clock::wall())
    }

    /// The response, or the failure that it stands for: [`Failure::check`] with these rules.
    ///
    /// # Errors
    ///
    /// The failure, if the status is no success.
    pub fn check(self, response: reqwest::Response) -> Result<reqwest::Response, Failure> {
        match self.failure(response.status(), response.headers()) {
            Some(failure) => Err(failure),
            None => Ok(response),
        }
    }

    pub(super) fn failure_at(
        self,
        status: StatusCode,
        headers: &HeaderMap,
        now: SystemTime,
    ) -> Option<Failure> {
        let mut failure = from_status(status, self)?;
        self.read_pause(&mut failure, status, headers, now);
        read_nack(&mut failure, status, headers);
        let directive = context::retry_directive(headers);
        failure.unread = failure.unread.saturating_add(directive.unread);
        match directive.retry {
            Some(false) => failure.veto(),
            Some(true) if !failure.is_vetoed() => lift(&mut failure),
            _ => {}
        }
        Some(failure)
    }

    fn read_pause(self, failure: &mut Failure, status: StatusCode, headers: &HeaderMap, now: SystemTime) {
        let limited_403 = self.limited_403 && status == StatusCode::FORBIDDEN;
        if !has_pause(status) && !limited_403 {
            return;
        }
        let asked = pause::of(headers, self, now);
        failure.retry_after = asked.pause;
        failure.unread = asked.unread;
        if asked.pause.is_some() && limited_403 {
            failure.class = Class::RateLimited;
            failure.dispatch = Dispatch::Ambiguous;
        }
        if asked.pause.is_some() && status == StatusCode::PAYLOAD_TOO_LARGE {
            failure.class = Class::Transient;
        }
    }
}

/// Whether `Retry-After` has a meaning on this status.
fn has_pause(status: StatusCode) -> bool {
    matches!(status.as_u16(), 408 | 413 | 429 | 500 | 502..=504 | 509 | 520..=524 | 529 | 530)
}

/// A rejection that is marked as one had no effect.
fn read_nack(failure: &mut Failure, status: StatusCode, headers: &HeaderMap) {
    let may_be_nack = matches!(status.as_u16(), 429 | 503 | 509 | 529);
    let says = |name: &str| headers.get(name).is_some_and(|value| value.as_bytes().trim_ascii() != b"false");
    let final_nack = says("finagle-http-nonretryable-nack");
    if may_be_nack && (final_nack || says("finagle-http-nack") || says("x-envoy-overloaded")) {
        failure.dispatch = Dispatch::NotProcessed;
        if final_nack {
            failure.veto();
        }
    }
}

/// The dependency knows better what its failure means, unless it has forbidden a repeat too; whether a repeat does harm
/// is another question.
fn lift(failure: &mut Failure) {
    failure.do_not_retry = false;
    failure.unclassified = false;
    if failure.class != Class::RateLimited {
        failure.class = Class::Transient;
    }
}

impl Classifier for StatusRules {
    fn classify(&self, outcome: &Outcome<'_>) -> Verdict {
        let of_error = |error: &reqwest::Error| from_status(error.status()?, *self);
        let failure = match outcome {
            Outcome::Value(value) => value
                .downcast_ref::<reqwest::Response>()
                .and_then(|response| self.failure(response.status(), response.headers())),
            Outcome::Error(error) => super::find(*error, |error| error.downcast_ref().and_then(of_error)),
        };
        failure.map_or(Verdict::Pass, Verdict::Failure)
    }
}
