//! The report as JSON: the figures of the table, and what was counted in every second.

use std::collections::BTreeMap;

use damper_protocol::DependencyState;
use serde::Serialize;

use super::Report;
use crate::measure::{Second, Span, expected_amplification};
use crate::scenario::{Event, Measure, Way};
use crate::storm::Run;
use crate::verdict::Judgement;

#[derive(Serialize)]
struct Document<'a> {
    scenario: &'a str,
    about: &'a str,
    seed: u64,
    duration_s: u64,
    arrival_per_s: f64,
    capacity_per_s: f64,
    account_per_s: Option<f64>,
    events: &'a [Event],
    ways: Vec<WayDocument<'a>>,
    expectations: &'a [Judgement],
}

#[derive(Serialize)]
struct WayDocument<'a> {
    way: Way,
    interrupted: bool,
    arriving_s: usize,
    figures: BTreeMap<&'static str, Option<f64>>,
    expected_amplification: Option<f64>,
    totals: Second,
    reasons: &'a BTreeMap<String, u64>,
    seconds: &'a [Second],
    server: Option<&'a DependencyState>,
}

/// The report as one JSON document.
///
/// # Errors
/// None in practice: it holds nothing that JSON cannot.
pub fn to_json(report: &Report) -> serde_json::Result<String> {
    let scenario = &report.scenario;
    let document = Document {
        scenario: &scenario.name,
        about: &scenario.about,
        seed: scenario.seed,
        duration_s: scenario.duration_s,
        arrival_per_s: scenario.traffic.arrival_per_s,
        capacity_per_s: scenario.dependency.capacity_per_s,
        account_per_s: scenario.dependency.account.as_ref().map(|account| account.per_s),
        events: &scenario.events,
        ways: report.runs.iter().map(|run| way(report, run)).collect(),
        expectations: &report.judgements,
    };
    serde_json::to_string_pretty(&document)
}

fn way<'a>(report: &'a Report, run: &'a Run) -> WayDocument<'a> {
    let span = Span::of_run(&run.seconds, run.arriving);
    let figure = |measure: Measure| (measure.as_str(), span.reading(measure).map(|reading| reading.value));
    WayDocument {
        way: run.way,
        interrupted: run.interrupted,
        arriving_s: run.arriving,
        figures: Measure::ALL.map(figure).into(),
        expected_amplification: expected_amplification(
            &run.seconds,
            &report.scenario.dependency,
            run.max_attempts,
        ),
        totals: *span.total(),
        reasons: &run.reasons,
        seconds: &run.seconds,
        server: run.server.as_ref(),
    }
}
