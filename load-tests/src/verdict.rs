//! Whether what a scenario expects has come true.

use serde::Serialize;

use crate::measure::{Reading, Span};
use crate::scenario::{Bound, Measure, Scenario, Way};
use crate::storm::Run;

/// The outcome of one expectation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It holds.
    Met,
    /// It does not.
    Missed,
    /// The run did not cover what it is about.
    NotJudged,
}

/// One expectation, judged.
#[derive(Clone, Debug, Serialize)]
pub struct Judgement {
    /// The way that it is about.
    pub way: Way,
    /// What is measured.
    pub measure: Measure,
    /// The figure, if anything happened that it could be taken from.
    pub value: Option<f64>,
    /// The lower bound with its tolerance.
    pub at_least: Option<f64>,
    /// The upper bound with its tolerance.
    pub at_most: Option<f64>,
    /// First second that counts.
    pub from_s: Option<u64>,
    /// Second before which counting stops.
    pub until_s: Option<u64>,
    /// The outcome.
    pub verdict: Verdict,
}

/// Judges all expectations about ways that were run.
#[must_use]
pub fn judge(scenario: &Scenario, runs: &[Run]) -> Vec<Judgement> {
    let run_of = |way| runs.iter().find(|run| run.way == way);
    let expected = scenario.expect.iter().filter_map(|(way, bounds)| Some((run_of(*way)?, bounds)));
    expected
        .flat_map(|(run, bounds)| bounds.iter().map(|(measure, bound)| one(run, *measure, bound)))
        .collect()
}

/// The limits that a bound sets to a reading, its tolerance for samples included.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// No less than this.
    pub at_least: Option<f64>,
    /// No more than this.
    pub at_most: Option<f64>,
}

impl Limits {
    /// The limits for this reading.
    #[must_use]
    pub fn of(bound: &Bound, reading: &Reading) -> Self {
        let tolerance = |limit: f64| bound.sigmas * reading.standard_error(limit);
        Self {
            at_least: bound.at_least.map(|limit| limit - tolerance(limit)),
            at_most: bound.at_most.map(|limit| limit + tolerance(limit)),
        }
    }

    /// Whether a figure keeps within them.
    #[must_use]
    pub fn hold(&self, value: f64) -> bool {
        self.at_least.is_none_or(|limit| value >= limit) && self.at_most.is_none_or(|limit| value <= limit)
    }
}

fn one(run: &Run, measure: Measure, bound: &Bound) -> Judgement {
    let (reading, covered) = reading(run, measure, bound);
    let without = Limits { at_least: bound.at_least, at_most: bound.at_most };
    let limits = reading.map_or(without, |reading| Limits::of(bound, &reading));
    let Limits { at_least, at_most } = limits;
    let value = reading.map(|reading| reading.value);
    let verdict = match value {
        _ if !covered => Verdict::NotJudged,
        Some(value) if limits.hold(value) => Verdict::Met,
        Some(_) | None => Verdict::Missed,
    };
    let (from_s, until_s) = (bound.from_s, bound.until_s);
    Judgement { way: run.way, measure, value, at_least, at_most, from_s, until_s, verdict }
}

/// The figure, and whether the run covered all that the bound is about.
fn reading(run: &Run, measure: Measure, bound: &Bound) -> (Option<Reading>, bool) {
    if measure.is_of_drills() {
        return (None, false);
    }
    if bound.from_s.is_none() && bound.until_s.is_none() {
        return (Span::of_run(&run.seconds, run.arriving).reading(measure), !run.interrupted);
    }
    let index = |second: u64| usize::try_from(second).unwrap_or(usize::MAX);
    let from = bound.from_s.map_or(0, index);
    let until = bound.until_s.map_or(run.arriving, index);
    let covered = from < until && until <= run.arriving && (bound.until_s.is_some() || !run.interrupted);
    let seconds = run.seconds.get(from..until.min(run.arriving)).unwrap_or_default();
    (Span::over(seconds).reading(measure), covered)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Second;

    fn run(seconds: usize, interrupted: bool) -> Run {
        let second = Second { offered: 100, first_ok: 88, affected: 12, ..Second::default() };
        Run {
            way: Way::Damper,
            max_attempts: 4,
            seconds: vec![second; seconds],
            arriving: seconds,
            reasons: Default::default(),
            interrupted,
            server: None,
        }
    }

    fn bound() -> Bound {
        Bound { at_least: Some(0.90), ..Bound::default() }
    }

    #[test]
    fn a_bound_is_met_or_missed() {
        let judged = one(&run(10, false), Measure::FirstSuccess, &bound());
        assert_eq!((judged.verdict, judged.value), (Verdict::Missed, Some(0.88)));
        let lower = Bound { at_least: Some(0.88), at_most: Some(0.88), ..Bound::default() };
        assert_eq!(one(&run(10, false), Measure::FirstSuccess, &lower).verdict, Verdict::Met);
    }

    #[test]
    fn sampling_error_widens_a_bound() {
        let wide = Bound { sigmas: 3.0, ..bound() };
        let judged = one(&run(10, false), Measure::FirstSuccess, &wide);
        assert_eq!(judged.verdict, Verdict::Met, "three standard errors of 1,000 are 0.028");
        assert!((judged.at_least.unwrap() - 0.8715).abs() < 1e-3);
    }

    #[test]
    fn what_the_run_did_not_cover_is_not_judged() {
        assert_eq!(one(&run(10, true), Measure::FirstSuccess, &bound()).verdict, Verdict::NotJudged);
        let early = Bound { until_s: Some(5), ..bound() };
        assert_eq!(one(&run(10, true), Measure::FirstSuccess, &early).verdict, Verdict::Missed);
        let late = Bound { from_s: Some(8), until_s: Some(12), ..bound() };
        assert_eq!(one(&run(10, false), Measure::FirstSuccess, &late).verdict, Verdict::NotJudged);
    }

    #[test]
    fn a_figure_that_nothing_was_measured_for_is_missed() {
        let nothing = one(&run(10, false), Measure::ErrorShare, &bound());
        assert_eq!((nothing.verdict, nothing.value), (Verdict::Missed, None));
    }
}
