//! Carries out a command.

use std::path::Path;

use super::{Cli, Command, End, Output, Storm};
use crate::report::{self, Live, Report};
use crate::scenario::{self, Way};
use crate::stop;
use crate::storm::{self, Order, StormError};

pub(super) fn run(cli: Cli) -> End {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return look(&format!("no runtime: {error}")),
    };
    runtime.block_on(async {
        let (stopper, stop) = stop::pair();
        let command = async {
            match cli.command {
                Command::Storm(args) => run_storm(args, &stop).await,
            }
        };
        tokio::select! {
            end = command => end,
            Err(error) = stopper.stop_on_signals() => look(&format!("cannot listen for signals: {error}")),
        }
    })
}

async fn run_storm(args: Storm, stop: &stop::Stop) -> End {
    let mut scenario = match scenario::load(&args.scenario) {
        Ok(scenario) => scenario,
        Err(error) => return look(&error.to_string()),
    };
    scenario.seed = args.seed.unwrap_or(scenario.seed);
    scenario.duration_s = args.duration.unwrap_or(scenario.duration_s);
    let ways = args.only.map_or_else(|| Way::ALL.to_vec(), |way| vec![way]);
    let order = Order { scenario, ways };
    match storm::run(&order, &Live, stop).await {
        Ok(runs) => conclude(&Report::new(order.scenario, runs), &args.output),
        Err(error) => failed(&error),
    }
}

/// Prints and writes the report.
fn conclude(report: &Report, output: &Output) -> End {
    println!("\n{}: {}\n", report.scenario.name, report.scenario.about);
    println!("{}", report::table(report));
    print!("{}", report::reasons(report));
    println!("{}", report::judgements(report));
    if let Err(why) = write_files(report, output) {
        return look(&why);
    }
    if report.needs_a_human() { End::Look } else { End::Success }
}

fn write_files(report: &Report, output: &Output) -> Result<(), String> {
    let write = |path: &Path, text: String| {
        std::fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
    };
    if let Some(path) = &output.json {
        write(path, report::to_json(report).map_err(|error| error.to_string())?)?;
    }
    if let Some(path) = &output.svg {
        write(path, report::svg(report))?;
    }
    Ok(())
}

fn look(why: &str) -> End {
    eprintln!("damper-load: {why}");
    End::Look
}

fn failed(error: &StormError) -> End {
    eprintln!("damper-load: {error}");
    if matches!(error, StormError::Fleet(_)) { End::Bug } else { End::Look }
}
