//! A tower layer for clients of HTTP services.
//!
//! It is a service of its own and no `tower::retry` policy: requests that cannot be cloned are admitted and counted
//! too. The final answer goes through unchanged, whatever its status; the error of the service below stays the
//! source of this one's.
//!
//! An attempt ends with the head of its response. A body that is cut or stalls afterwards is not seen, and not repeated.
//! A layer that follows redirects belongs above this one: below it, nobody counts what it sends, and another host may get
//! headers that are not meant for it.

mod body;

pub use body::{ReplayBody, Whole};

use std::{
    convert::Infallible,
    error::Error,
    fmt,
    future::{Future, poll_fn},
    ops::ControlFlow,
    pin::Pin,
    task::{Context, Poll},
};

use http::{Request, Response, request::Parts};
use http_body::Body;
use hyper::body::Bytes;
use tower_layer::Layer;
use tower_service::Service;

use body::Kept;

use crate::{
    CallError, Dependency, Operation,
    adapter::{Failed, Lend, Settings, settable},
};

/// Any error.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// Puts a [`Retry`] around a service.
///
/// ```
/// use std::time::Duration;
///
/// use damper_client::{Damper, tower::RetryLayer};
///
/// let stock = Damper::inert().dependency("stock");
/// let layer = RetryLayer::new(stock).shape(|operation| operation.deadline(Duration::from_secs(2))).propagate();
/// # drop(layer);
/// ```
#[derive(Clone, Debug)]
pub struct RetryLayer(Settings<Parts>);

impl RetryLayer {
    /// For a service that calls this dependency. Each request is one operation, named after its method, and as
    /// safe to repeat as [`Idempotency::of_request`](crate::Idempotency::of_request) says.
    #[must_use]
    pub fn new(dependency: Dependency) -> Self {
        Self(Settings::new(dependency))
    }

    settable!();

    /// The same, knowing the request's method, URI and headers. Of `shape` and `shape_with`, what is called last counts.
    #[must_use]
    pub fn shape_with(self, shape: impl Fn(Operation, &Parts) -> Operation + Send + Sync + 'static) -> Self {
        Self(self.0.shape(shape))
    }
}

impl<S> Layer<S> for RetryLayer {
    type Service = Retry<S>;

    fn layer(&self, inner: S) -> Retry<S> {
        Retry { inner, settings: self.0.clone() }
    }
}

/// Retries within the budget of the fleet.
///
/// A body of up to 64 KiB is read before the first attempt, within the operation's deadline, and kept for a repeat with
/// its trailers. A larger one, or one that does not know its size, is sent once, and
/// [counted](Dependency::not_replayable).
#[derive(Clone, Debug)]
pub struct Retry<S> {
    inner: S,
    settings: Settings<Parts>,
}

/// No answer came of it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RetryError {
    /// The operation ended without one; why, and the service's own error as its source.
    #[error(transparent)]
    Stopped(#[from] CallError<ServiceError>),
    /// The request's body could not be read.
    #[error("the body of the request could not be read")]
    Body(#[source] BoxError),
}

/// The error of the service below.
#[derive(Debug)]
pub struct ServiceError(BoxError);

impl fmt::Display for ServiceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for ServiceError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.0)
    }
}

impl Lend for ServiceError {
    fn lend(&self) -> &(dyn Error + 'static) {
        &*self.0
    }
}

impl<S, B, R> Service<Request<B>> for Retry<S>
where
    S: Service<Request<ReplayBody<B>>, Response = Response<R>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
    R: Send + 'static,
{
    type Response = Response<R>;
    type Error = RetryError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<R>, RetryError>> + Send>>;

    /// Always ready: each attempt waits for the service itself, within the operation's deadline.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), RetryError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let Self { inner, settings } = self.clone();
        Box::pin(carry_out(inner, settings, request))
    }
}

async fn carry_out<S, B, R>(
    inner: S,
    settings: Settings<Parts>,
    request: Request<B>,
) -> Result<Response<R>, RetryError>
where
    S: Service<Request<ReplayBody<B>>, Response = Response<R>> + Clone,
    S::Error: Into<BoxError>,
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
    R: 'static,
{
    let (parts, body) = request.into_parts();
    let replayable = body::is_replayable(&body);
    let operation = settings.operation(&parts, &parts.method, &parts.headers, replayable);
    let (operation, end) = operation.begun_now();
    let body = Kept::read(body, end).await?;
    let mut permit = operation.admit().await.map_err(refused)?;
    // One that has not come whole in time has been refused just now.
    let mut body = body.unwrap_or(Kept::Once(None));
    loop {
        // What is sent once has a profile of one attempt.
        let Some(body) = body.take() else { return Err(RetryError::Body("it is gone".into())) };
        let mut parts = parts.clone();
        let attempt = permit.attempt().clone();
        let (service, rules) = (inner.clone(), &settings);
        let sent = async move {
            let unsent = |error| Failed::Error(ServiceError(Box::new(error)));
            rules.prepare(&attempt, parts.uri.host(), &mut parts.headers).map_err(unsent)?;
            let response = send(service, parts, body).await?;
            match rules.failure(&attempt, response.status(), response.headers()) {
                Some(failure) => Err(Failed::Response(Box::new(response), failure)),
                None => Ok(response),
            }
        };
        match permit.run(sent).await {
            ControlFlow::Continue(next) => permit = next,
            ControlFlow::Break(Ok(response)) => return Ok(response),
            ControlFlow::Break(Err(error)) => return finished(error),
        }
    }
}

async fn send<S, B, R>(
    mut service: S,
    parts: Parts,
    body: ReplayBody<B>,
) -> Result<Response<R>, Failed<Response<R>, ServiceError>>
where
    S: Service<Request<ReplayBody<B>>, Response = Response<R>>,
    S::Error: Into<BoxError>,
{
    let failed = |error: S::Error| Failed::Error(ServiceError(error.into()));
    poll_fn(|context| service.poll_ready(context)).await.map_err(failed)?;
    service.call(Request::from_parts(parts, body)).await.map_err(failed)
}

/// A response is an answer, even if it is not the one that was hoped for.
fn finished<R>(error: CallError<Failed<Response<R>, ServiceError>>) -> Result<Response<R>, RetryError> {
    let (error, last) = error.split();
    match last {
        Some(Failed::Response(response, _)) => Ok(*response),
        Some(Failed::Error(last)) => Err(CallError { last: Some(last), ..error }.into()),
        None => Err(error.into()),
    }
}

fn refused(error: CallError<Infallible>) -> RetryError {
    error.split().0.into()
}

#[cfg(test)]
mod tests;
