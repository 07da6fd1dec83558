//! The drill as JSON and as CSV.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use damper_protocol::DependencyState;
use serde::Serialize;

use super::Report;
use crate::drill::{Judgement, Trial};
use crate::measure::{Second, Span};
use crate::scenario::{Measure, Way};

#[derive(Serialize)]
struct Document<'a> {
    scenario: &'a str,
    about: &'a str,
    duration_s: u64,
    onset_s: usize,
    trials: Vec<TrialDocument<'a>>,
    expectations: &'a [Judgement],
}

#[derive(Serialize)]
struct TrialDocument<'a> {
    way: Way,
    clients: u64,
    seed: u64,
    figures: BTreeMap<&'static str, f64>,
    totals: Second,
    reasons: &'a BTreeMap<String, u64>,
    breaker: Vec<Transition>,
    server: Option<&'a DependencyState>,
    seconds: &'a [Second],
}

#[derive(Serialize)]
struct Transition {
    at_ms: u64,
    state: &'static str,
}

/// The drills as one JSON document: an array with one element for each scenario.
///
/// # Errors
/// None in practice: it holds nothing that JSON cannot.
pub fn json(reports: &[Report]) -> serde_json::Result<String> {
    let documents: Vec<Document<'_>> = reports.iter().map(document).collect();
    serde_json::to_string_pretty(&documents).map(|text| text + "\n")
}

fn document(report: &Report) -> Document<'_> {
    Document {
        scenario: &report.scenario.name,
        about: &report.scenario.about,
        duration_s: report.scenario.duration_s,
        onset_s: report.onset_s(),
        trials: report.trials.iter().map(|trial| trial_document(report, trial)).collect(),
        expectations: &report.judgements,
    }
}

fn trial_document<'a>(report: &Report, trial: &'a Trial) -> TrialDocument<'a> {
    let figure = |measure: &Measure| {
        let reading = trial.reading(*measure, 0, trial.arriving, report.scenario.drill.over_s)?;
        Some((measure.as_str(), reading.value))
    };
    let transition = |(at, state): &(std::time::Duration, damper_protocol::BreakerState)| Transition {
        at_ms: u64::try_from(at.as_millis()).unwrap_or(u64::MAX),
        state: state.as_str(),
    };
    TrialDocument {
        way: trial.way,
        clients: trial.clients,
        seed: trial.seed,
        figures: Measure::ALL.iter().filter_map(figure).collect(),
        totals: *Span::of_run(&trial.seconds, trial.arriving).total(),
        reasons: &trial.reasons,
        breaker: trial.breaker.iter().map(transition).collect(),
        server: trial.server.as_ref(),
        seconds: &trial.seconds,
    }
}

/// The drills as CSV: one line for each second of each trial.
#[must_use]
pub fn csv(reports: &[Report]) -> String {
    let mut text = format!("scenario,way,clients,seed,second,{}\n", COLUMNS.map(|(name, _)| name).join(","));
    for report in reports {
        for trial in &report.trials {
            for (index, second) in trial.seconds.iter().enumerate() {
                let (name, way) = (field(&report.scenario.name), trial.way.as_str());
                let _ = write!(text, "{name},{way},{},{},{index}", trial.clients, trial.seed);
                for (_, count) in COLUMNS {
                    let _ = write!(text, ",{}", count(second));
                }
                text.push('\n');
            }
        }
    }
    text
}

/// Text as a field, by RFC 4180: in quotes where a comma, a quote or the end of a line would end it too early.
fn field(text: &str) -> Cow<'_, str> {
    if text.contains([',', '"', '\r', '\n']) {
        Cow::Owned(format!("\"{}\"", text.replace('"', "\"\"")))
    } else {
        Cow::Borrowed(text)
    }
}

type Column = (&'static str, fn(&Second) -> u64);

const COLUMNS: [Column; 14] = [
    ("operations", |second| second.offered),
    ("attempts", Second::physical),
    ("retries", Second::executed),
    ("delayed", |second| second.delayed),
    ("expired", |second| second.expired),
    ("shed", |second| second.shed),
    ("ok", |second| second.ok),
    ("unavailable", |second| second.unavailable),
    ("rate_limited", |second| second.rate_limited),
    ("timeouts", |second| second.timeouts),
    ("wrong", |second| second.wrong),
    ("recovered", |second| second.recovered),
    ("failed", |second| second.failed),
    ("fulfilled", |second| second.fulfilled),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// The first field of a record, as RFC 4180 reads it, and what follows.
    fn read(record: &str) -> (String, &str) {
        let Some(mut rest) = record.strip_prefix('"') else {
            let end = record.find([',', '\r', '\n']).unwrap_or(record.len());
            return (record[..end].to_owned(), &record[end..]);
        };
        let mut text = String::new();
        loop {
            let (before, after) = rest.split_once('"').unwrap();
            text.push_str(before);
            let Some(doubled) = after.strip_prefix('"') else { return (text, after) };
            text.push('"');
            rest = doubled;
        }
    }

    #[test]
    fn plain_text_is_left_alone() {
        for plain in ["c1-outage", "two words", "Ωμέγα", "it's"] {
            assert_eq!(field(plain), plain);
        }
        assert_eq!(field("a, \"b\"\nc"), "\"a, \"\"b\"\"\nc\"");
    }

    #[test]
    fn every_text_is_read_as_it_was_written() {
        let mut texts = vec![String::new()];
        for length in 0..5 {
            let longer = texts.iter().filter(|text| text.len() == length);
            let longer: Vec<String> = longer
                .flat_map(|text| ['a', ' ', ',', '"', '\r', '\n'].map(|last| format!("{text}{last}")))
                .collect();
            texts.extend(longer);
        }
        assert_eq!(texts.len(), 9331);
        for text in texts {
            assert_eq!(read(&format!("{},damper,10", field(&text))), (text, ",damper,10"));
        }
    }
}
