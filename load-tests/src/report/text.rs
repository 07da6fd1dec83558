//! Figures as text.

use std::fmt::Write as _;

use super::Report;
use crate::scenario::Measure;
use crate::verdict::{Judgement, Verdict};

/// What stands for a figure that nothing was measured for.
const NOTHING: &str = "-";

/// A number with so many decimals.
#[must_use]
pub fn number(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(|| NOTHING.to_owned(), |value| format!("{value:.decimals$}"))
}

/// A share in percent.
#[must_use]
pub fn percent(share: Option<f64>, decimals: usize) -> String {
    share.map_or_else(|| NOTHING.to_owned(), |share| format!("{:.decimals$} %", share * 100.0))
}

fn figure(measure: Measure, value: Option<f64>) -> String {
    if measure.is_share() { percent(value, 2) } else { number(value, 2) }
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
    let verdict = match judgement.verdict {
        Verdict::Met => "met       ",
        Verdict::Missed => "MISSED    ",
        Verdict::NotJudged => "not judged",
    };
    let figure = |value| figure(judgement.measure, value);
    let bound = bound(judgement.at_least, judgement.at_most, figure);
    let part = part(judgement.from_s, judgement.until_s);
    let (way, measure) = (judgement.way.as_str(), judgement.measure.as_str());
    format!("{verdict}  {way:<6}  {measure} is {}, expected {bound}{part}", figure(judgement.value))
}

/// What a bound asks for; `figure` writes its numbers.
#[must_use]
pub fn bound(at_least: Option<f64>, at_most: Option<f64>, figure: impl Fn(Option<f64>) -> String) -> String {
    match (at_least, at_most) {
        (Some(least), Some(most)) => format!("{} to {}", figure(Some(least)), figure(Some(most))),
        (Some(least), None) => format!("at least {}", figure(Some(least))),
        (None, Some(most)) => format!("at most {}", figure(Some(most))),
        (None, None) => String::new(),
    }
}

/// The part of a run that a bound is about, with a space before it; nothing for all of it.
#[must_use]
pub fn part(from_s: Option<u64>, until_s: Option<u64>) -> String {
    match (from_s, until_s) {
        (Some(from), Some(until)) => format!(" in seconds {from} to {until}"),
        (Some(from), None) => format!(" from second {from}"),
        (None, Some(until)) => format!(" until second {until}"),
        (None, None) => String::new(),
    }
}

/// Why retries were not sent at once, way by way; empty if there is nothing to say.
#[must_use]
pub fn reasons(report: &Report) -> String {
    let told = report.runs.iter().filter(|run| !run.reasons.is_empty());
    told.fold(String::new(), |mut lines, run| {
        let list = run.reasons.iter().map(|(reason, count)| format!("{reason} {count}"));
        let list = list.collect::<Vec<_>>().join(", ");
        let _ = writeln!(lines, "{}: retries by reason: {list}", run.way.as_str());
        lines
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Way;

    #[test]
    fn a_line_says_what_was_expected_and_what_came() {
        let judgement = Judgement {
            way: Way::Damper,
            measure: Measure::FirstSuccess,
            value: Some(0.881),
            at_least: Some(0.8685),
            at_most: Some(0.8915),
            from_s: Some(5),
            until_s: None,
            verdict: Verdict::Met,
        };
        assert_eq!(
            line(&judgement),
            "met         damper  first_success is 88.10 %, expected 86.85 % to 89.15 % from second 5"
        );
        let missed = Judgement {
            measure: Measure::ExecutedWorstS,
            value: Some(31.0),
            at_least: None,
            at_most: Some(20.0),
            from_s: None,
            verdict: Verdict::Missed,
            ..judgement
        };
        assert_eq!(line(&missed), "MISSED      damper  executed_worst_s is 31.00, expected at most 20.00");
    }
}
