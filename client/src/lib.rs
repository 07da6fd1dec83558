//! Retries that draw on the budget of the whole fleet.
//!
//! A retry is extra load on a dependency that is already in trouble. A budget in each process is multiplied by
//! the number of processes; damper keeps one for all of them, in a server, and this crate makes obeying it one
//! line. It asks before each retry, waits out the backoff in the server's queue, stops at a breaker that the
//! fleet shares, and reports what it did. A healthy call asks nobody: it costs a fraction of a microsecond and one
//! allocation, and without a server everything goes on, with a small local budget.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use damper_client::{Attempt, Damper, Failure, Idempotency, Opaque};
//! use reqwest::{Client, Response, header::HeaderMap};
//!
//! type AnyError = Box<dyn std::error::Error + Send + Sync>;
//!
//! /// One attempt. What its error means is found inside it.
//! async fn charge(client: &Client, attempt: Attempt) -> Result<Response, AnyError> {
//!     let mut headers = HeaderMap::new();
//!     attempt.inject_key(&mut headers)?; // Idempotency-Key: "order-42", the same in every attempt
//!     let response = client.post("http://payments.internal/charges").headers(headers).send().await?;
//!     Ok(Failure::check(response)?) // without it a 503 is a response like any other, and a success
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::builder()
//!     .retry(reqwest::retry::never()) // what it does by itself nobody counts
//!     .redirect(reqwest::redirect::Policy::none())
//!     .connect_timeout(Duration::from_secs(5)) // tells what was never sent from what hangs
//!     .build()?;
//! let damper = Damper::builder("http://127.0.0.1:7117").tenant("checkout").build()?;
//!
//! let receipt = damper
//!     .dependency("payments")
//!     .operation("charge")
//!     .idempotency(Idempotency::keyed("order-42"))
//!     .deadline(Duration::from_secs(2))
//!     .call(|attempt| async { charge(&client, attempt).await.map_err(Opaque) })
//!     .await?;
//!
//! # drop(receipt);
//! damper.shutdown(Duration::from_secs(1)).await; // once, at the end
//! # Ok(())
//! # }
//! ```
//!
//! The client's guide, `docs/client.md` in the repository, has the adapters, all variables of the environment, what to
//! expect of a first trial, and how to test and to shut down.
//!
//! # What is retried
//!
//! Only what is `transient` or `rate_limited`, and only if a repeat does no harm: the operation says that it may
//! be repeated ([`Idempotency`]), or the attempt provably had no effect. What an error means is read from its
//! chain of sources: a [`Failure`] is believed first, then reqwest, hyper and I/O errors are understood. An error
//! that nobody understands is never retried. A [`Classifier`] goes before all of these.
//!
//! With the feature `http2`, resets of HTTP/2 streams are understood too.
//!
//! # Responses are not errors
//!
//! `call(|_| client.get(url).send())` takes each 503 for a success: nothing is retried, and the breaker never opens. A
//! response with an error status becomes a failure by one of these:
//!
//! - [`Failure::check`] turns a [`reqwest::Response`] into a `Result`, [`Failure::from_http`] judges any status and
//!   headers. The status decides, and `Retry-After`, vetoes and nack markers are read.
//! - [`Operation::classifier`] with [`StatusRules`], which also say what a dependency does differently, does the same to
//!   attempts that return a `reqwest::Response`. The response is dropped.
//! - `error_for_status()?` is understood, and poorer: an error of reqwest has the status and no headers, so that
//!   `Retry-After` and vetoes are lost.
//! - The adapters judge every response by themselves.
//!
//! # Errors of any kind
//!
//! An attempt's error has to implement [`Error`](std::error::Error). For `anyhow::Error` and boxed errors, which do not,
//! there is [`Opaque`].
//!
//! # What cannot be told apart
//!
//! - A connection that was not made has sent nothing and is made again, a handshake that the other side broke off
//!   included. A certificate that is refused, on either side, and a server that does not speak TLS are fatal. They are
//!   recognised as rustls reports them (as invalid data) and by the wording of OpenSSL; of other libraries, by the
//!   word certificate. What is missed is retried, which costs tokens and does no harm. Under TLS 1.3 a server that
//!   misses the client's certificate says so after the handshake: that looks like a connection that was cut.
//! - A proxy that refuses a tunnel is a connection that was not made. reqwest tells a 407 from all other answers, and
//!   it is not retried; 502 and 403 look alike, and are. A proxy that forwards requests without a tunnel answers them,
//!   407 included, like the dependency itself.
//! - reqwest and hyper send the body without waiting for the `100 Continue` that a request expects. An answer that
//!   comes before the body is through counts by its status; if the server hangs up on the rest of the body, reqwest
//!   may find the connection broken and not the answer, and nobody knows what became of the request.
//! - HTTP/3 of reqwest is unstable and not looked into: its errors are unknown ones, which are not retried, may have
//!   had an effect, and are counted ([`Dependency::unclassified`]).
//! - A date in `Retry-After` is turned into a wait once. What is done to the clock during the wait has no effect.
//! - A re-send below the HTTP client stays invisible.
//!
//! # One layer retries
//!
//! Nested layers that all retry multiply each other. Here the outermost operation owns the retries of everything
//! that runs in its attempts; [`Attempt::inject`] tells the services that it calls, and [`Inbound`] reads what the
//! callers of this one said.
//!
//! # Adapters
//!
//! Behind features: `tower` (a layer for clients of HTTP services), `reqwest-middleware`, and `axum` (inbound
//! context and deadline, refusals as responses). The two for clients end an attempt with the head of its response: a
//! body that is cut or stalls afterwards is not seen, and not repeated. Read it in an attempt of [`Operation::call`]
//! where that matters.
//!
//! # Spans
//!
//! Operations and attempts are spans of `tracing` with the target `damper`, `operation` and `attempt`, with
//! `damper.dependency` and `damper.operation`; attempts from the second on have `http.request.resend_count`, failed
//! ones `error.type`, and an operation that fails `damper.reason`. They are exported by whatever exports the spans of
//! the service.
//!
//! # How it ends
//!
//! An operation that fails has exactly one [`StopReason`], the caller's own error as its source, and says whether
//! it may have taken effect all the same ([`CallError::ambiguous`]).

