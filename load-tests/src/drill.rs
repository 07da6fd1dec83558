//! The drill: scenarios in virtual time, against every peer.
//!
//! A trial runs one way of retrying with one seed: the real server application and real clients, joined by a link
//! without sockets, against the modelled dependency. The clock is tokio's, paused: it jumps to the next moment at
//! which anything happens, so that a minute passes in a fraction of a second, and the same seed does the same in every
//! run. [`run`] plans and runs trials, [`judge`] holds them against the scenario's expectations.

mod figures;
mod judge;
mod link;
mod plan;
mod report;
mod server;
mod trial;

pub use judge::{Judgement, judge};
pub use plan::{Order, Planned, plan, run};
pub use report::{Report, csv, html, json, judgements, table};
pub use server::policy_of;
pub use trial::{DrillError, Trial};
