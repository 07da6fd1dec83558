//! The ways of retrying. They differ in nothing but what happens between two attempts: arrivals, attempts and
//! measurement are the fleet's and the wire's, one code path for all.

mod damper;
mod local;
mod wire;

pub use damper::Damper;
pub use local::Local;
pub use wire::{Operation, Wire};

/// One client of the fleet and its way of retrying.
#[derive(Debug)]
pub enum Caller {
    /// One attempt, whatever comes of it.
    None(Wire),
    /// Its own retries.
    Local(Local),
    /// Retries that damper grants.
    Damper(Damper),
}

impl Caller {
    /// Carries out an operation to its end, and records it.
    pub async fn carry_out(&self, operation: &Operation) {
        let (wire, success) = match self {
            Self::None(wire) => (wire, wire.attempt(operation, 1).await == crate::measure::Outcome::Success),
            Self::Local(local) => (local.wire(), local.carry_out(operation).await),
            Self::Damper(damper) => (damper.wire(), damper.carry_out(operation).await),
        };
        wire.recorder().ended(operation.first_ok(), success);
    }
}
