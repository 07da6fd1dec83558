//! A storm: the same traffic against the same flaky dependency, one way of retrying after the other.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep_until;

use crate::flaky;
use crate::fleet::{self, FleetError};
use crate::measure::{Recorder, Second};
use crate::scenario::{Scenario, Way};
use crate::stop::Stop;
use crate::ways::{Caller, Local, Wire};

/// What to run.
#[derive(Clone, Debug)]
pub struct Order {
    /// The scenario.
    pub scenario: Scenario,
    /// The ways, in this order.
    pub ways: Vec<Way>,
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
    /// A bug.
    #[error(transparent)]
    Fleet(#[from] FleetError),
}

/// Runs the ways of an order; stops early with what was measured if asked to.
///
/// # Errors
/// The machine has no sockets, or there is a bug.
pub async fn run(order: &Order, progress: &dyn Progress, stop: &Stop) -> Result<Vec<Run>, StormError> {
    let mut runs = Vec::new();
    for way in &order.ways {
        if stop.is_requested() {
            break;
        }
        progress.starts(*way, &order.scenario);
        runs.push(run_way(&order.scenario, *way, progress, stop.clone()).await?);
    }
    Ok(runs)
}

async fn run_way(
    scenario: &Scenario,
    way: Way,
    progress: &dyn Progress,
    mut stop: Stop,
) -> Result<Run, StormError> {
    let recorder = Arc::new(Recorder::default());
    let dependency = flaky::serve(&scenario.dependency, scenario.seed, Arc::clone(&recorder)).await?;
    let url = format!("http://{}/", dependency.address());
    let max_attempts = match way {
        Way::None => 1,
        Way::Local | Way::Damper => scenario.local.max_attempts,
    };
    let timeout = scenario.traffic.attempt_timeout();
    let callers = (0..scenario.traffic.clients)
        .map(|client| {
            let wire = Wire::new(url.clone(), Arc::clone(&recorder), timeout, max_attempts)?;
            Ok(Arc::new(match way {
                Way::None => Caller::None(wire),
                Way::Local | Way::Damper => {
                    Caller::Local(Local::new(wire, scenario.local.clone(), scenario.seed ^ client))
                }
            }))
        })
        .collect::<Result<Vec<_>, reqwest::Error>>()?;
    let duration = Duration::from_secs(scenario.duration_s);
    let outcome = tokio::select! {
        outcome = fleet::drive(&scenario.traffic, scenario.seed, duration, &callers, &recorder, &mut stop) => outcome,
        never = tick(way, &recorder, progress) => never,
    };
    outcome?;
    let seconds = recorder.seconds();
    let interrupted = stop.is_requested();
    let whole = usize::try_from(if interrupted { recorder.now().as_secs() } else { scenario.duration_s });
    let arriving = whole.unwrap_or(usize::MAX).min(seconds.len());
    Ok(Run { way, max_attempts, seconds, arriving, reasons: recorder.reasons(), interrupted })
}

/// Tells of each second shortly after it is over.
async fn tick<T>(way: Way, recorder: &Recorder, progress: &dyn Progress) -> T {
    let mut over = recorder.started();
    let mut index = 0;
    loop {
        over += Duration::from_secs(1);
        sleep_until(over + Duration::from_millis(20)).await;
        let second = recorder.seconds().get(index).copied().unwrap_or_default();
        progress.second(way, index, &second);
        index += 1;
    }
}
