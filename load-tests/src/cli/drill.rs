//! Carries out `drill`.

use damper_server::cli::print;
use indicatif::{ProgressBar, ProgressStyle};

use super::run::{look, write};
use super::{Drill, End};
use crate::drill::{self, DrillError, Order, Report};
use crate::report;
use crate::scenario::{self, Scenario, ScenarioError, Way};
use crate::storm::Run;

/// Why there is no drill.
#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    #[error(transparent)]
    Drill(#[from] DrillError),
    #[error("{0}")]
    Output(String),
}

pub(super) fn run(args: &Drill) -> End {
    let reports = match drill_all(args) {
        Ok(reports) => reports,
        Err(Failed::Drill(error @ DrillError::Fleet(_))) => {
            look(&error.to_string());
            return End::Bug;
        }
        Err(error) => return look(&error.to_string()),
    };
    let missed = reports.iter().flat_map(|report| &report.judgements).filter(|one| !one.is_met()).count();
    if args.check {
        let all: usize = reports.iter().map(|report| report.judgements.len()).sum();
        print(&format!("{} of {all} expectations met in {} scenarios\n", all - missed, reports.len()));
        if all == 0 {
            return look("nothing was checked: no scenario expects anything of the ways that were tried");
        }
    }
    if args.check && missed > 0 { End::Look } else { End::Success }
}

fn drill_all(args: &Drill) -> Result<Vec<Report>, Failed> {
    must_be_writable(args)?;
    let orders = wanted(args)?.into_iter().map(|scenario| order(args, scenario));
    let orders = orders.collect::<Result<Vec<_>, _>>()?;
    let bar = bar(orders.iter().map(|order| order.trials.len()).sum());
    let mut reports = Vec::new();
    for order in orders {
        let name = order.scenario.name.clone();
        let trials = drill::run(&order, &|done| {
            bar.set_message(format!(
                "{name}: {}, {} clients, seed {}",
                done.way.as_str(),
                done.clients,
                done.seed
            ));
            bar.inc(1);
        })?;
        let judgements = drill::judge(&order.scenario, &trials);
        let report = Report { scenario: order.scenario, trials, judgements };
        bar.suspend(|| show(args, &report));
        reports.push(report);
    }
    bar.finish_and_clear();
    write_files(args, &reports).map_err(Failed::Output)?;
    Ok(reports)
}

/// A mistake in a path is worth knowing before minutes have passed.
fn must_be_writable(args: &Drill) -> Result<(), Failed> {
    for path in [&args.html, &args.json, &args.csv, &args.svg].into_iter().flatten() {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        if path.is_dir() || folder.is_some_and(|folder| !folder.is_dir()) {
            return Err(Failed::Output(format!(
                "cannot write {}: no such folder, or a folder",
                path.display()
            )));
        }
    }
    Ok(())
}

fn wanted(args: &Drill) -> Result<Vec<Scenario>, ScenarioError> {
    let named = match args.scenario.is_empty() {
        true => scenario::embedded().map(|(name, _)| name.to_owned()).collect(),
        false => args.scenario.clone(),
    };
    let scenarios = named.iter().map(|name| scenario::load(name)).collect::<Result<Vec<_>, _>>()?;
    let short = |scenario: &Scenario| scenario.drill.short || !args.short || !args.scenario.is_empty();
    Ok(scenarios.into_iter().filter(short).collect())
}

fn order(args: &Drill, mut scenario: Scenario) -> Result<Order, DrillError> {
    scenario.seed = args.seed.unwrap_or(scenario.seed);
    let seeds = if args.check && !args.short { scenario.drill.seeds } else { 1 };
    scenario.drill.seeds = args.seeds.unwrap_or(seeds);
    if args.check {
        scenario.drill.ways.clear();
    }
    let config = drill::policy_of(&scenario, args.config.as_deref())?;
    let only = (!args.way.is_empty()).then_some(args.way.as_slice());
    Ok(Order { trials: drill::plan(&scenario, only), scenario, config })
}

fn bar(trials: usize) -> ProgressBar {
    let bar = ProgressBar::new(u64::try_from(trials).unwrap_or(u64::MAX));
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} trials, {elapsed} | {msg}");
    style.map_or(bar.clone(), |style| bar.with_style(style))
}

fn show(args: &Drill, report: &Report) {
    let scenario = &report.scenario;
    let table = if args.check { String::new() } else { format!("\n{}\n", drill::table(report)) };
    let (name, about, judgements) = (&scenario.name, &scenario.about, drill::judgements(report));
    print(&format!("{name}: {about}\n{table}{judgements}\n"));
}

fn write_files(args: &Drill, reports: &[Report]) -> Result<(), String> {
    if let Some(path) = &args.html {
        write(path, &drill::html(reports))?;
    }
    if let Some(path) = &args.json {
        write(path, &drill::json(reports).map_err(|error| error.to_string())?)?;
    }
    if let Some(path) = &args.csv {
        write(path, &drill::csv(reports))?;
    }
    if let (Some(path), Some(last)) = (&args.svg, reports.last()) {
        write(path, &report::svg(&side_by_side(last)))?;
    }
    Ok(())
}

/// The ways of a storm, as one would report them.
fn side_by_side(report: &Report) -> report::Report {
    let largest = report.trials.iter().map(|trial| trial.clients).max();
    let shown = Way::STORM.into_iter().filter_map(|way| {
        let seed = report.scenario.seed;
        report
            .trials
            .iter()
            .find(|trial| (trial.way, trial.seed, Some(trial.clients)) == (way, seed, largest))
    });
    let runs = shown.map(|trial| Run {
        way: trial.way,
        max_attempts: crate::ways::rules::attempts_of(&report.scenario, trial.way),
        seconds: trial.seconds.clone(),
        arriving: trial.arriving,
        reasons: trial.reasons.clone(),
        interrupted: false,
        server: trial.server.clone(),
    });
    report::Report::new(report.scenario.clone(), runs.collect())
}
