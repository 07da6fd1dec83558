//! What was measured, for people (live lines, a table, a picture) and for programs (JSON).

mod json;
mod live;
mod svg;
mod table;
mod text;

pub use json::to_json;
pub use live::Live;
pub use svg::svg;
pub use table::table;
pub use text::{bound, judgements, number, part, percent, reasons};

use crate::scenario::Scenario;
use crate::storm::Run;
use crate::verdict::{Judgement, Verdict, judge};

/// Everything about one storm.
#[derive(Clone, Debug)]
pub struct Report {
    /// The scenario as it was run.
    pub scenario: Scenario,
    /// Its ways, in the order in which they ran.
    pub runs: Vec<Run>,
    /// Its expectations.
    pub judgements: Vec<Judgement>,
}

impl Report {
    /// The report of a storm.
    #[must_use]
    pub fn new(scenario: Scenario, runs: Vec<Run>) -> Self {
        let judgements = judge(&scenario, &runs);
        Self { scenario, runs, judgements }
    }

    /// Whether a human must look: an expectation was missed, or the storm was stopped early.
    #[must_use]
    pub fn needs_a_human(&self) -> bool {
        self.runs.iter().any(|run| run.interrupted)
            || self.judgements.iter().any(|judgement| judgement.verdict == Verdict::Missed)
    }
}
