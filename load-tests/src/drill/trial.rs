//! One way of retrying with one seed, in virtual time.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use damper_client::testing::client_on;
use damper_protocol::{BreakerState, DependencyState};
use damper_server::Config;
use tokio::time::sleep_until;

use super::link::Link;
use super::plan::Planned;
use super::server::Server;
use crate::flaky::Desk;
use crate::fleet::{self, FleetError, Members};
use crate::measure::{Recorder, Second};
use crate::scenario::{Above, Action, Event, Scenario, Way};
use crate::stop;
use crate::ways::rules::{Source, attempts_of};
use crate::ways::{Alone, Caller, Damper, FRONT, Layer, Road, Wire};

/// What came of a trial.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The way.
    pub way: Way,
    /// Its clients.
    pub clients: u64,
    /// Its seed.
    pub seed: u64,
    /// Counts by second, the seconds of the last answers included.
    pub seconds: Vec<Second>,
    /// Seconds in which operations arrived.
    pub arriving: usize,
    /// Why retries were delayed, refused or expired.
    pub reasons: BTreeMap<String, u64>,
    /// When attempts arrived at the dependency.
    pub arrivals: Vec<Duration>,
    /// Retries by tenant and second.
    pub retries_by_tenant: Vec<Vec<u64>>,
    /// When the breaker of the fleet changed, and to what.
    pub breaker: Vec<(Duration, BreakerState)>,
    /// What the damper server had counted in the end.
    pub server: Option<DependencyState>,
}

/// Why a trial has no result.
#[derive(Debug, thiserror::Error)]
pub enum DrillError {
    /// The server's configuration is none.
    #[error("the damper configuration cannot be used: {0}")]
    Config(String),
    /// No runtime.
    #[error("no runtime: {0}")]
    Runtime(#[from] std::io::Error),
    /// A bug.
    #[error(transparent)]
    Fleet(#[from] FleetError),
}

impl Trial {
    /// Runs a trial; `config` is that of the damper server.
    ///
    /// # Errors
    /// The system has no runtime, or there is a bug.
    pub(super) fn run(scenario: &Scenario, planned: Planned, config: &Config) -> Result<Self, DrillError> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
        let mut scenario = scenario.clone();
        scenario.seed = planned.seed;
        if scenario.traffic.tenants.is_empty() {
            scenario.traffic.clients = Some(planned.clients);
        }
        runtime.block_on(run(&scenario, planned, config))
    }
}

async fn run(scenario: &Scenario, planned: Planned, config: &Config) -> Result<Trial, DrillError> {
    let Planned { way, clients, seed } = planned;
    let recorder = Arc::new(Recorder::default());
    let server =
        (way == Way::Damper).then(|| Server::start(config.clone(), &scenario.dependency.name, &recorder));
    let callers = callers(scenario, way, &recorder, server.as_ref());
    let (_stopper, mut stop) = stop::pair();
    let duration = Duration::from_secs(scenario.duration_s);
    tokio::select! {
        biased;
        never = happen(&scenario.events, server.as_deref(), &recorder) => match never {},
        driven = fleet::drive(&scenario.traffic, seed, duration, &callers, &recorder, &mut stop) => driven?,
    };
    for caller in &callers {
        if let Caller::Damper(client) = &**caller {
            client.say_goodbye().await;
        }
    }
    let state = server.as_ref().and_then(|server| server.life().ok()?.local.state(&scenario.dependency.name));
    Ok(Trial {
        way,
        clients,
        seed,
        seconds: recorder.seconds(),
        arriving: usize::try_from(scenario.duration_s).unwrap_or(usize::MAX),
        reasons: recorder.reasons(),
        arrivals: recorder.arrivals(),
        retries_by_tenant: recorder.retries_by_tenant(),
        breaker: server.map(|server| server.transitions()).unwrap_or_default(),
        server: state,
    })
}

fn callers(
    scenario: &Scenario,
    way: Way,
    recorder: &Arc<Recorder>,
    server: Option<&Arc<Server>>,
) -> Vec<Arc<Caller>> {
    let desk = Arc::new(Desk::of(scenario, Arc::clone(recorder)));
    let (timeout, attempts) = (scenario.traffic.attempt_timeout(), attempts_of(scenario, way));
    let members = Members::of(&scenario.traffic);
    let rules = Source::of(scenario, way);
    let caller = |(number, tenant): (u64, &usize)| {
        let road = Road::Direct(Arc::clone(&desk));
        let wire = Wire::new(road, Arc::clone(recorder), *tenant, timeout, attempts);
        let seed = scenario.seed ^ number.wrapping_add(1).rotate_left(32);
        Arc::new(match server {
            None => Caller::Alone(Alone::new(wire, rules.rule(), seed)),
            Some(server) => {
                let owner = members.tenants.get(*tenant).map_or("load", String::as_str);
                Caller::Damper(damper(scenario, wire, server, owner, number, seed))
            }
        })
    };
    (0..).zip(&members.clients).map(caller).collect()
}

fn damper(
    scenario: &Scenario,
    wire: Wire,
    server: &Arc<Server>,
    tenant: &str,
    number: u64,
    seed: u64,
) -> Damper {
    let client = |id: &str, seed: u64| {
        let link = Link::new(Arc::clone(server), tenant, &scenario.drill, !seed);
        client_on(Arc::new(link), Damper::setup(wire.recorder(), "", tenant, id).seed(seed))
    };
    let below = client(&format!("load-{number}"), seed);
    let layer = match scenario.traffic.above {
        Above::Nobody => Layer::Nobody,
        Above::Damper => Layer::Damper(client(&format!("front-{number}"), seed ^ 1).dependency(FRONT)),
        Above::Foreign => Layer::Foreign,
    };
    Damper::new(wire, below, &scenario.dependency.name, layer)
}

/// Lets the scenario's events happen; never ends, because nothing has to wait for it.
async fn happen(events: &[Event], server: Option<&Server>, recorder: &Recorder) -> Infallible {
    if let Some(server) = server {
        for event in events {
            let at = Duration::try_from_secs_f64(event.at_s).unwrap_or(Duration::MAX);
            sleep_until(recorder.started() + at).await;
            match event.action {
                Action::KillServer => server.kill(),
                Action::StartServer => server.start_again(),
            }
        }
    }
    std::future::pending().await
}
