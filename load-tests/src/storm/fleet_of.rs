//! The clients of a way.

use std::sync::Arc;

use super::StormError;
use crate::flaky::Flaky;
use crate::fleet::Members;
use crate::measure::Recorder;
use crate::scenario::{Above, Scenario, Way};
use crate::ways::rules::{Source, attempts_of};
use crate::ways::{Alone, Caller, Damper, Layer, Road, Wire};

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
    let members = Members::of(&scenario.traffic);
    let rules = Source::of(scenario, way);
    let caller = |(client, tenant): (u64, &usize)| {
        let wire = Wire::new(Road::http(url.clone())?, Arc::clone(recorder), *tenant, timeout, attempts);
        if way != Way::Damper {
            return Ok(Arc::new(Caller::Alone(Alone::new(wire, rules.rule(), scenario.seed ^ client))));
        }
        let owner = members.tenants.get(*tenant).map_or("load", String::as_str);
        let client = Damper::setup(recorder, server, owner, &format!("load-{client}")).build()?;
        let layer = match scenario.traffic.above {
            Above::Nobody => Layer::Nobody,
            Above::Damper => Layer::Damper(client.dependency(FRONT)),
            Above::Foreign => Layer::Foreign,
        };
        Ok(Arc::new(Caller::Damper(Damper::new(wire, client, &scenario.dependency.name, layer))))
    };
    (0..).zip(&members.clients).map(caller).collect()
}

/// What the layer above calls the service that its operations go to.
const FRONT: &str = "front";
