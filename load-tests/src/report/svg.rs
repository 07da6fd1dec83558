//! The runs as a picture: load against the limit above, the share of failing attempts below, one column for each way.
//!
//! No background is drawn and every colour is of middle lightness, so that the picture reads on a light page and
//! on a dark one; a style sheet that follows the viewer's system would be wrong where page and system differ.

mod canvas;

use std::time::Duration;

use self::canvas::{Canvas, Chart};
use super::Report;
use crate::measure::Second;
use crate::scenario::{Dependency, Way};
use crate::storm::Run;
use crate::units::{ratio, whole};

const TEXT: &str = "#767e87";
const GRID: &str = "#8b949e";
const DEMAND: &str = "#3b82f6";
const LOAD: &str = "#e07b12";
const ERRORS: &str = "#e5484d";

const COLUMN_WIDTH: f64 = 440.0;
const LEFT: f64 = 56.0;
const CHART_WIDTH: f64 = 370.0;
const LOAD_TOP: f64 = 64.0;
const LOAD_HEIGHT: f64 = 170.0;
const ERRORS_TOP: f64 = 290.0;
const ERRORS_HEIGHT: f64 = 90.0;
const HEIGHT: f64 = 446.0;

/// Draws the runs of a report.
#[must_use]
pub fn svg(report: &Report) -> String {
    let scenario = &report.scenario;
    let width = COLUMN_WIDTH * report.runs.len().max(1) as f64 + 20.0;
    let title = format!("{}: {}", scenario.name, scenario.about);
    let mut canvas = Canvas::new(width, HEIGHT, &title);
    let top = nice(peak(report).max(limit(&scenario.dependency)) * 1.05);
    for (column, run) in report.runs.iter().enumerate() {
        let left = LEFT + COLUMN_WIDTH * column as f64;
        draw_run(&mut canvas, report, run, left, top);
    }
    legend(&mut canvas, &scenario.dependency);
    canvas.finish()
}

fn draw_run(canvas: &mut Canvas, report: &Report, run: &Run, left: f64, top: f64) {
    let scenario = &report.scenario;
    let seconds = run.seconds.get(..run.arriving).unwrap_or(&run.seconds);
    let right = scenario.duration_s as f64;
    let load =
        Chart { left, top: LOAD_TOP, width: CHART_WIDTH, height: LOAD_HEIGHT, x_max: right, y_max: top };
    let errors = Chart { top: ERRORS_TOP, height: ERRORS_HEIGHT, y_max: 100.0, ..load };
    canvas.text(left, 24.0, "start", TEXT, 16, heading(run.way));
    canvas.text(left, LOAD_TOP - 12.0, "start", TEXT, 12, "attempts per second");
    canvas.text(left, ERRORS_TOP - 10.0, "start", TEXT, 12, "attempts that fail, %");
    for chart in [&load, &errors] {
        shade_cause(canvas, chart, &scenario.dependency, scenario.duration_s);
        axes(canvas, chart);
    }
    let limit = limit(&scenario.dependency);
    canvas.dashes(&load, &[(0.0, limit), (right, limit)], TEXT);
    canvas.area(&load, &points(seconds, |second| Some(second.physical() as f64)), LOAD);
    canvas.curve(&load, &points(seconds, |second| Some(second.offered as f64)), DEMAND);
    canvas.dashes(&errors, &cause(&scenario.dependency, scenario.duration_s), TEXT);
    let share = |second: &Second| ratio(second.errors(), second.ended()).map(|share| share * 100.0);
    canvas.area(&errors, &points(seconds, share), ERRORS);
}

const fn heading(way: Way) -> &'static str {
    match way {
        Way::Local => "without damper: each client retries by itself",
        Way::Damper => "with damper: one retry budget for the fleet",
        other => other.about(),
    }
}

/// Each second's figure at the middle of the second.
fn points(seconds: &[Second], figure: impl Fn(&Second) -> Option<f64>) -> Vec<(f64, f64)> {
    let placed = seconds
        .iter()
        .enumerate()
        .filter_map(|(index, second)| figure(second).map(|value| (index as f64 + 0.5, value)));
    placed.collect()
}

