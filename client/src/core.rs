//! What all handles and tasks of one client share.

mod ask;
mod dependency;
mod names;
mod sync;
mod tasks;
mod watch;

pub(crate) use ask::Answer;
pub(crate) use dependency::{DependencyState, Waiting};

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
    },
    time::{Duration, UNIX_EPOCH},
};

use damper_protocol::{ClientIdentity, FailMode, Mode};
use fastrand::Rng;
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;
use uuid::{Builder, Uuid};

use crate::{
    Deadline, Hooks,
    backoff::{fresh_rng, nanos},
    clock::{self, Clock, Moment},
    link::Link,
    observer::Audience,
    totals::Count,
    transport::{Fault, Transport},
    wire::ms_down,
};

/// Most dependencies of one client. What more are named get one attempt for each operation and are not reported.
pub const MAX_DEPENDENCIES: usize = 250;

/// What the environment allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Switch {
    #[default]
    On,
    /// Everything is asked and counted, and nothing that is said about retries is obeyed.
    Observe,
    /// Attempts are counted and reported, nothing is retried.
    NoRetry,
    /// One attempt for each operation, and no traffic.
    Inert,
}

impl Switch {
    /// Whether it allows retries at all.
    fn retries(self) -> bool {
        matches!(self, Self::On | Self::Observe)
    }
}

/// How a client is set up, its way to the server apart.
pub(crate) struct Setup {
    pub(crate) observer: Audience,
    pub(crate) hooks: Option<Arc<dyn Hooks>>,
    pub(crate) identity: ClientIdentity,
    pub(crate) tenant: Option<String>,
    pub(crate) fail_mode: FailMode,
    pub(crate) switch: Switch,
    /// How long the server may take for what it can answer at once. More, and the outage rules decide.
    pub(crate) answer_within: Duration,
    /// Most attempts of any operation.
    pub(crate) max_attempts: Option<u32>,
    /// Makes jitter repeatable.
    pub(crate) seed: Option<u64>,
}

/// The shared part of a client. Its lifetime is that of the last handle or task.
pub(crate) struct Core {
    pub(crate) clock: Clock,
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) observer: Audience,
    pub(crate) hooks: Option<Arc<dyn Hooks>>,
    pub(crate) identity: ClientIdentity,
    pub(crate) tenant: Option<String>,
    pub(crate) fail_mode: FailMode,
    pub(crate) switch: Switch,
    answer_within: Duration,
    pub(crate) max_attempts: Option<u32>,
    seed: Option<u64>,
    /// Requests whose baggage had no room for our member.
    pub(crate) baggage_skipped: Count,
    pub(crate) status: Mutex<Status>,
    dependencies: RwLock<HashMap<Arc<str>, Arc<DependencyState>>>,
    /// The table has been found full.
    full: AtomicBool,
    /// Names that cannot be one, as they were logged.
    misnamed: Mutex<BTreeSet<String>>,
    ids: Count,
    /// When the server was last heard on a path that carries breaker states; nanoseconds plus one, 0 for never.
    heard: AtomicU64,
    shut_down: AtomicBool,
    /// Wakes those who wait for what may not come any more.
    switched: Notify,
    /// Retries are switched off while it runs.
    stilled: AtomicBool,
    /// The background tasks that run.
    running: AtomicU8,
    /// It has been said that operations without a deadline get one.
    told_of_deadline: AtomicBool,
    parts: tokio::sync::Mutex<sync::Parts>,
    sync_soon: Notify,
    server_is_back: Notify,
}

/// What is known about the server itself.
#[derive(Debug, Default)]
pub(crate) struct Status {
    pub(crate) link: Link,
    pub(crate) epoch: Option<String>,
    pub(crate) mode: Mode,
    pub(crate) last_sync: Option<Moment>,
    pub(crate) watching: bool,
    /// It has been said that syncs fail or that the breaker towards the server has opened, and what failed has not
    /// worked since.
    pub(crate) away: bool,
    /// Syncs in a row that were not answered.
    lost_syncs: u32,
    /// Dependencies of which it keeps no record.
    refused: usize,
    /// What the server rejects, by path: a mistake in the set-up, and no outage.
    pub(crate) rejected: BTreeMap<Path, u16>,
}

/// The ways to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Path {
    Ask,
    Sync,
    Watch,
}

impl Status {
    /// Whether the outage rules are in force. Where a probe may go out and nobody asks, nobody knows better.
    pub(crate) fn is_down(&self, now: Moment) -> bool {
        self.lost_syncs > 0 || self.link.is_open(now)
    }

    /// The server answered. True if it is back: what failed before works, or is worth another try.
    fn heard(&mut self, path: Path) -> bool {
        let syncs_work_again = path == Path::Sync && std::mem::take(&mut self.lost_syncs) > 0;
        let asks_work_again = path == Path::Ask && self.link.answered();
        if path != Path::Ask {
            self.link.heard(syncs_work_again);
        }
        let is_back = (syncs_work_again || asks_work_again) && self.lost_syncs == 0;
        is_back && std::mem::take(&mut self.away)
    }

    /// The server did not answer. True if that is news.
    fn missed(&mut self, path: Path, now: Moment) -> bool {
        let is_away = match path {
            Path::Ask => self.link.failed(now),
            Path::Sync => {
                self.link.missed(now);
                self.lost_syncs = self.lost_syncs.saturating_add(1);
                true
            }
            Path::Watch => false,
        };
        is_away && !std::mem::replace(&mut self.away, true)
    }
}

