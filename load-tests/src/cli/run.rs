//! Carries out a command.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

use damper_server::cli::print;

use super::{Demo, End, Output, Storm};
use crate::report::{self, Live, Report};
use crate::scenario::{self, Way};
use crate::stop;
use crate::storm::{self, Order, ServerChoice, StormError};

/// The scenario of the demo.
const DEMO: &str = "incident-0312";

/// Any free port of this machine, reachable from nowhere else.
const ANY_PORT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Runs a command that hears of Ctrl-C and SIGTERM.
pub(super) fn until_stopped(command: impl AsyncFnOnce(&stop::Stop) -> End) -> End {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return look(&format!("no runtime: {error}")),
    };
    runtime.block_on(async {
        let (stopper, stop) = stop::pair();
        tokio::select! {
            end = command(&stop) => end,
            Err(error) = stopper.stop_on_signals() => look(&format!("cannot listen for signals: {error}")),
        }
    })
}

pub(super) async fn run_storm(args: Storm, stop: &stop::Stop) -> End {
    let mut scenario = match scenario::load(&args.scenario) {
        Ok(scenario) => scenario,
        Err(error) => return look(&error.to_string()),
    };
    scenario.seed = args.seed.unwrap_or(scenario.seed);
    scenario.duration_s = args.duration.unwrap_or(scenario.duration_s);
    let ways = args.only.map_or_else(|| Way::STORM.to_vec(), |way| vec![way]);
    let server = args.server.map_or(ServerChoice::Own(ANY_PORT), ServerChoice::Running);
    let order = Order { scenario, ways, server };
    match storm::run(&order, &Live, stop).await {
        Ok(runs) => conclude(&Report::new(order.scenario, runs), &args.output),
        Err(error) => failed(&error),
    }
}

pub(super) async fn run_demo(args: Demo, stop: &stop::Stop) -> End {
    let scenario = match scenario::load(DEMO) {
        Ok(scenario) => scenario,
        Err(error) => return look(&error.to_string()),
    };
    let address = args.listen.unwrap_or_else(usual_address);
    let server = ServerChoice::Own(address);
    eprintln!("{}\n", scenario.about);
    let order = Order { scenario, ways: vec![Way::Local, Way::Damper], server };
    match storm::run(&order, &Live, stop).await {
        Ok(runs) => {
            let end = conclude(&Report::new(order.scenario, runs), &args.output);
            if stop.is_requested() { End::Success } else { end }
        }
        Err(error) => failed(&error),
    }
}

pub(super) fn show_scenarios(wanted: Option<&str>) -> End {
    let Some(wanted) = wanted else {
        for (name, text) in scenario::embedded() {
            let about = scenario::parse(name, text).map_or_else(|error| error.to_string(), |it| it.about);
            print(&format!("{name:<20}{about}\n"));
        }
        return End::Success;
    };
    match scenario::embedded().find(|(name, _)| *name == wanted) {
        Some((_, text)) => {
            print(text);
            End::Success
        }
        None => look(&format!("no built-in scenario `{wanted}`; `damper-load scenarios` lists them")),
    }
}

/// The address that documentation speaks of, or any port if another process has it.
fn usual_address() -> SocketAddr {
    let usual = damper_protocol::DEFAULT_ADDRESS;
    match usual.parse().ok().filter(|address| std::net::TcpListener::bind::<SocketAddr>(*address).is_ok()) {
        Some(address) => address,
        None => {
            eprintln!("{usual} is taken: using another port");
            ANY_PORT
        }
    }
}

/// Prints and writes the report.
fn conclude(report: &Report, output: &Output) -> End {
    let (name, about) = (&report.scenario.name, &report.scenario.about);
    let (table, reasons) = (report::table(report), report::reasons(report));
    print(&format!("\n{name}: {about}\n\n{table}\n{reasons}{}\n", report::judgements(report)));
    if let Err(why) = write_files(report, output) {
        return look(&why);
    }
    if report.needs_a_human() { End::Look } else { End::Success }
}

fn write_files(report: &Report, output: &Output) -> Result<(), String> {
    if let Some(path) = &output.json {
        write(path, &report::to_json(report).map_err(|error| error.to_string())?)?;
    }
    if let Some(path) = &output.svg {
        write(path, &report::svg(report))?;
    }
    Ok(())
}

pub(super) fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

pub(super) fn look(why: &str) -> End {
    eprintln!("damper-load: {why}");
    End::Look
}

fn failed(error: &StormError) -> End {
    eprintln!("damper-load: {error}");
    if matches!(error, StormError::Fleet(_)) { End::Bug } else { End::Look }
}
