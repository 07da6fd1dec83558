//! The clients of a way.

use std::sync::Arc;

use super::StormError;
use crate::flaky::Flaky;
use crate::measure::Recorder;
use crate::scenario::{Scenario, Way};
use crate::ways::{Caller, Damper, Local, Wire};

/// Attempts of a policy that does not say.
const DEFAULT_ATTEMPTS: u32 = 4;

/// Attempts that a way's policy allows to an operation.
pub(super) fn attempts_of(scenario: &Scenario, way: Way) -> u32 {
    let policy = || scenario.damper.get("max_attempts")?.as_integer()?.try_into().ok();
    match way {
        Way::None => 1,
        Way::Local => scenario.local.max_attempts,
        Way::Damper => policy().unwrap_or(DEFAULT_ATTEMPTS),
    }
}

/// All clients of a way, each with its own connections and identity.
pub(super) fn callers(
    scenario: &Scenario,
    way: Way,
    dependency: &Flaky,
    server: &str,
    recorder: &Arc<Recorder>,
) -> Result<Vec<Arc<Caller>>, StormError> {
    let url = format!("http://{}/", dependency.address());
    let (timeout, attempts) = (scenario.traffic.attempt_timeout(), attempts_of(scenario, way));
    let caller = |client: u64| {
        let wire = Wire::new(url.clone(), Arc::clone(recorder), timeout, attempts)?;
        Ok(Arc::new(match way {
            Way::None => Caller::None(wire),
            Way::Local => Caller::Local(Local::new(wire, scenario.local.clone(), scenario.seed ^ client)),
            Way::Damper => {
                let (id, name) = (format!("load-{client}"), &scenario.dependency.name);
                Caller::Damper(Damper::new(wire, recorder, server, &id, name)?)
            }
        }))
    };
    (0..scenario.traffic.clients).map(caller).collect()
}
