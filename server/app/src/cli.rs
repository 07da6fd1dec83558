//! The command line.

mod plan;

use std::io::Write as _;
use std::net::SocketAddr;
use std::panic::catch_unwind;
use std::path::PathBuf;
use std::pin::pin;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

use crate::config::{Config, ConfigError, Sources, reference};
use crate::logs::{self, LogFormat};
use crate::serve::{self, ServeError};
use plan::{NoPlan, Question};

/// A human must look.
const LOOK: u8 = 1;
/// The command line asks for what cannot be.
const USAGE: u8 = 2;
/// A bug.
const BUG: u8 = 70;
/// Try again later.
const LATER: u8 = 75;

const ABOUT: &str = "damper owns the retry budget of a whole fleet: clients ask it before they retry";

const EXAMPLES: &str = "\
Examples:
  damper serve                          a server on 127.0.0.1:7117 that makes dependencies as they come
  damper serve --config damper.toml     what you will run
  damper check --config damper.toml     every mistake of a configuration, or what it would run
  damper plan --dependency payments     what retries cost, and what arrival rate is safe
  kill -HUP PID                         a running server reads damper.toml again; its log has every mistake
  curl 127.0.0.1:7117/                  the endpoints";

const EXIT_CODES: &str = "\
Exit codes:
  0   success
  1   a human must look: an unreadable or invalid configuration, an overrun shutdown
  2   usage
  70  a bug
  75  try again later: the address is in use, the server cannot be reached";

/// The command line.
#[derive(Debug, Parser)]
#[command(name = "damper", version, about = ABOUT, after_help = help())]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs the server until SIGTERM or Ctrl-C; SIGHUP makes it read its configuration again
    #[command(after_help = help())]
    Serve(Serve),
    /// Reads a configuration and prints every mistake, or what it would run
    #[command(after_help = help())]
    Check {
        /// The configuration, in TOML
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
    /// Prices retries: from numbers, or from what a server sees of a dependency
    #[command(after_help = plan::EXAMPLES)]
    Plan(Box<Question>),
}

#[derive(Debug, Args)]
struct Serve {
    /// The configuration, in TOML; without one, everything has its default
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where to listen, in place of server.listen
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// Listen on an address that is not loopback though nobody has to prove who they are
    #[arg(long)]
    insecure: bool,
    /// The form of the log, in place of telemetry.log_format; DAMPER_LOG says how much of it, such as debug or warn
    #[arg(long, value_name = "FORMAT", value_enum)]
    log_format: Option<LogFormat>,
}

fn help() -> String {
    let keys = reference();
    format!(
        "{EXAMPLES}\n\nConfiguration keys; all may be left out:\n{keys}\n\
         A variable sets a key: DAMPER_SERVER__LISTEN, DAMPER_DEFAULTS__RETRY__PER_S.\n\n{EXIT_CODES}"
    )
}

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error(transparent)]
    Plan(#[from] NoPlan),
    #[error("cannot start: {0}")]
    Start(#[from] std::io::Error),
}

impl Failure {
    fn code(&self) -> u8 {
        match self {
            Self::Config(_) | Self::Start(_) => LOOK,
            Self::Plan(NoPlan::Usage(_)) => USAGE,
            Self::Plan(NoPlan::Unreachable { .. } | NoPlan::Busy { .. }) => LATER,
            Self::Plan(NoPlan::Refused(_)) => LOOK,
            Self::Serve(ServeError::Panicked) => BUG,
            Self::Serve(error) if error.is_transient() => LATER,
            Self::Serve(_) => LOOK,
        }
    }
}

/// Runs the command line of this process.
#[must_use]
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    match catch_unwind(|| run(cli.command)) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(failure)) => {
            eprintln!("{failure}");
            failure.code().into()
        }
        Err(_) => BUG.into(),
    }
}

fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Check { config } => {
            let sources = Sources::default().with_file(Some(&config));
            print(&sources.with_environment(environment()).read()?.to_string());
            Ok(())
        }
        Command::Serve(args) => serve(&args),
        Command::Plan(question) => {
            print(&plan::answer(&question)?);
            Ok(())
        }
    }
}

/// Prints to standard output, which somebody may have closed. Ends the process if that cannot be done: well if the
/// reader has seen enough, with 1 otherwise.
pub fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            std::process::exit(0);
        }
        eprintln!("cannot write standard output: {error}");
        std::process::exit(1);
    }
}

fn serve(args: &Serve) -> Result<(), Failure> {
    let mut sources = Sources::default().with_file(args.config.as_deref()).with_environment(environment());
    if let Some(listen) = args.listen {
        sources = sources.with_flag("--listen", &["server", "listen"], &listen.to_string());
    }
    if args.insecure {
        sources = sources.with_flag("--insecure", &["server", "insecure"], "true");
    }
    let config = sources.read()?;
    logs::start(args.log_format.unwrap_or(config.telemetry().log_format));
    Runtime::new()?.block_on(serve_with(config))
}

async fn serve_with(config: Config) -> Result<(), Failure> {
    let (terminated, mut hangup) = (terminated()?, signal(SignalKind::hangup())?);
    let mut terminated = pin!(terminated);
    let listener = serve::bind(config.listen()).await?;
    announce(&config, listener.local_addr()?);
    let running = serve::start_on(listener, config);
    loop {
        tokio::select! {
            biased;
            () = &mut terminated => return Ok(running.shutdown().await?),
            // What is wrong is in the log, and the server runs on as before.
            Some(()) = hangup.recv() => drop(running.reload().await),
        }
    }
}

fn announce(config: &Config, address: SocketAddr) {
    let settings = config.settings();
    let dependencies: Vec<&str> = settings.dependencies.keys().map(String::as_str).collect();
    let (version, unknown) = (env!("CARGO_PKG_VERSION"), settings.unknown);
    tracing::info!(%address, version, engine = "memory", ?dependencies, ?unknown, "damper listens");
    if !address.ip().is_loopback() {
        tracing::warn!("anyone who reaches this address can spend the budget: it has no credentials");
    }
}

/// Resolves at the first SIGTERM or Ctrl-C. Later ones are caught and change nothing: what has begun to end is
/// not cut short.
fn terminated() -> std::io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
    })
}

fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

#[cfg(test)]
mod tests {
    use std::io::{Error, ErrorKind};

    use super::*;

    #[test]
    fn every_failure_has_its_exit_code() {
        let address = SocketAddr::from(([127, 0, 0, 1], 7117));
        let listen = |kind: ErrorKind| ServeError::Listen { address, source: Error::from(kind) };
        let code = |error: ServeError| Failure::from(error).code();
        assert_eq!(code(ServeError::Overrun), 1);
        assert_eq!(code(ServeError::Panicked), 70);
        assert_eq!(code(listen(ErrorKind::AddrInUse)), 75);
        assert_eq!(code(listen(ErrorKind::PermissionDenied)), 1);
        assert_eq!(Failure::from(ConfigError::Faults(Vec::new())).code(), 1);
    }
}
