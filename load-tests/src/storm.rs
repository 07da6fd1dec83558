//! A storm: the same traffic against the same flaky dependency, one way of retrying after the other.

mod fleet_of;
mod run;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use damper_protocol::DependencyState;

use crate::fleet::FleetError;
use crate::measure::Second;
use crate::scenario::{Scenario, Way};
use crate::server::{Server, ServerError};
use crate::stop::Stop;

/// What to run.
#[derive(Clone, Debug)]
pub struct Order {
    /// The scenario.
    pub scenario: Scenario,
    /// The ways, in this order.
    pub ways: Vec<Way>,
    /// The server of the way `damper`.
    pub server: ServerChoice,
}

/// Which server the way `damper` uses.
#[derive(Clone, Debug)]
pub enum ServerChoice {
    /// One in this process, on this address, with the scenario's policy.
    Own(SocketAddr),
    /// One that runs already, with the policy that it has.
    Running(String),
}

/// Hears what goes on while it goes on.
pub trait Progress {
    /// A way starts.
    fn starts(&self, way: Way, scenario: &Scenario);
    /// A second is over.
    fn second(&self, way: Way, index: usize, second: &Second);
    /// Something worth a line happened.
    fn note(&self, text: &str);
}

/// What was measured of one way.
#[derive(Clone, Debug)]
pub struct Run {
    /// The way.
    pub way: Way,
    /// Attempts that its policy allows to an operation.
    pub max_attempts: u32,
    /// Counts by second, the seconds of the last answers included.
    pub seconds: Vec<Second>,
    /// Seconds in which operations arrived.
    pub arriving: usize,
    /// Why retries were delayed, refused or expired.
    pub reasons: BTreeMap<String, u64>,
    /// Whether it was stopped early.
    pub interrupted: bool,
    /// What the damper server had counted in the end.
    pub server: Option<DependencyState>,
}

/// Why a storm could not be run to its end.
#[derive(Debug, thiserror::Error)]
pub enum StormError {
    /// No socket for the dependency.
    #[error("the flaky dependency has no socket: {0}")]
    Socket(#[from] std::io::Error),
    /// No HTTP client.
    #[error("no HTTP client: {0}")]
    Http(#[from] reqwest::Error),
    /// No damper client.
    #[error("no damper client: {0}")]
    Client(#[from] damper_client::BuildError),
    /// No damper server.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// A running server cannot be killed from here.
    #[error("the scenario kills and starts its server; that needs the server in this process, not --server")]
    ForeignServer,
    /// Nobody is there: a storm would measure the emergency limiter and call it damper.
    #[error("no damper server is ready at {url}: {why}; start one with `damper serve`")]
    NotReady {
        /// The address that was given.
        url: String,
        /// What it said.
        why: String,
    },
    /// A bug.
    #[error(transparent)]
    Fleet(#[from] FleetError),
}

/// Runs the ways of an order; stops early with what was measured if asked to.
///
/// # Errors
/// The machine has no sockets, the policy is none, or there is a bug.
pub async fn run(order: &Order, progress: &dyn Progress, stop: &Stop) -> Result<Vec<Run>, StormError> {
    if let ServerChoice::Running(url) = &order.server {
        must_be_ready(url).await?;
    }
    let mut server = server(order, progress)?;
    let mut runs = Vec::new();
    for way in &order.ways {
        if stop.is_requested() {
            break;
        }
        progress.starts(*way, &order.scenario);
        runs.push(run::run_way(order, *way, &mut server, progress, stop.clone()).await?);
    }
    if let Some(server) = &mut server {
        server.kill().await?;
    }
    Ok(runs)
}

async fn must_be_ready(url: &str) -> Result<(), StormError> {
    let client = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(5)).build()?;
    let answer = client.get(format!("{url}/readyz")).send().await;
    match answer.and_then(reqwest::Response::error_for_status) {
        Ok(_) => Ok(()),
        Err(error) => Err(StormError::NotReady { url: url.to_owned(), why: error.to_string() }),
    }
}

/// The server of this process, if one is needed. It starts before the first way, so that it can be looked at.
fn server(order: &Order, progress: &dyn Progress) -> Result<Option<Server>, StormError> {
    match &order.server {
        ServerChoice::Own(address) if order.ways.contains(&Way::Damper) => {
            let server = Server::start(*address, &order.scenario)?;
            let (url, name) = (server.url(), &order.scenario.dependency.name);
            progress.note(&format!("damper listens: {url}/metrics and {url}/v1/dependencies/{name}"));
            Ok(Some(server))
        }
        ServerChoice::Running(_) if !order.scenario.events.is_empty() => Err(StormError::ForeignServer),
        _ => Ok(None),
    }
}
