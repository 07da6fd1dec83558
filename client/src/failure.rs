//! What went wrong with one attempt.

use std::{borrow::Cow, fmt, time::Duration};

use damper_protocol::{Dispatch, FailureClass, FailureReason, FailureReport, FailureSource};
use http::{HeaderMap, StatusCode};

use crate::{StopReason, classify::grpc};

/// What went wrong with one attempt, on axes that stay apart: the class says what, the source who, the dispatch
/// whether there can have been an effect.
///
/// A caller's error can be a `Failure` or contain one anywhere in its chain of sources; either way it is
/// believed over everything that could be concluded from the rest of the chain.
///
/// ```
/// use damper_client::{Dispatch, Failure, FailureClass};
///
/// let wrong_answer = Failure::new(FailureClass::Semantic).with_code("empty_basket");
/// let queue_full = Failure::new(FailureClass::RateLimited).with_dispatch(Dispatch::NotSent);
/// # assert_ne!(wrong_answer, queue_full);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Failure {
    /// What went wrong. Only `transient` and `rate_limited` are ever retried.
    pub class: FailureClass,
    /// Who failed. Default: the runtime.
    pub source: FailureSource,
    /// The failure as a handler platform sees it, if it has a word for it.
    pub reason: Option<FailureReason>,
    /// Whether the attempt can have had an effect. Default: ambiguous.
    pub dispatch: Dispatch,
    /// The caller refused the attempt itself; that says nothing about the dependency. Default: false.
    pub caller_rejected: bool,
    /// How long the dependency asked to be left alone; of what it sent, 366 days at most are kept.
    pub retry_after: Option<Duration>,
    /// Vetoes a retry whatever the class. Default: false.
    pub do_not_retry: bool,
    /// The dependency's own word for it, for people: `503`, `ECONNRESET`.
    pub code: Option<Cow<'static, str>>,
    /// It is not retried because implementations disagree on it, which a classifier can overrule, unlike a veto.
    pub(crate) contested: bool,
    /// Nobody knows what it means.
    pub(crate) unclassified: bool,
    /// Headers about retries that could not be read.
    pub(crate) unread: u32,
}

impl Failure {
    /// A failure of this class; the other fields have their defaults.
    #[must_use]
    pub const fn new(class: FailureClass) -> Self {
        Self {
            class,
            source: FailureSource::Runtime,
            reason: None,
            dispatch: Dispatch::Ambiguous,
            caller_rejected: false,
            retry_after: None,
            do_not_retry: false,
            code: None,
            contested: false,
            unclassified: false,
            unread: 0,
        }
    }

    /// The failure that an HTTP response stands for, or `None` if its status is a success (2xx or 304).
    ///
    /// Reads `Retry-After` where the status gives it a meaning (a date is counted from the response's own
    /// `Date` if that is within a day of the local clock, so that a wrong one does no harm), and takes `x-should-retry: false` as a veto. Statuses
    /// on which implementations disagree (500, 520 to 524, 530) get their class and a veto. A 429 or 503 that is
    /// marked as turned away before any work (`x-envoy-overloaded`, finagle's nack headers) had no effect. What a
    /// dependency does differently is said with [`StatusRules`](crate::StatusRules).
    ///
    /// ```
    /// use damper_client::{Failure, FailureClass};
    /// # let (status, headers) = (http::StatusCode::SERVICE_UNAVAILABLE, http::HeaderMap::new());
    /// let failure = Failure::from_http(status, &headers);
    /// assert_eq!(failure.map(|failure| failure.class), Some(FailureClass::Transient));
    /// ```
    #[must_use]
    pub fn from_http(status: StatusCode, headers: &HeaderMap) -> Option<Self> {
        crate::StatusRules::new().failure(status, headers)
    }

