//! What came of a drill, for people (a table, a page with charts) and for programs (JSON, CSV).

mod chart;
mod data;
mod html;
mod table;

pub use data::{csv, json};
pub use html::html;
pub use table::{judgements, table};

use super::judge::Judgement;
use super::trial::Trial;
use crate::scenario::Scenario;

/// Everything about one scenario's drill.
#[derive(Clone, Debug)]
pub struct Report {
    /// The scenario.
    pub scenario: Scenario,
    /// Its trials, in the order in which they were planned.
    pub trials: Vec<Trial>,
    /// Its expectations.
    pub judgements: Vec<Judgement>,
}

impl Report {
    /// The trials with the scenario's own seed: one for each way and size of the fleet.
    fn shown(&self) -> impl Iterator<Item = &Trial> {
        self.trials.iter().filter(|trial| trial.seed == self.scenario.seed)
    }

    /// When the trouble starts: the first change of the dependency or of the arrivals, else the start.
    fn onset_s(&self) -> usize {
        let dependency = self.scenario.dependency.phases.iter().map(|phase| phase.from_s);
        let arrivals = self.scenario.traffic.phases.iter().map(|phase| phase.from_s);
        let first = dependency.chain(arrivals).filter(|from_s| *from_s > 0.0).min_by(f64::total_cmp);
        usize::try_from(crate::units::whole(first.unwrap_or(0.0).floor())).unwrap_or(usize::MAX)
    }
}
