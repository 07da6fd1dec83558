//! The table in the terminal.

use std::fmt::Write as _;

use super::Report;
use crate::drill::{Judgement, Trial};
use crate::measure::Span;
use crate::report::{bound, number, part, percent};
use crate::scenario::{Measure, Way};

/// One line for each way and size of the fleet, and what the columns are.
#[must_use]
pub fn table(report: &Report) -> String {
    let onset = report.onset_s();
    let mut rows = vec![HEADINGS.map(str::to_owned)];
    rows.extend(report.shown().map(|trial| row(report, trial, onset)));
    let mut widths = [0; HEADINGS.len()];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (index, (cell, width)) in row.iter().zip(widths).enumerate() {
            let _ = match index {
                0 => write!(line, "{cell:<width$}"),
                _ => write!(line, "  {cell:>width$}"),
            };
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
    let _ = writeln!(text, "\n{}", LEGEND.replace("{onset}", &onset.to_string()));
    text
}

const HEADINGS: [&str; 11] = [
    "way",
    "clients",
    "success",
    "first 10 s",
    "worst 1 s",
    "last 10 s",
    "attempts/s",
    "retries",
    "delayed",
    "shed",
    "recovers",
];

const LEGEND: &str = "success: operations started from second {onset} on that succeed; first 10 s, worst 1 s, last 10 s: \
attempts per operation then; delayed, shed: retries that waited in damper's queue, and that were refused or expired; \
recovers: seconds after the trouble.";

fn row(report: &Report, trial: &Trial, onset: usize) -> [String; HEADINGS.len()] {
    let end = trial.arriving;
    let value = |measure, from: usize, until: usize| {
        trial.reading(measure, from, until, report.scenario.drill.over_s).map(|reading| reading.value)
    };
    let amplification = |from, until| number(value(Measure::Amplification, from, until), 3);
    let total = *Span::of_run(&trial.seconds, end).total();
    [
        trial.way.as_str().to_owned(),
        trial.clients.to_string(),
        percent(value(Measure::Fulfilled, onset, end), 2),
        amplification(onset, onset + 10),
        number(value(Measure::AmplificationWorstS, onset, end), 2),
        amplification(end.saturating_sub(10), end),
        number(value(Measure::PhysicalPerS, onset, end), 1),
        total.executed().to_string(),
        if trial.way == Way::Damper { total.delayed.to_string() } else { "-".to_owned() },
        (total.shed + total.expired).to_string(),
        number(value(Measure::RecoveryS, 0, end), 0),
    ]
}

/// One line for each expectation: met or missed, and the figures.
#[must_use]
pub fn judgements(report: &Report) -> String {
    report.judgements.iter().fold(String::new(), |mut lines, judgement| {
        let _ = writeln!(lines, "{}", line(judgement));
        lines
    })
}

fn line(judgement: &Judgement) -> String {
    let verdict = if judgement.is_met() { "met   " } else { "MISSED" };
    let (way, measure) = (judgement.way.as_str(), judgement.measure);
    let figure = |value| if measure.is_share() { percent(value, 2) } else { number(value, 3) };
    let values = match (judgement.lowest, judgement.highest) {
        (Some(lowest), Some(highest)) if lowest < highest => {
            format!("{} to {}", figure(Some(lowest)), figure(Some(highest)))
        }
        (lowest, _) => figure(lowest),
    };
    let bound = bound(judgement.at_least, judgement.at_most, figure);
    let part = part(judgement.from_s, judgement.until_s);
    let trials = match (judgement.trials, judgement.missed_with) {
        (1, _) => String::new(),
        (all, None) => format!(" in all of {all} trials"),
        (all, Some((seed, clients))) => {
            format!(" in {} of {all} trials, not with seed {seed} and {clients} clients", judgement.held)
        }
    };
    format!("{verdict}  {way:<6}  {} is {values}, expected {bound}{part}{trials}", measure.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_the_trial_that_fell_short() {
        let judgement = Judgement {
            way: Way::Damper,
            measure: Measure::Amplification,
            lowest: Some(1.01),
            highest: Some(1.06),
            at_least: None,
            at_most: Some(1.05),
            from_s: Some(30),
            until_s: Some(40),
            held: 29,
            trials: 30,
            missed_with: Some((7, 1000)),
        };
        assert_eq!(
            line(&judgement),
            "MISSED  damper  amplification is 1.010 to 1.060, expected at most 1.050 in seconds 30 to 40 in 29 of 30 \
             trials, not with seed 7 and 1000 clients"
        );
        let met = Judgement { held: 30, missed_with: None, highest: Some(1.01), ..judgement };
        assert!(line(&met).starts_with("met     damper  amplification is 1.010, expected at most 1.050"));
        assert!(line(&met).ends_with("in all of 30 trials"));
    }
}