impl Core {
    pub(crate) fn new(transport: Arc<dyn Transport>, setup: Setup) -> Self {
        let Setup { observer, hooks, identity, tenant, fail_mode, switch, answer_within, max_attempts, seed } =
            setup;
        Self {
            clock: Clock::start(),
            transport,
            observer,
            hooks,
            identity,
            tenant,
            fail_mode,
            switch,
            answer_within,
            max_attempts,
            seed,
            baggage_skipped: Count::default(),
            status: Mutex::default(),
            dependencies: RwLock::default(),
            full: AtomicBool::new(false),
            misnamed: Mutex::default(),
            ids: Count::default(),
            heard: AtomicU64::new(0),
            shut_down: AtomicBool::new(false),
            switched: Notify::new(),
            stilled: AtomicBool::new(false),
            running: AtomicU8::new(0),
            told_of_deadline: AtomicBool::new(false),
            parts: tokio::sync::Mutex::default(),
            sync_soon: Notify::new(),
            server_is_back: Notify::new(),
        }
    }

    pub(crate) fn all_dependencies(&self) -> Vec<Arc<DependencyState>> {
        self.dependencies.read().values().map(Arc::clone).collect()
    }

    /// A number that no other operation or request of this client has.
    pub(crate) fn next_id(&self) -> u64 {
        self.ids.next()
    }

    /// Turns a number of [`next_id`](Self::next_id) into an id that no other client has.
    pub(crate) fn global_id(&self, id: u64) -> String {
        format!("{}.{id}", self.identity.incarnation)
    }

    /// An id that no other operation of the fleet has: a UUID of version 7 (RFC 9562), which sorts by time.
    pub(crate) fn operation_id(&self) -> Uuid {
        let since_1970 = clock::wall().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut random = [0; 10];
        self.rng().fill(&mut random);
        Builder::from_unix_timestamp_millis(ms_down(since_1970), &random).into_uuid()
    }

    /// Who retries, for people further down.
    pub(crate) fn owner(&self) -> &str {
        let name = self.identity.name.as_deref().or(self.tenant.as_deref());
        name.unwrap_or(&self.identity.id)
    }

    /// The deadline of operations that were given none: said once, because it can surprise.
    pub(crate) fn default_deadline(&self, is_inside: bool) -> Deadline {
        let said = is_inside || self.switch == Switch::Inert || self.told_of_deadline.load(Ordering::Relaxed);
        if !said && !self.told_of_deadline.swap(true, Ordering::Relaxed) {
            tracing::info!(target: "damper", "operations that are given no deadline are over after 10 s");
        }
        Deadline::default()
    }

    /// A random source for one use.
    pub(crate) fn rng(&self) -> Rng {
        self.seed.map_or_else(fresh_rng, |seed| Rng::with_seed(seed.wrapping_add(self.next_id())))
    }

    pub(crate) fn is_shut_down(&self) -> bool {
        self.shut_down.load(Ordering::Relaxed)
    }

    pub(crate) fn shut_down(&self) {
        self.shut_down.store(true, Ordering::Relaxed);
        self.switched.notify_waiters();
    }

    /// Returns once a switch has made this true: the client's own, or its shutdown.
    pub(crate) async fn until(&self, is_so: impl Fn(&Self) -> bool) {
        loop {
            let switched = self.switched.notified();
            if is_so(self) {
                return;
            }
            switched.await;
        }
    }

    /// Whether operations may retry at all.
    pub(crate) fn retries(&self) -> bool {
        self.switch.retries() && !self.stilled.load(Ordering::Relaxed)
    }

    /// Switches retries off, or on again as far as the environment allows them.
    pub(crate) fn set_retries(&self, on: bool) {
        self.stilled.store(!on, Ordering::Relaxed);
        self.switched.notify_waiters();
    }

    /// When the server was last heard.
    pub(crate) fn heard(&self) -> Option<Moment> {
        self.heard.load(Ordering::Relaxed).checked_sub(1).map(Duration::from_nanos)
    }

    fn hear(&self, now: Moment) {
        self.heard.fetch_max(nanos(now).saturating_add(1), Ordering::Relaxed);
    }

    /// The server did what it was asked on this path.
    fn answered(&self, path: Path) {
        let mut status = self.status.lock();
        let is_back = status.heard(path);
        let was_rejected = status.rejected.remove(&path);
        drop(status);
        if is_back {
            self.is_back();
        }
        if was_rejected.is_some() {
            tracing::info!(target: "damper", ?path, "the server accepts this client's requests again");
        }
    }

    fn is_back(&self) {
        self.server_is_back.notify_waiters();
        tracing::info!(target: "damper", "the server answers again");
    }

    /// The server did not do what it was asked. Said once, until it does.
    fn faulted(&self, path: Path, fault: Fault) {
        let mut status = self.status.lock();
        let (is_back, said) = match fault {
            Fault::Unreachable | Fault::NoAnswer | Fault::Unavailable(_) => {
                (false, status.missed(path, self.clock.now()))
            }
            Fault::Rejected(code) => (status.heard(path), status.rejected.insert(path, code).is_none()),
            Fault::Busy(_) => (status.heard(path), false),
        };
        drop(status);
        if is_back {
            self.is_back();
        }
        if said {
            tracing::warn!(target: "damper", ?path, %fault, "the server cannot be used");
        }
    }
}
