//! The page with charts: one file that needs nothing else.

use std::fmt::Write as _;

use plotters::style::RGBColor;

use super::chart::{Chart, Curve};
use super::{Report, judgements, table};
use crate::drill::Trial;
use crate::measure::Second;
use crate::scenario::Way;
use crate::units::ratio;

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:1100px;margin:2rem auto;padding:0 1rem;color:#222}\
h1{font-size:1.6rem}h2{margin-top:3rem;border-top:1px solid #ddd;padding-top:1rem}pre{overflow-x:auto;background:#f6f6f6;\
padding:.8rem;font-size:12.5px;line-height:1.45}svg{max-width:100%;height:auto}.missed{color:#b00020}.charts{display:grid;\
grid-template-columns:repeat(auto-fit,minmax(480px,1fr));gap:1rem}";

const SIZE: (u32, u32) = (620, 340);

/// All drills on one page.
#[must_use]
pub fn html(reports: &[Report]) -> String {
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>damper drill</title>\n<style>{STYLE}</style>\
         </head><body>\n<h1>damper drill</h1>\n<p>The same traffic, one way of retrying after the other, in virtual time. \
         One line for each way; shaded is the time of the trouble.</p>\n"
    );
    for report in reports {
        section(&mut page, report);
    }
    page.push_str("</body></html>\n");
    page
}

fn section(page: &mut String, report: &Report) {
    let (name, about) = (escaped(&report.scenario.name), escaped(&report.scenario.about));
    let _ = writeln!(page, "<h2 id=\"{name}\">{name}</h2>\n<p>{about}</p>");
    let judged = escaped(&judgements(report));
    let class =
        if report.judgements.iter().all(crate::drill::Judgement::is_met) { "" } else { " class=\"missed\"" };
    if !judged.is_empty() {
        let _ = writeln!(page, "<pre{class}>{judged}</pre>");
    }
    let _ = writeln!(page, "<pre>{}</pre>\n<div class=\"charts\">", escaped(&table(report)));
    for chart in charts(report) {
        page.push_str(&chart.svg());
    }
    page.push_str("</div>\n");
}

/// The charts of a scenario: one fleet, its largest.
fn charts(report: &Report) -> Vec<Chart<'_>> {
    let largest = report.shown().map(|trial| trial.clients).max().unwrap_or(0);
    let shown: Vec<&Trial> = report.shown().filter(|trial| trial.clients == largest).collect();
    let over = |title, unit, figure: &dyn Fn(&Second) -> Option<f64>| Chart {
        title,
        unit,
        curves: shown.iter().map(|trial| curve(trial, figure)).collect(),
        limit: None,
        trouble: trouble(report),
        size: SIZE,
    };
    let mut load =
        over("Load: attempts at the dependency", "per second", &|second| Some(second.physical() as f64));
    if let Some(trial) = shown.first() {
        let demand = curve(trial, &|second| Some(second.offered as f64));
        load.curves.insert(
            0,
            Curve { name: "operations".to_owned(), color: RGBColor(0, 0, 0), strong: false, ..demand },
        );
    }
    let capacity = report.scenario.dependency.capacity_per_s;
    load.limit = Some(("capacity", capacity));
    let mut charts = vec![
        load,
        over("Amplification: attempts per operation", "", &|second| ratio(second.physical(), second.offered)),
        over("Success: operations started then that succeed", "share", &|second| {
            ratio(second.fulfilled, second.offered)
        }),
    ];
    charts.extend(shown.iter().find(|trial| trial.way == Way::Damper).map(|trial| decisions(report, trial)));
    charts
}

/// What damper made of the retries that were wanted.
fn decisions<'a>(report: &Report, trial: &Trial) -> Chart<'a> {
    type Figure = fn(&Second) -> u64;
    let kinds: [(&str, RGBColor, Figure); 4] = [
        ("executed", RGBColor(0, 110, 60), Second::executed),
        ("of these delayed", RGBColor(120, 190, 120), |second| second.delayed),
        ("shed", RGBColor(200, 60, 50), |second| second.shed),
        ("expired", RGBColor(230, 160, 60), |second| second.expired),
    ];
    let curve = |(name, color, figure): &(&str, RGBColor, Figure)| Curve {
        name: (*name).to_owned(),
        color: *color,
        strong: false,
        points: points(trial, &|second| Some(figure(second) as f64)),
    };
    Chart {
        title: "Retries by damper's decision",
        unit: "per second",
        curves: kinds.iter().map(curve).collect(),
        limit: None,
        trouble: trouble(report),
        size: SIZE,
    }
}

/// From the first change to the moment at which it is over, or to the end.
fn trouble(report: &Report) -> (f64, f64) {
    let until = report.scenario.drill.over_s.unwrap_or(report.scenario.duration_s);
    (report.onset_s() as f64, until as f64)
}

fn curve(trial: &Trial, figure: &dyn Fn(&Second) -> Option<f64>) -> Curve {
    Curve {
        name: trial.way.as_str().to_owned(),
        color: color(trial.way),
        strong: trial.way == Way::Damper,
        points: points(trial, figure),
    }
}

/// Each second's figure at the middle of the second.
fn points(trial: &Trial, figure: &dyn Fn(&Second) -> Option<f64>) -> Vec<(f64, f64)> {
    let seconds = trial.seconds.iter().take(trial.arriving).enumerate();
    seconds.filter_map(|(index, second)| Some((index as f64 + 0.5, figure(second)?))).collect()
}

const fn color(way: Way) -> RGBColor {
    match way {
        Way::None => RGBColor(150, 150, 150),
        Way::Fixed => RGBColor(214, 39, 40),
        Way::Local => RGBColor(255, 127, 14),
        Way::Finagle => RGBColor(148, 103, 189),
        Way::Grpc => RGBColor(140, 86, 75),
        Way::Envoy => RGBColor(227, 119, 194),
        Way::Aws20 => RGBColor(188, 189, 34),
        Way::Aws21 => RGBColor(150, 150, 20),
        Way::Sre => RGBColor(23, 190, 207),
        Way::SreAdaptive => RGBColor(10, 120, 140),
        Way::Breaker => RGBColor(230, 180, 80),
        Way::Bucket => RGBColor(100, 140, 200),
        Way::Shared => RGBColor(31, 119, 180),
        Way::Damper => RGBColor(0, 130, 70),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