    /// The response, or the failure that it [stands for](Self::from_http). Unlike `error_for_status()`, it does not lose
    /// what the headers say: `Retry-After`, vetoes, nack markers. The body of a failed response is dropped. With rules
    /// of its own for a dependency: [`StatusRules::check`](crate::StatusRules::check). What a proxy has sent again by itself
    /// is read by [`Attempt::note_response`](crate::Attempt::note_response).
    ///
    /// ```
    /// use damper_client::Failure;
    ///
    /// async fn fetch(client: &reqwest::Client) -> Result<String, Box<dyn std::error::Error + Send + Sync>> {
    ///     let response = Failure::check(client.get("http://stock.internal/items/7").send().await?)?;
    ///     Ok(response.text().await?)
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// The failure, if the status is no success.
    pub fn check(response: reqwest::Response) -> Result<reqwest::Response, Self> {
        crate::StatusRules::new().check(response)
    }

    /// The failure that a gRPC status stands for, or `None` for OK (0). `metadata` are the trailers, or the headers
    /// of a response that has none.
    ///
    /// UNAVAILABLE, INTERNAL and DEADLINE_EXCEEDED are transient, RESOURCE_EXHAUSTED is rate limited, all with an
    /// unknown effect. `grpc-retry-pushback-ms` is a pause, and a veto if it is negative or junk; the `RetryInfo` of
    /// `grpc-status-details-bin` is a pause too, and the longer of both counts. A CANCELLED or DEADLINE_EXCEEDED of
    /// the caller's own making is better reported as [such](Self::rejected_by_caller). If the client has an error that
    /// the status was made of, [`from_grpc_error`](Self::from_grpc_error) knows more.
    ///
    /// ```
    /// use damper_client::{Failure, FailureClass};
    ///
    /// let failure = Failure::from_grpc(14, &http::HeaderMap::new());
    /// assert_eq!(failure.map(|failure| failure.class), Some(FailureClass::Transient));
    /// ```
    #[must_use]
    pub fn from_grpc(code: i32, metadata: &HeaderMap) -> Option<Self> {
        grpc::from_status(code, metadata)
    }

