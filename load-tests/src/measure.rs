//! What is counted while a way runs, second by second, and the figures that follow from it.
//!
//! Three counters stay distinct, as everywhere in damper: operations (what users intended), attempts (load on
//! the dependency, counted where they arrive) and operations that recovered.

mod outcome;
mod record;
mod second;
mod span;

pub use outcome::{Answer, Outcome, Refusal};
pub use record::Recorder;
pub use second::{ATTEMPT_BUCKETS, Second};
pub use span::{Reading, Span, expected_amplification};
