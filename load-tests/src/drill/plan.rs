//! Which trials a drill consists of, and running them.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use damper_server::Config;
use parking_lot::Mutex;

use super::trial::{DrillError, Trial};
use crate::fleet::Members;
use crate::scenario::{Measure, Scenario, Way};

/// One trial to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planned {
    /// The way.
    pub way: Way,
    /// Clients of the fleet.
    pub clients: u64,
    /// The seed.
    pub seed: u64,
}

/// What to run.
#[derive(Clone, Debug)]
pub struct Order {
    /// The scenario.
    pub scenario: Scenario,
    /// The damper server's configuration.
    pub config: Config,
    /// The trials, in this order.
    pub trials: Vec<Planned>,
}

/// The trials of a scenario: its ways, or these alone, for every size of the fleet. A way that something is expected
/// of is tried with every seed, the others with the first, for comparison.
#[must_use]
pub fn plan(scenario: &Scenario, only: Option<&[Way]>) -> Vec<Planned> {
    let drill = &scenario.drill;
    let members = u64::try_from(Members::of(&scenario.traffic).clients.len()).unwrap_or(u64::MAX);
    let fleets = if drill.clients.is_empty() { vec![members] } else { drill.clients.clone() };
    let mut trials = Vec::new();
    for way in Way::ALL {
        let of_scenario = drill.ways.contains(&way) || is_judged(scenario, way);
        if !only.map_or(of_scenario, |only| only.contains(&way)) {
            continue;
        }
        let seeds = if is_judged(scenario, way) { drill.seeds } else { 1 };
        for clients in &fleets {
            let planned = |seed| Planned { way, clients: *clients, seed: scenario.seed.wrapping_add(seed) };
            trials.extend((0..seeds).map(planned));
        }
    }
    trials
}

/// Whether something is expected of the way, or of another one compared with it.
fn is_judged(scenario: &Scenario, way: Way) -> bool {
    let compared = |bounds: &std::collections::BTreeMap<Measure, _>| {
        way == Way::None && bounds.contains_key(&Measure::RecoveryBeyondNoneS)
    };
    scenario.expect.contains_key(&way) || scenario.expect.values().any(compared)
}

/// Runs the trials on all cores, each of them on one; `done` hears of each as it ends.
///
/// # Errors
/// The first that a trial had.
pub fn run(order: &Order, done: &(dyn Fn(&Planned) + Sync)) -> Result<Vec<Trial>, DrillError> {
    let next = AtomicUsize::new(0);
    let results: Vec<Mutex<Option<Result<Trial, DrillError>>>> =
        order.trials.iter().map(|_| Mutex::new(None)).collect();
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(order.trials.len().max(1));
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Relaxed);
                    let (Some(planned), Some(result)) = (order.trials.get(index), results.get(index)) else {
                        return;
                    };
                    *result.lock() = Some(Trial::run(&order.scenario, *planned, &order.config));
                    done(planned);
                }
            });
        }
    });
    results.into_iter().filter_map(Mutex::into_inner).collect()
}
