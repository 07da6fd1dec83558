//! The command line.

mod drill;
mod run;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::scenario::Way;

const AFTER_HELP: &str = "\
Scenarios of storms that are part of the binary (`damper-load scenarios` lists those of drills too):
  chapter-r2      120 operations/s, 12 % failures, capacity 130/s, a shared pool of 10 retries/s   (60 s each way)
  incident-0312   the 03:12 incident: 41 runs, one failure in eight, an account limit            (30 s each way)
  server-killed   the damper server dies in the middle of a partial outage and comes back        (50 s each way)

Examples:
  damper-load demo
  damper-load drill --scenario c1-outage --html drill.html
  damper-load drill --check
  damper-load demo --svg incident.svg
  damper-load storm --scenario incident-0312
  damper-load storm --scenario chapter-r2 --only damper --json r2.json
  damper-load scenarios chapter-r2 > my.toml
  damper-load storm --scenario my.toml --seed 7 --duration 20

Live lines go to standard error, the closing table to standard output. Ctrl-C stops a storm early and still prints
what was measured; a drill ends at once.

Exit codes: 0 success; 1 a human must look: an expectation missed, a storm stopped early, or a scenario that cannot
be read; 2 wrong usage; 70 a bug.";

/// Proves what damper does: the same traffic without retries, with local retries, with damper. `storm` does it on real
/// sockets, `drill` in virtual time.
#[derive(Debug, Parser)]
#[command(name = "damper-load", version, after_help = AFTER_HELP)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Shows the 03:12 incident twice, a minute in all: without damper, and with it. Start here.
    ///
    /// Forty-one runs call a provider that starts to answer 503 to one call in eight. Left to themselves their
    /// retries drive the account over its rate limit, and it stays there when the provider is well again. The
    /// second half runs the same traffic with a damper server in this process. Nothing is written to disk
    /// unless asked for.
    Demo(Demo),
    /// Runs a scenario three ways, one after the other, and compares them.
    #[command(after_help = AFTER_HELP)]
    Storm(Storm),
    /// Runs scenarios in virtual time, damper beside the retry budgets in use today.
    ///
    /// A minute of traffic takes a second or so, and the same seed gives the same figures, byte for byte. The real
    /// server and real clients run, joined without sockets; dependencies and peers are models. Start with
    /// `damper-load drill --scenario c1-outage`.
    #[command(after_help = DRILL_HELP)]
    Drill(Drill),
    /// Lists the built-in scenarios, or prints one as a file to start from.
    Scenarios {
        /// The one to print.
        name: Option<String>,
    },
}

#[derive(Debug, Args)]
struct Storm {
    /// The name of a built-in scenario, or a TOML file.
    #[arg(long, value_name = "NAME|FILE")]
    scenario: String,
    /// Run one way alone.
    #[arg(long, value_enum)]
    only: Option<Way>,
    /// Use this damper server with the policy that it has, instead of one in this process.
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// Other random draws than the scenario's.
    #[arg(long)]
    seed: Option<u64>,
    /// Seconds for each way, instead of the scenario's.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    duration: Option<u64>,
    #[command(flatten)]
    output: Output,
}

const DRILL_HELP: &str = "\
Examples:
  damper-load drill                                          every built-in scenario, all ways, one seed each
  damper-load drill --scenario c3-tight --html tight.html    one of them, with charts
  damper-load drill --check                                  whether every expectation holds, with all seeds
  damper-load drill --scenario c1-outage --way finagle --way damper --seeds 5
  damper-load scenarios c3-tight > mine.toml                 then edit the figures of your own dependency:
  damper-load drill --scenario mine.toml --config damper.toml

With --config the damper server runs with your own file, in place of the scenario's [damper]; the dependency's name in
the scenario must be the one in the file. Scenarios of storms can be drilled too, and are by default. docs/drill.md says how to read the table, and how each peer is modelled.

Exit codes: 0 success; 1 a human must look: an expectation missed (with --check), or something that cannot be read;
2 wrong usage; 70 a bug.";

#[derive(Debug, Args)]
struct Drill {
    /// The name of a built-in scenario, or a TOML file; may be repeated. Default: all built-in ones.
    #[arg(long, value_name = "NAME|FILE")]
    scenario: Vec<String>,
    /// Try the ways alone that something is expected of, with all seeds, and exit with 1 if anything falls short.
    #[arg(long)]
    check: bool,
    /// Only the scenarios that are marked as short, with one seed each: a minute in all.
    #[arg(long)]
    short: bool,
    /// This way alone; may be repeated. Default: those of the scenario.
    #[arg(long, value_enum, value_name = "WAY")]
    way: Vec<Way>,
    /// The first seed, instead of the scenario's.
    #[arg(long)]
    seed: Option<u64>,
    /// Try so many seeds. Default: one, with --check those of the scenario.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=100))]
    seeds: Option<u64>,
    /// The damper server's configuration, in place of the scenario's [damper].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Write a page with charts, one self-contained file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write everything that was measured, second by second.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the counts by second as a table.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Draw the ways none, local and damper of the last scenario side by side.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct Demo {
    /// Where the damper server listens; without this option, another free port if the default is taken.
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, Args)]
struct Output {
    /// Write everything that was measured, second by second.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw the runs side by side.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// How a command ended; the exit codes that all damper tools share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Success,
    Look,
    Bug,
}

impl From<End> for ExitCode {
    fn from(end: End) -> Self {
        Self::from(match end {
            End::Success => 0,
            End::Look => 1,
            End::Bug => 70,
        })
    }
}

/// Runs the command line of this process.
#[must_use]
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    // The panic has been printed by then; what is left to say is that it is nobody's fault but ours.
    std::panic::catch_unwind(|| match cli.command {
        Command::Drill(args) => drill::run(&args),
        Command::Scenarios { name } => run::show_scenarios(name.as_deref()),
        Command::Demo(args) => run::until_stopped(async |stop| run::run_demo(args, stop).await),
        Command::Storm(args) => run::until_stopped(async |stop| run::run_storm(args, stop).await),
    })
    .unwrap_or(End::Bug)
    .into()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_built_in_storm_is_in_the_help() {
        for (name, _) in crate::scenario::STORMS {
            assert!(AFTER_HELP.contains(name), "{name}");
        }
    }
}
