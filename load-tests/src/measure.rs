//! What is counted while a way runs, second by second, and the figures that follow from it.
//!
//! Three counters stay distinct, as everywhere in damper: operations (what users intended), attempts (load on
//! the dependency, counted where they arrive) and operations that recovered.

mod record;
mod span;

pub use record::{ATTEMPT_BUCKETS, Answer, Outcome, Recorder, Refusal, Second};
pub use span::{Reading, Span, expected_amplification};
