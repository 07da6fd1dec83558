//! For services made with axum: what their callers say, and what they are told.
//!
//! [`Inbound`] is an extractor. [`ScopeLayer`] serves every request in its scope, so that operations need not be
//! told what they are nested in. A [`CallError`] is a response.

use std::{
    convert::Infallible,
    future::{Future, ready},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use axum_core::{
    extract::FromRequestParts,
    response::{IntoResponse, Response},
};
use damper_protocol::{
    FailureClass,
    problem::{MEDIA_TYPE, Problem, TYPE_PREFIX},
};
use http::{HeaderMap, HeaderValue, Request, StatusCode, header, request::Parts};
use tower_layer::Layer;
use tower_service::Service;

use crate::{CallError, Inbound, StopReason, refuse_retries};

/// When a refused caller may come again that was told nothing better.
const COME_AGAIN: Duration = Duration::from_secs(1);

impl<S: Sync> FromRequestParts<S> for Inbound {
    type Rejection = Infallible;

    fn from_request_parts(parts: &mut Parts, _: &S) -> impl Future<Output = Result<Self, Infallible>> + Send {
        ready(Ok(Self::from_headers(&parts.headers)))
    }
}

/// Serves requests in the scope that their headers describe. Use it where the callers are trusted to say so.
///
/// A request that has no time left is answered with 504, and not served.
///
/// ```
/// use axum::{Router, routing::get};
/// use damper_client::axum::ScopeLayer;
///
/// let app: Router = Router::new().route("/", get(async || "hello")).layer(ScopeLayer::default());
/// # drop(app);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct ScopeLayer {
    most: Option<Duration>,
}

impl ScopeLayer {
    /// No request gets more time than this, whatever its headers say or leave out. Default: no such limit.
    #[must_use]
    pub const fn at_most(most: Duration) -> Self {
        Self { most: Some(most) }
    }
}

impl<S> Layer<S> for ScopeLayer {
    type Service = InScope<S>;

    fn layer(&self, inner: S) -> InScope<S> {
        InScope { inner, most: self.most }
    }
}

/// The service of a [`ScopeLayer`].
#[derive(Clone, Debug)]
pub struct InScope<S> {
    inner: S,
    most: Option<Duration>,
}

impl<S, B> Service<Request<B>> for InScope<S>
where
    S: Service<Request<B>>,
    S::Response: IntoResponse,
    S::Future: Send + 'static,
{
    type Response = Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let mut inbound = Inbound::from_headers(request.headers());
        if let Some(most) = self.most {
            inbound = inbound.capped(most);
        }
        if inbound.remaining() == Some(Duration::ZERO) {
            let late = problem(StopReason::DeadlineTooShort, "the request came too late", None, false);
            return Box::pin(async { Ok(late) });
        }
        let served = inbound.scope().run(self.inner.call(request));
        Box::pin(async { served.await.map(IntoResponse::into_response) })
    }
}

/// Refusals are 429, what is unavailable is 503, both with `Retry-After`; what took too long is 504, and any other
/// failure of a dependency 502. If this layer has retried, or a repeat would be in vain or may do harm, the response
/// forbids its caller to make one ([`CallError::forbids_retries`]).
impl<E> IntoResponse for CallError<E> {
    fn into_response(self) -> Response {
        let passes = self.failure.as_ref().is_some_and(|failure| {
            matches!(failure.class, FailureClass::Transient | FailureClass::RateLimited)
        });
        let retryable = passes && !self.forbids_retries;
        let mut response = problem(self.reason, &self.to_string(), self.retry_after, retryable);
        if self.forbids_retries {
            refuse_retries(response.headers_mut());
        }
        response
    }
}

fn problem(reason: StopReason, detail: &str, pause: Option<Duration>, retryable: bool) -> Response {
    let status = status(reason);
    let comes_again = reason.is_refusal() || reason.is_unavailable();
    let pause = comes_again.then(|| pause.unwrap_or(COME_AGAIN));
    let problem = Problem {
        kind: format!("{TYPE_PREFIX}{reason}"),
        title: status.canonical_reason().unwrap_or_default().to_owned(),
        status: status.as_u16(),
        detail: detail.to_owned(),
        code: reason.as_str().to_owned(),
        retryable,
        retry_after_ms: pause.map(crate::wire::ms_up),
        errors: Vec::new(),
    };
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
    if let Some(pause) = pause {
        // Whole seconds, rounded up: some clients understand nothing else.
        headers.insert(header::RETRY_AFTER, HeaderValue::from(crate::wire::ms_up(pause).div_ceil(1000)));
    }
    (status, headers, serde_json::to_vec(&problem).unwrap_or_default()).into_response()
}

fn status(reason: StopReason) -> StatusCode {
    match reason {
        _ if reason.is_refusal() => StatusCode::TOO_MANY_REQUESTS,
        _ if reason.is_unavailable() => StatusCode::SERVICE_UNAVAILABLE,
        _ if reason.is_timeout() => StatusCode::GATEWAY_TIMEOUT,
        _ => StatusCode::BAD_GATEWAY,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_one_status() {
        for reason in StopReason::ALL {
            let kinds = [reason.is_refusal(), reason.is_unavailable(), reason.is_timeout()];
            assert!(kinds.iter().filter(|kind| **kind).count() <= 1, "{reason}");
            let response = problem(*reason, "", Some(Duration::from_millis(1001)), true);
            let says_when = response.headers().get(header::RETRY_AFTER).map(|value| value.to_str().unwrap());
            let told = matches!(response.status().as_u16(), 429 | 503);
            assert_eq!(says_when, told.then_some("2"), "{reason}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_layer_says_whether_its_caller_may_retry() {
        use damper_protocol::FailureClass as Class;
        use http::HeaderName;

        use crate::{Damper, Failure, Idempotency, testing::FakeServer};
        let client = FakeServer::granting().client_of(Damper::builder("").seed(1));
        let operation = || client.dependency("d").operation("get").idempotency(Idempotency::Safe);
        let fails = |class| move |_| async move { Err::<(), _>(Failure::new(class)) };
        let retried = operation().call(fails(Class::Transient)).await;
        let in_vain = operation().call(fails(Class::Semantic)).await;
        let owned = Inbound::from_headers(
            &[("damper-context", "op=\"1\", n=1, max=3, depth=1, owner=\"a\"")]
                .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
                .into_iter()
                .collect(),
        );
        let left_to_the_caller = owned.scope().run(operation().call(fails(Class::Transient))).await;
        for (outcome, forbids) in [(retried, true), (in_vain, true), (left_to_the_caller, false)] {
            let response = outcome.unwrap_err().into_response();
            let said = response.headers().get("damper-retry").map(|value| value.to_str().unwrap());
            assert_eq!(said, forbids.then_some("no"));
            assert_eq!(response.headers().contains_key("x-should-retry"), forbids);
            let body = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
            let problem: Problem = serde_json::from_slice(&body).unwrap();
            assert_eq!(problem.retryable, !forbids, "{}", problem.code);
        }
    }
}
