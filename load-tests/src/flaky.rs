//! The flaky dependency: a small HTTP server that fails in the ways that matter to a retry budget.
//!
//! # The model
//!
//! - **Capacity.** One queue, worked off at `capacity_per_s`. An attempt is booked at the end of the queue when it
//!   arrives and is answered when its turn is over plus `latency_ms`. A queue of `queue_limit` attempts is full;
//!   one more is refused with 503 at once. Nobody tells a booked attempt that its caller has hung up: the work
//!   is done for nothing. That is how an overloaded service collapses, and it is the same for all callers.
//! - **Failures.** An attempt that was worked off fails with 503 with the `failure_share` of the current phase.
//!   Whether it does follows from the seed, the operation's number and the attempt's number alone, so all ways of
//!   retrying meet the same failures. A failure costs as much capacity as a success.
//!   With `poison_share` some operations fail in every attempt, and with `wrong_share` some attempts succeed with an
//!   answer that is wrong.
//! - **Latency** is fixed or spread exponentially, and grows by `collapse_ms` with each attempt that is under way:
//!   a dependency that collapses under concurrency. Attempts whose caller has hung up are under way like any other.
//! - **Phases** change the failures, the capacity and the latency: partial failures, brown-outs, outages.
//! - **Account limit.** At most `per_s x window` requests in a sliding window, beyond it 429 and a Retry-After in
//!   whole seconds, at least 1. With `counts_refused` a refused request counts in the window like any other:
//!   some providers of metered interfaces say so in their documentation, and it is what turns a small excess
//!   into a lasting one, since whoever keeps sending above the limit is refused altogether. Without it such a client
//!   is served at the limit. The incident depends on it: with `counts_refused = false` the same fleet suffers for as
//!   long as the provider does and is well again with it; clients that honour Retry-After collapse all the same.
//! - **Refusals are cheap, not free.** Each 429, and each 503 of a full queue, takes `refusal_cost` of an attempt's
//!   work from the capacity.
//!
//! The model knows nothing about who retries or why. It is a state machine over `now`; [`serve`] gives it a socket.

mod account;
mod desk;
mod model;
mod server;

pub use account::AccountLimit;
pub use desk::Desk;
pub use model::{Model, Reply, Verdict};
pub use server::{ATTEMPT_HEADER, Flaky, OPERATION_HEADER, WRONG, serve};
