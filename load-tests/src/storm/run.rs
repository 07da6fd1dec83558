//! One way, from its first operation to its last answer.

use std::cell::Cell;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use damper_protocol::DependencyState;
use tokio::time::sleep_until;

use super::fleet_of::callers;
use super::{Order, Progress, Run, ServerChoice, StormError};
use crate::flaky::{self, Desk};
use crate::fleet;
use crate::measure::Recorder;
use crate::scenario::{Action, Event, Way};
use crate::server::Server;
use crate::stop::Stop;
use crate::ways::Caller;
use crate::ways::rules::attempts_of;

/// Time to set the fleet up before the first operation.
const SET_UP: Duration = Duration::from_millis(300);

/// How long the server may take to say what it has counted.
const ACCOUNT_WITHIN: Duration = Duration::from_secs(3);

/// How long after the end of a second it is told of: answers are on their way.
const TELL_AFTER: Duration = Duration::from_millis(20);

pub(super) async fn run_way(
    order: &Order,
    way: Way,
    server: &mut Option<Server>,
    progress: &dyn Progress,
    mut stop: Stop,
) -> Result<Run, StormError> {
    let scenario = &order.scenario;
    let recorder = Arc::new(Recorder::starting_after(SET_UP));
    let dependency = flaky::serve(Desk::of(scenario, Arc::clone(&recorder))).await?;
    let url = match &order.server {
        ServerChoice::Running(url) => url.clone(),
        ServerChoice::Own(_) => server.as_ref().map(Server::url).unwrap_or_default(),
    };
    let callers = callers(scenario, way, &dependency, &url, &recorder)?;
    let duration = Duration::from_secs(scenario.duration_s);
    let events = if way == Way::Damper { scenario.events.as_slice() } else { &[] };
    let teller = Teller { way, recorder: &recorder, progress, told: Cell::new(0) };
    let arrived = tokio::select! {
        outcome = fleet::drive(&scenario.traffic, scenario.seed, duration, &callers, &recorder, &mut stop) => outcome?,
        never = teller.tell() => match never {},
        Err(error) = happen(events, server, &recorder, progress) => return Err(error),
    };
    let seconds = recorder.seconds();
    let arriving = usize::try_from(arrived.as_secs()).unwrap_or(usize::MAX).min(seconds.len());
    teller.tell_up_to(arriving);
    let account = settle(&callers, &url, &scenario.dependency.name).await;
    Ok(Run {
        way,
        max_attempts: attempts_of(scenario, way),
        arriving,
        seconds,
        reasons: recorder.reasons(),
        interrupted: stop.is_requested(),
        server: account,
    })
}

/// Tells of each second once, shortly after it is over.
struct Teller<'a> {
    way: Way,
    recorder: &'a Recorder,
    progress: &'a dyn Progress,
    told: Cell<usize>,
}

impl Teller<'_> {
    async fn tell(&self) -> Infallible {
        let mut over = self.recorder.started();
        loop {
            over += Duration::from_secs(1);
            sleep_until(over + TELL_AFTER).await;
            self.tell_up_to(self.told.get() + 1);
        }
    }

    fn tell_up_to(&self, count: usize) {
        let seconds = self.recorder.seconds();
        for index in self.told.replace(count.max(self.told.get()))..count {
            let second = seconds.get(index).copied().unwrap_or_default();
            self.progress.second(self.way, index, &second);
        }
    }
}

/// Lets the scenario's events happen; never ends well, because nothing has to wait for it.
async fn happen(
    events: &[Event],
    server: &mut Option<Server>,
    recorder: &Recorder,
    progress: &dyn Progress,
) -> Result<Infallible, StormError> {
    if let Some(server) = server {
        for event in events {
            let at = Duration::try_from_secs_f64(event.at_s).unwrap_or(Duration::MAX);
            sleep_until(recorder.started() + at).await;
            match event.action {
                Action::KillServer => server.kill().await?,
                Action::StartServer => server.start_again()?,
            }
            progress.note(event.action.as_str());
        }
    }
    std::future::pending().await
}

/// Lets all clients deliver their last totals, and asks the server what it has counted.
async fn settle(callers: &[Arc<Caller>], server: &str, dependency: &str) -> Option<DependencyState> {
    let goodbyes = callers.iter().filter_map(|caller| match &**caller {
        Caller::Damper(_) => Some(Arc::clone(caller)),
        Caller::Alone(_) => None,
    });
    let mut goodbyes: tokio::task::JoinSet<()> = goodbyes
        .map(|caller| async move {
            if let Caller::Damper(damper) = &*caller {
                damper.say_goodbye().await;
            }
        })
        .collect();
    if goodbyes.is_empty() {
        return None;
    }
    while goodbyes.join_next().await.is_some() {}
    let account = async {
        let mut url = reqwest::Url::parse(server).ok()?;
        url.path_segments_mut().ok()?.extend(["v1", "dependencies", dependency]);
        let client = reqwest::Client::builder().no_proxy().build().ok()?;
        client.get(url).send().await.ok()?.json().await.ok()
    };
    tokio::time::timeout(ACCOUNT_WITHIN, account).await.ok().flatten()
}
