//! One consumer's stream of events.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use axum::response::sse::Event;
use damper_core::BreakerView;
use damper_engine::Change;
use damper_protocol::{Bye, Snapshot, WatchBreaker, WatchDependency, event};
use serde::Serialize;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::broadcast::{Receiver, error::RecvError};

use crate::app::App;
use crate::metrics::OpenStream;
use crate::phase::Phase;
use crate::wire;

/// Consumers of a server that goes away come back spread over so long.
const RECONNECT_WITHIN_MS: u64 = 5000;

/// What a consumer asked for.
pub(super) struct Filter {
    tenant: String,
    /// Empty for all.
    dependencies: BTreeSet<String>,
}

impl Filter {
    pub(super) fn new(tenant: &str, dependencies: Vec<&str>) -> Self {
        let dependencies = dependencies.into_iter().map(str::to_owned).collect();
        Self { tenant: tenant.to_owned(), dependencies }
    }

    fn wants(&self, dependency: &str) -> bool {
        self.dependencies.is_empty() || self.dependencies.contains(dependency)
    }
}

/// One consumer's stream.
pub(super) struct Watcher {
    app: App,
    filter: Filter,
    changes: Receiver<Change>,
    next: Next,
    /// The latest breaker version that was told, by dependency: a version never goes back.
    told: HashMap<Arc<str>, u64>,
    sent: u64,
    _open: (OwnedSemaphorePermit, OpenStream),
}

#[derive(Clone, Copy, PartialEq)]
enum Next {
    Snapshot,
    Change,
    Nothing,
}

impl Watcher {
    /// Listens from now on, so that nothing falls between the snapshot and the first change.
    pub(super) fn new(app: App, filter: Filter, place: OwnedSemaphorePermit) -> Self {
        let changes = app.engine().changes();
        let open = (place, app.metrics().stream());
        Self { app, filter, changes, next: Next::Snapshot, told: HashMap::new(), sent: 0, _open: open }
    }

    /// The next event; [`None`] after the goodbye.
    pub(super) async fn next(&mut self) -> Option<Event> {
        loop {
            let event = match self.next {
                Next::Snapshot => Some(self.snapshot()),
                Next::Change => self.change().await,
                Next::Nothing => return None,
            };
            if event.is_some() {
                return event;
            }
        }
    }

    /// Waits for one change; [`None`] if it is not one to tell.
    async fn change(&mut self) -> Option<Event> {
        let change = tokio::select! {
            biased;
            () = self.app.life().reaches(Phase::Draining) => Err(RecvError::Closed),
            change = self.changes.recv() => change,
        };
        match change {
            Ok(change) if !self.filter.wants(change.dependency()) => None,
            Ok(Change::Breaker { tenant: Some(tenant), .. }) if *tenant != *self.filter.tenant => None,
            Ok(Change::Breaker { dependency, tenant, breaker, .. }) => {
                self.breaker(&dependency, tenant.as_deref(), &breaker)
            }
            Ok(Change::Dependency { dependency }) => self.dependency(&dependency),
            Err(RecvError::Lagged(_)) => {
                self.next = Next::Snapshot;
                None
            }
            Err(RecvError::Closed) => {
                self.next = Next::Nothing;
                Some(self.event(event::BYE, &Bye { reconnect_within_ms: RECONNECT_WITHIN_MS }))
            }
        }
    }

    fn snapshot(&mut self) -> Event {
        self.next = Next::Change;
        // What a laggard missed is in the snapshot.
        self.changes = self.changes.resubscribe();
        let names = self.app.engine().names().into_iter().filter(|name| self.filter.wants(name));
        // One that was told of and has been forgotten since must not be left as it was told.
        let names: BTreeSet<Arc<str>> = names.chain(self.told.keys().cloned()).collect();
        let seen = names.into_iter().filter_map(|name| Some((name.to_string(), self.see(&name)?)));
        let dependencies = seen.collect();
        let epoch = self.app.epoch().to_owned();
        self.event(event::SNAPSHOT, &Snapshot { epoch, dependencies })
    }

    fn dependency(&mut self, name: &Arc<str>) -> Option<Event> {
        let seen = self.see(name)?;
        Some(self.event(event::DEPENDENCY, &seen))
    }

    fn breaker(&mut self, name: &Arc<str>, tenant: Option<&str>, breaker: &BreakerView) -> Option<Event> {
        let told = self.told.entry(Arc::clone(name)).or_default();
        if breaker.version < *told {
            return None;
        }
        *told = breaker.version;
        let (dependency, tenant) = (name.to_string(), tenant.map(str::to_owned));
        let changed = WatchBreaker { dependency, tenant, breaker: wire::breaker(breaker) };
        Some(self.event(event::BREAKER, &changed))
    }

    /// A dependency as it is now; one that was told of and is forgotten, as it would be if it were new.
    fn see(&mut self, name: &Arc<str>) -> Option<WatchDependency> {
        let engine = self.app.engine();
        let watched = match engine.watched(name, Some(&self.filter.tenant)) {
            Some(watched) => {
                self.told.insert(Arc::clone(name), watched.breaker.version);
                watched
            }
            None => self.told.remove(name).map(|_| engine.unused())?,
        };
        Some(wire::states::watched(name, &self.filter.tenant, &watched))
    }

    fn event(&mut self, name: &str, data: &impl Serialize) -> Event {
        self.sent += 1;
        let event = Event::default().event(name).id(format!("{}-{}", self.app.epoch(), self.sent));
        event.json_data(data).unwrap_or_default()
    }
}
