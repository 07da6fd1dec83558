//! A middleware for reqwest clients.
//!
//! Build the client from [`client_builder`]: reqwest's own retries would multiply these, and redirects that it
//! follows would be attempts that nobody counts. What stays invisible is a re-send on a pooled connection that turns
//! out to be dead, which happens below reqwest.
//!
//! An attempt ends with the head of its response. A body that is cut or stalls afterwards is not seen, and not repeated:
//! where that matters, read it in an attempt of [`Operation::call`].

use std::{convert::Infallible, ops::ControlFlow, time::Duration};

use async_trait::async_trait;
use http::Extensions;
use reqwest::{ClientBuilder, Request, Response, redirect};
use reqwest_middleware::{Error, Middleware, Next, Result};

use crate::{
    CallError, Dependency, Failure, Operation,
    adapter::{Failed, Lend, MOST_REPLAYED, Settings, settable},
};

/// A connection that takes longer is as good as refused. Without such a limit, a timeout while connecting cannot
/// be told from one after the request was sent.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A reqwest client without retries of its own, with a connect timeout of 5 s, and which follows no redirects.
///
/// A response with a 3xx comes through as it is, and is a [semantic](crate::FailureClass::Semantic) failure that is
/// not retried. Whoever follows it with a new request has a new operation, which is admitted and counted. With a
/// [policy](ClientBuilder::redirect) that follows redirects, a dependency gets more requests than damper counts, and
/// another host may get the headers of [`Attempt::inject`](crate::Attempt::inject) and the idempotency key, which are
/// not meant for it.
pub fn client_builder() -> ClientBuilder {
    ClientBuilder::new()
        .retry(reqwest::retry::never())
        .redirect(redirect::Policy::none())
        .connect_timeout(CONNECT_TIMEOUT)
}

/// Retries within the budget of the fleet. Put it outermost in the chain: everything after it is part of an
/// attempt.
///
/// The final response goes through unchanged, whatever its status. Bodies of up to 64 KiB that are in memory can
/// be sent again; a request with any other body is sent once, and [counted](Dependency::not_replayable). A
/// refusal is a [`reqwest_middleware::Error::Middleware`] around a [`CallError`].
///
/// ```
/// use damper_client::{Damper, reqwest_middleware::{Retry, client_builder}};
///
/// # fn main() -> Result<(), reqwest::Error> {
/// let stock = Damper::inert().dependency("stock");
/// let client = reqwest_middleware::ClientBuilder::new(client_builder().build()?).with(Retry::new(stock)).build();
/// # drop(client);
/// # Ok(())
/// # }
/// ```
///
/// [`reqwest_middleware::Error::Middleware`]: ::reqwest_middleware::Error::Middleware
#[derive(Clone, Debug)]
pub struct Retry(Settings<Request>);

impl Retry {
    /// For requests to this dependency. Each is one operation, named after its method, and as safe to repeat as
    /// [`Idempotency::of_request`](crate::Idempotency::of_request) says.
    #[must_use]
    pub fn new(dependency: Dependency) -> Self {
        Self(Settings::new(dependency))
    }

    settable!();

    /// The same, knowing the request. Of `shape` and `shape_with`, what is called last counts.
    #[must_use]
    pub fn shape_with(
        self,
        shape: impl Fn(Operation, &Request) -> Operation + Send + Sync + 'static,
    ) -> Self {
        Self(self.0.shape(shape))
    }
}

impl Lend for Error {
    /// The wrapper is transparent: the error itself is what can be understood.
    fn lend(&self) -> &(dyn std::error::Error + 'static) {
        match self {
            Self::Reqwest(error) => error,
            Self::Middleware(error) => error.as_ref(),
        }
    }
}

#[async_trait]
impl Middleware for Retry {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<Response> {
        let replayable = is_replayable(&request);
        let operation = self.0.operation(&request, request.method(), request.headers(), replayable);
        let mut permit = operation.admit().await.map_err(refused)?;
        let mut left = Some(request);
        loop {
            let copy = left.as_ref().filter(|_| replayable).and_then(Request::try_clone);
            let Some(mut request) = copy.or_else(|| left.take()) else {
                return Err(Error::middleware(Failure::new(crate::FailureClass::Invalid)));
            };
            let attempt = permit.attempt().clone();
            let sent = async {
                let unsent = |error| Failed::Error(Error::middleware(error));
                let host = request.url().host_str().map(str::to_owned);
                self.0.prepare(&attempt, host.as_deref(), request.headers_mut()).map_err(unsent)?;
                let response = next.clone().run(request, extensions).await.map_err(Failed::Error)?;
                match self.0.failure(&attempt, response.status(), response.headers()) {
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
}

fn is_replayable(request: &Request) -> bool {
    request.body().is_none_or(|body| body.as_bytes().is_some_and(|bytes| bytes.len() <= MOST_REPLAYED))
}

/// What came of the last attempt, as it came; the reason for the end if there is nothing else.
fn finished(error: CallError<Failed<Response, Error>>) -> Result<Response> {
    let (error, last): (CallError<Infallible>, _) = error.split();
    match last {
        Some(Failed::Response(response, _)) => Ok(*response),
        Some(Failed::Error(last)) => Err(last),
        None => Err(refused(error)),
    }
}

fn refused(error: CallError<Infallible>) -> Error {
    Error::middleware(error)
}

#[cfg(test)]
mod tests;
