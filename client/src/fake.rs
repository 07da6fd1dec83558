//! A scripted server in memory, for tests under paused time.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use damper_protocol::{
    AskRequest, AskResponse, BreakerState, BreakerVersion, Decision, Mode, Reason, SyncRequest, SyncResponse,
    SyncedDependency,
};
use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream};
use hyper::body::Bytes;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use crate::transport::{Bytestream, Fault, Pending, Transport};

/// What the server does with one ask.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) admitted_after: Duration,
    pub(crate) decided_after: Duration,
    pub(crate) outcome: Result<AskResponse, Fault>,
}

impl Step {
    pub(crate) fn at_once(outcome: Result<AskResponse, Fault>) -> Self {
        Self { admitted_after: Duration::ZERO, decided_after: Duration::ZERO, outcome }
    }

    pub(crate) fn hung() -> Self {
        Self { admitted_after: Duration::from_secs(3600), ..Self::at_once(Err(Fault::NoAnswer)) }
    }
}

pub(crate) fn answer(decision: Decision, reason: Reason) -> AskResponse {
    AskResponse {
        decision,
        reason,
        token: (decision == Decision::Granted).then(|| "token".to_owned()),
        token_ttl_ms: Some(2000),
        waited_ms: 0,
        retry_after_ms: None,
        suppress_ms: 0,
        breaker: BreakerVersion { state: BreakerState::Closed, version: 1 },
        would_have_been: None,
    }
}

pub(crate) fn granted() -> AskResponse {
    answer(Decision::Granted, Reason::WithinBudget)
}

type Script = Box<dyn Fn(&AskRequest) -> Step + Send + Sync>;

/// The server.
pub(crate) struct Fake {
    script: Script,
    /// What each dependency is told by every sync; no sync is answered without.
    pub(crate) told: Mutex<Option<SyncedDependency>>,
    /// How long a sync takes.
    pub(crate) sync_takes: Mutex<Duration>,
    /// Dependencies of which it keeps no record.
    pub(crate) refused: Mutex<Vec<String>>,
    /// What syncs get instead of an answer.
    pub(crate) sync_fault: Mutex<Option<Fault>>,
    pub(crate) epoch: Mutex<String>,
    pub(crate) mode: Mutex<Mode>,
    pub(crate) asks: Mutex<Vec<(Instant, AskRequest)>>,
    pub(crate) syncs: Mutex<Vec<SyncRequest>>,
    pub(crate) synced_at: Mutex<Vec<Instant>>,
    pub(crate) returned: Mutex<Vec<String>>,
    /// What each connection of the watch sends, one after the other; those beyond stay silent for ever.
    pub(crate) streams: Mutex<VecDeque<Stream>>,
    pub(crate) watches: Mutex<Vec<(Instant, Option<String>)>>,
}

/// One connection of the watch: chunks and the pauses before them, and whether it ends after them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stream {
    pub(crate) refused: Option<Fault>,
    pub(crate) chunks: Vec<(Duration, Vec<u8>)>,
    pub(crate) ends: bool,
    /// It breaks after them instead.
    pub(crate) breaks: bool,
}

impl Stream {
    fn into_bytes(self) -> Bytestream {
        let chunks = stream::iter(self.chunks).then(|(pause, chunk)| async move {
            sleep(pause).await;
            Ok(Bytes::from(chunk))
        });
        match (self.breaks, self.ends) {
            (true, _) => chunks.chain(stream::iter([Err(Fault::NoAnswer)])).boxed(),
            (false, true) => chunks.boxed(),
            (false, false) => chunks.chain(stream::pending()).boxed(),
        }
    }
}

impl Fake {
    pub(crate) fn new(script: impl Fn(&AskRequest) -> Step + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            script: Box::new(script),
            told: Mutex::new(Some(SyncedDependency::default())),
            sync_takes: Mutex::default(),
            refused: Mutex::default(),
            sync_fault: Mutex::default(),
            epoch: Mutex::new("e1".to_owned()),
            mode: Mutex::default(),
            asks: Mutex::default(),
            syncs: Mutex::default(),
            synced_at: Mutex::default(),
            returned: Mutex::default(),
            streams: Mutex::default(),
            watches: Mutex::default(),
        })
    }

    /// A server that is not there.
    pub(crate) fn dead() -> Arc<Self> {
        let fake = Self::new(|_| Step::at_once(Err(Fault::Unreachable)));
        *fake.told.lock() = None;
        fake
    }

    fn response(&self, request: &SyncRequest) -> Result<SyncResponse, Fault> {
        if let Some(fault) = *self.sync_fault.lock() {
            return Err(fault);
        }
        let told = self.told.lock().clone().ok_or(Fault::Unreachable)?;
        let refused = self.refused.lock();
        let names = request.dependencies.keys().filter(|name| !refused.contains(name));
        Ok(SyncResponse {
            epoch: self.epoch.lock().clone(),
            config_version: 1,
            mode: *self.mode.lock(),
            next_sync_ms: 1000,
            dependencies: names.map(|name| (name.clone(), told.clone())).collect(),
        })
    }
}

impl Transport for Fake {
    fn ask(&self, ask: &AskRequest) -> BoxFuture<'static, Result<Pending, Fault>> {
        self.asks.lock().push((Instant::now(), ask.clone()));
        let step = (self.script)(ask);
        let admitted = async move {
            sleep(step.admitted_after).await;
            if let (Err(fault), true) = (&step.outcome, step.decided_after.is_zero()) {
                // What is refused at once is not admitted first.
                return Err(*fault);
            }
            let decided = async move {
                sleep(step.decided_after).await;
                step.outcome
            };
            Ok(decided.boxed())
        };
        admitted.boxed()
    }

    fn give_back(&self, token: String) -> BoxFuture<'static, ()> {
        self.returned.lock().push(token);
        std::future::ready(()).boxed()
    }

    fn sync(&self, sync: &SyncRequest) -> BoxFuture<'static, Result<SyncResponse, Fault>> {
        self.syncs.lock().push(sync.clone());
        self.synced_at.lock().push(Instant::now());
        let (takes, response) = (*self.sync_takes.lock(), self.response(sync));
        let answered = async move {
            if !takes.is_zero() {
                sleep(takes).await;
            }
            response
        };
        answered.boxed()
    }

    fn watch(&self, last_id: Option<&str>) -> BoxFuture<'static, Result<Bytestream, Fault>> {
        self.watches.lock().push((Instant::now(), last_id.map(str::to_owned)));
        let stream = self.streams.lock().pop_front().unwrap_or_default();
        std::future::ready(stream.refused.map_or_else(|| Ok(stream.clone().into_bytes()), Err)).boxed()
    }
}
