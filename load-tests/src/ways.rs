//! The ways of retrying. They differ in nothing but what happens between two attempts: arrivals, attempts and
//! measurement are the fleet's and the wire's, one code path for all.

mod alone;
mod damper;
pub mod rules;
mod wire;

pub use alone::Alone;
pub use damper::{Damper, Layer};
pub use wire::{Operation, Road, Wire};

/// One client of the fleet and its way of retrying.
#[derive(Debug)]
pub enum Caller {
    /// By a rule that it follows by itself.
    Alone(Alone),
    /// Through damper.
    Damper(Damper),
}

impl Caller {
    /// Carries out an operation to its end, and records it.
    pub async fn carry_out(&self, operation: &Operation) {
        let (wire, success) = match self {
            Self::Alone(client) => (client.wire(), client.carry_out(operation).await),
            Self::Damper(client) => (client.wire(), client.carry_out(operation).await),
        };
        wire.recorder().ended(operation.started(), operation.first_ok(), success);
    }
}