    /// The failure that a gRPC status stands for which a client has made of an error of its own, or `None` for OK.
    /// `error` is that error or one that has it among its sources, such as the status of tonic itself: a connection
    /// that was refused and, with the feature `http2`, a stream that was had no effect, so that even what is unsafe to
    /// repeat is sent again. All else is as [`from_grpc`](Self::from_grpc) says.
    ///
    /// ```
    /// use std::io;
    ///
    /// use damper_client::{Dispatch, Failure};
    ///
    /// let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
    /// let failure = Failure::from_grpc_error(14, &http::HeaderMap::new(), &refused);
    /// assert_eq!(failure.map(|failure| failure.dispatch), Some(Dispatch::NotSent));
    /// ```
    #[must_use]
    pub fn from_grpc_error(
        code: i32,
        metadata: &HeaderMap,
        error: &(dyn std::error::Error + 'static),
    ) -> Option<Self> {
        grpc::from_error(code, metadata, error)
    }

    /// The failure that a whole gRPC response stands for, or `None` for OK. The status is taken from the trailers, or
    /// from the headers of a response that has none. Where it is in neither, the HTTP status stands in for it, as the
    /// gRPC protocol says; an UNAVAILABLE that was a 429 is rate limited, an UNKNOWN that was a 503 transient, and
    /// their `Retry-After` counts. In trailers it does not.
    ///
    /// ```
    /// use damper_client::{Failure, FailureClass};
    /// use http::{HeaderMap, StatusCode};
    ///
    /// let failure = Failure::from_grpc_response(StatusCode::TOO_MANY_REQUESTS, &HeaderMap::new(), None);
    /// assert_eq!(failure.map(|failure| failure.class), Some(FailureClass::RateLimited));
    /// ```
    #[must_use]
    pub fn from_grpc_response(
        status: StatusCode,
        headers: &HeaderMap,
        trailers: Option<&HeaderMap>,
    ) -> Option<Self> {
        grpc::from_response(status, headers, trailers)
    }

    /// The same with this source.
    #[must_use]
    pub fn with_source(self, source: FailureSource) -> Self {
        Self { source, ..self }
    }

    /// The same with this reason.
    #[must_use]
    pub fn with_reason(self, reason: FailureReason) -> Self {
        Self { reason: Some(reason), ..self }
    }

    /// The same with this dispatch.
    #[must_use]
    pub fn with_dispatch(self, dispatch: Dispatch) -> Self {
        Self { dispatch, ..self }
    }

    /// The same, refused by the caller itself.
    #[must_use]
    pub fn rejected_by_caller(self) -> Self {
        Self { caller_rejected: true, ..self }
    }

    /// The same with the pause that the dependency asked for, 366 days at most.
    #[must_use]
    pub fn with_retry_after(self, retry_after: Duration) -> Self {
        Self { retry_after: Some(retry_after.min(crate::retry_after::LONGEST)), ..self }
    }

    /// The same, never to be retried.
    #[must_use]
    pub fn never_retried(self) -> Self {
        Self { do_not_retry: true, contested: false, ..self }
    }

    /// The same with the dependency's own word for it.
    #[must_use]
    pub fn with_code(self, code: impl Into<Cow<'static, str>>) -> Self {
        Self { code: Some(code.into()), ..self }
    }

    /// What an error means that nobody recognises: never retried, and no evidence against the dependency.
    pub(crate) fn unclassified() -> Self {
        let unknown = Self::new(FailureClass::Invalid).with_source(FailureSource::Application);
        Self { unclassified: true, ..unknown.with_code("unclassified") }
    }

    /// What a request means that the caller could not even send.
    pub(crate) fn unsent(code: &'static str) -> Self {
        Self::new(FailureClass::Invalid)
            .with_source(FailureSource::Application)
            .with_dispatch(Dispatch::NotSent)
            .rejected_by_caller()
            .with_code(code)
    }

    /// What an attempt means that outlived the caller's own deadline: it may have taken effect, and it says
    /// nothing about the dependency.
    pub(crate) fn own_deadline() -> Self {
        Self::new(FailureClass::Transient)
            .with_source(FailureSource::Application)
            .with_reason(FailureReason::Timeout)
            .rejected_by_caller()
            .with_code("deadline")
    }

    /// What an operation means that was not attempted. Who called it from an operation of its own must not repeat
    /// that in the place of the one that was refused; only a lack of time is none outside.
    pub(crate) fn refused(reason: StopReason) -> Self {
        let refused =
            Self::new(FailureClass::Transient).with_dispatch(Dispatch::NotSent).rejected_by_caller();
        Self { do_not_retry: !reason.is_timeout(), ..refused.with_code(reason.as_str()) }
    }

    /// An attempt that did not end by itself.
    pub(crate) fn timed_out() -> Self {
        Self::new(FailureClass::Transient).with_reason(FailureReason::Timeout).with_code("timeout")
    }

    /// The same, forbidden by whoever answered.
    pub(crate) fn veto(&mut self) {
        self.do_not_retry = true;
        self.contested = false;
    }

    /// True if somebody forbids a retry.
    pub(crate) const fn is_vetoed(&self) -> bool {
        self.do_not_retry && !self.contested
    }

    /// An opinion on an error, and what the error itself says that no opinion can take back: its veto, and its pause
    /// if the opinion has none.
    pub(crate) fn heeding(self, told: &Self) -> Self {
        Self {
            do_not_retry: self.do_not_retry || told.is_vetoed(),
            retry_after: self.retry_after.or(told.retry_after),
            unread: self.unread.saturating_add(told.unread),
            ..self
        }
    }

    /// True if the attempt provably had no effect.
    pub(crate) fn had_no_effect(&self) -> bool {
        matches!(self.dispatch, Dispatch::NotSent | Dispatch::NotProcessed)
    }

    /// What the server is told of it, some time after: what is left of the dependency's pause, if anything.
    pub(crate) fn report(&self, ago: Duration) -> FailureReport {
        let pause = self.retry_after.and_then(|pause| pause.checked_sub(ago));
        FailureReport {
            class: self.class,
            reason: self.reason,
            source: self.source,
            dispatch: self.dispatch,
            do_not_retry: self.do_not_retry,
            caller_rejected: self.caller_rejected,
            code: self.code.as_deref().map(str::to_owned),
            retry_after_ms: pause.filter(|pause| !pause.is_zero()).map(crate::wire::ms_up),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} failure", self.class)?;
        match &self.code {
            Some(code) => write!(f, " ({code})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Failure {}