/// The failure share over time as a line with steps, in percent.
fn cause(dependency: &Dependency, duration_s: u64) -> Vec<(f64, f64)> {
    let second = |second: u64| {
        let share = dependency.phase(Duration::from_secs(second)).failure_share * 100.0;
        [(second as f64, share), ((second + 1) as f64, share)]
    };
    (0..duration_s).flat_map(second).collect()
}

fn shade_cause(canvas: &mut Canvas, chart: &Chart, dependency: &Dependency, duration_s: u64) {
    let fails = |second: u64| dependency.phase(Duration::from_secs(second)).failure_share > 0.0;
    let from = (0..duration_s).find(|second| fails(*second));
    let until = (0..duration_s).rev().find(|second| fails(*second));
    if let (Some(from), Some(until)) = (from, until) {
        canvas.band(chart, from as f64, (until + 1) as f64, GRID);
    }
}

fn axes(canvas: &mut Canvas, chart: &Chart) {
    for part in 0..=2_u32 {
        let value = chart.y_max * f64::from(part) / 2.0;
        canvas.rule(chart, value, GRID);
        canvas.label_y(chart, value, TEXT);
    }
    let step = nice(chart.x_max / 4.0).max(1.0);
    for tick in 0..=whole((chart.x_max / step).floor()) {
        canvas.label_x(chart, tick as f64 * step, TEXT);
    }
}

fn legend(canvas: &mut Canvas, dependency: &Dependency) {
    let y = HEIGHT - 18.0;
    let limit = format!("limit, {}/s; the dependency's own failures", limit(dependency));
    let entries =
        [(DEMAND, "operations"), (LOAD, "attempts"), (ERRORS, "failing attempts"), (TEXT, limit.as_str())];
    let mut x = LEFT;
    for (colour, text) in entries {
        canvas.swatch(x, y, colour, colour == TEXT);
        canvas.text(x + 30.0, y, "start", TEXT, 12, text);
        x += 60.0 + text.chars().count() as f64 * 6.5;
    }
}

/// What the dependency or the account bears, whichever is less.
fn limit(dependency: &Dependency) -> f64 {
    let capacity = dependency.capacity_per_s;
    dependency.account.as_ref().map_or(capacity, |account| account.per_s.min(capacity))
}

fn peak(report: &Report) -> f64 {
    report.runs.iter().flat_map(|run| &run.seconds).map(Second::physical).max().unwrap_or(0) as f64
}

/// The next of 1, 2, 2.5, 5 and 10 times a power of ten.
fn nice(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let power = 10_f64.powf(value.log10().floor());
    let fits = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().map(|step| step * power).find(|step| *step >= value);
    fits.unwrap_or(power * 10.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::load;

    fn report(ways: &[Way]) -> Report {
        let second = Second {
            offered: 41,
            by_attempt: [41, 5, 0, 0, 0, 0, 0, 0],
            ok: 40,
            unavailable: 6,
            ..Second::default()
        };
        let run = |way: &Way| Run {
            way: *way,
            max_attempts: 4,
            seconds: vec![second; 30],
            arriving: 30,
            reasons: Default::default(),
            interrupted: false,
            server: None,
        };
        Report::new(load("incident-0312").unwrap(), ways.iter().map(run).collect())
    }

    #[test]
    fn there_is_a_column_for_each_way_and_every_element_is_closed() {
        for ways in [&[][..], &[Way::Damper], &[Way::Local, Way::Damper]] {
            let svg = svg(&report(ways));
            assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
            let opened = svg.matches("<text").count();
            assert_eq!(opened, svg.matches("</text>").count());
            assert_eq!(svg.matches("attempts per second").count(), ways.len());
            assert!(!svg.contains("NaN") && !svg.contains("inf"));
        }
    }

    #[test]
    fn no_figure_leaves_its_chart() {
        let chart = Chart { left: 0.0, top: 10.0, width: 100.0, height: 50.0, x_max: 10.0, y_max: 1.0 };
        assert_eq!(chart.place(5.0, 0.5), (50.0, 35.0));
        assert_eq!(chart.place(20.0, 7.0), (100.0, 10.0));
    }

    #[test]
    fn scales_end_at_round_numbers() {
        assert_eq!(
            [0.0, 1.0, 41.0, 178.5, 180.0, 210.0, 999.0].map(nice),
            [1.0, 1.0, 50.0, 200.0, 200.0, 250.0, 1000.0]
        );
    }
}
