//! Retries that draw on the budget of the whole fleet.
//!
//! A retry is extra load on a dependency that is already in trouble. A budget in each process is multiplied by
//! the number of processes; damper keeps one for all of them, in a server, and this crate makes obeying it one
//! line. It asks before each retry, waits out the backoff in the server's queue, stops at a breaker that the
//! fleet shares, and reports what it did. A healthy call pays nothing for it but a few atomic counts, and
//! without a server everything goes on, with a small local budget.
//!
//! ```
//! use std::time::Duration;
//!
//! use damper_client::{Damper, Failure, FailureClass, Idempotency};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let damper = Damper::builder("http://127.0.0.1:7117").tenant("checkout").build()?;
//! let payments = damper.dependency("payments");
//!
//! # let damper = Damper::inert();
//! # let payments = damper.dependency("payments");
//! let receipt = payments
//!     .operation("charge")
//!     .idempotency(Idempotency::keyed("order-4711"))
//!     .deadline(Duration::from_secs(2))
//!     .call(|attempt| async move {
//!         // The real call goes here, with attempt.idempotency_key() on it.
//!         match attempt.number() {
//!             1.. => Ok("receipt"),
//!             _ => Err(Failure::new(FailureClass::Transient)),
//!         }
//!     })
//!     .await?;
//!
//! assert_eq!(receipt, "receipt");
//! assert_eq!(payments.totals().success, 1);
//! damper.shutdown(Duration::from_secs(1)).await;
//! # Ok(())
//! # }
//! ```
//!
//! # What is retried
//!
//! Only what is `transient` or `rate_limited`, and only if a repeat does no harm: the operation says that it may
//! be repeated ([`Idempotency`]), or the attempt provably had no effect. What an error means is read from its
//! chain of sources: a [`Failure`] is believed first, then reqwest, hyper and I/O errors are understood. An error
//! that nobody understands is never retried. A [`Classifier`] goes before all of these.
//!
//! An HTTP response with an error status is not an error yet; [`Failure::from_http`] makes it one, its
//! `Retry-After` included, and [`StatusRules`] says what a dependency does differently. With the feature `http2`,
//! resets of HTTP/2 streams are understood too.
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
//! context and deadline, refusals as responses).
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
pub use operation::{Admission, Effect, Operation, Permit};
pub use policy::{Idempotency, Profile};
pub use scope::Scope;