#[cfg(any(feature = "tower", feature = "reqwest-middleware"))]
mod adapter;
mod attempt;
#[cfg(feature = "axum")]
pub mod axum;
mod backoff;
mod classify;
mod clock;
mod context;
mod core;
mod damper;
mod deadline;
mod decide;
mod dependency;
mod emergency;
mod error;
mod failure;
#[cfg(any(test, feature = "test-util"))]
mod fake;
mod hook;
mod lease;
mod link;
mod observer;
mod opaque;
mod operation;
mod policy;
#[cfg(feature = "reqwest-middleware")]
pub mod reqwest_middleware;
mod retry_after;
mod scope;
#[cfg(feature = "test-util")]
pub mod testing;
#[cfg(test)]
mod tests;
mod totals;
#[cfg(feature = "tower")]
pub mod tower;
mod transport;
mod view;
mod wire;

/// The code in the guide and the README.
#[cfg(all(
    doctest,
    feature = "axum",
    feature = "reqwest-middleware",
    feature = "test-util",
    feature = "tower"
))]
mod guide {
    #[doc = include_str!("../../docs/client.md")]
    struct Guide;

    #[doc = include_str!("../../README.md")]
    struct Readme;
}

pub use attempt::Attempt;
pub use classify::{Classifier, Outcome, StatusRules, Verdict};
pub use context::{Context, Inbound, refuse_retries};
pub use core::MAX_DEPENDENCIES;
pub use damper::{BuildError, Builder, Damper, FlushError, Health, Reachability, ShutdownReport};
pub use damper_protocol::{
    Dispatch, FailMode, FailureClass, FailureReason, FailureSource, Mode, Reason, RecoveryMode, Totals,
};
pub use deadline::Deadline;
pub use dependency::Dependency;
pub use error::{CallError, Past, StopReason};
pub use failure::Failure;
pub use hook::{Advice, FailureEvent, Hooks};
pub use observer::Observer;
pub use opaque::Opaque;
pub use operation::{Admission, Effect, Operation, Permit};
pub use policy::{Idempotency, KeyError, Profile};
pub use scope::Scope;
