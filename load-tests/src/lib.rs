//! Proves what damper does: on real sockets and in real time, and in virtual time against every peer.
//!
//! A [`scenario`] describes a flaky dependency, a fleet of clients and what is expected. [`storm`] runs the same
//! traffic three [`ways`] on sockets: without retries, with local retries, and with damper. [`drill`] runs it in
//! virtual time, with the retry budgets in use today beside them. What happens is counted by [`measure`], put side
//! by side by [`report`] and held against the expectations by [`verdict`].

pub mod cli;
pub mod drill;
pub mod flaky;
pub mod fleet;
pub mod measure;
pub mod report;
pub mod scenario;
pub mod server;
pub mod stop;
pub mod storm;
pub mod units;
pub mod verdict;
pub mod ways;
