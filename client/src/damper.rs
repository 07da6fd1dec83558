//! The handle that a service holds.

mod builder;
mod drain;
mod health;

pub use builder::{BuildError, Builder};
pub use health::{Health, Reachability};

use std::{fmt, sync::Arc, time::Duration};

use tokio::{runtime::Handle as Runtime, time::timeout};

use crate::{
    Dependency,
    core::{Core, Switch},
};

/// How long the server may take to confirm what is flushed.
const FLUSH_WITHIN: Duration = Duration::from_secs(5);

/// A client of one damper server. Cheap to clone; the background tasks end with its last clone and the last
/// [`Dependency`].
///
/// It has to be used in a tokio runtime with time and I/O, as `enable_all` and `#[tokio::main]` make them. Without I/O
/// no server is ever reached, which is logged once; without time, operations panic as all timers of tokio do.
#[derive(Clone)]
pub struct Damper {
    handle: Arc<Handle>,
}

/// Tells the tasks when the last handle goes.
pub(crate) struct Handle {
    pub(crate) core: Arc<Core>,
    pub(crate) stop: tokio::sync::watch::Sender<()>,
}

/// The totals could not be delivered: no server answered, or it keeps no record of some dependency. Nothing is lost while the process lives; they are
/// cumulative, and the next sync carries them all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the totals could not be delivered: no usable answer from the server, or it keeps no record of them")]
pub struct FlushError;

/// What a shutdown left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// Dependencies whose totals the server has confirmed.
    pub delivered: usize,
    /// Dependencies whose latest totals no server has confirmed.
    pub undelivered: usize,
    /// Operations that waited for a retry, asleep or for the server's decision, when the shutdown began. They end at
    /// once, with [`StopReason::ShutDown`](crate::StopReason::ShutDown).
    pub abandoned: u64,
    /// Attempts that were still running when the limit was over. They go on unharmed; what they bring is counted,
    /// and delivered by another call of [`Damper::shutdown`].
    pub in_flight: u64,
}

impl Damper {
    /// A client of the server at `endpoint`, such as `http://127.0.0.1:7117`; a path is kept, for servers behind a proxy.
    pub fn builder(endpoint: impl Into<String>) -> Builder {
        Builder::new(endpoint.into())
    }

    /// A client as the environment describes it: `DAMPER_ENDPOINT` (default `http://127.0.0.1:7117`),
    /// `DAMPER_TENANT`, `DAMPER_CREDENTIAL_FILE` (a file that holds the credential), and the switches of
    /// [`Builder::build`]. An endpoint or a tenant that is set and empty counts as not set, with a warning.
    ///
    /// # Errors
    ///
    /// [`BuildError`] if one of them cannot be used.
    pub fn from_env() -> Result<Self, BuildError> {
        Builder::from_env(Box::new(builder::variable)).build()
    }

    /// A client that leaves everything alone: one attempt for each operation, no traffic, no tasks. For tests,
    /// and for services that run without a server.
    #[must_use]
    pub fn inert() -> Self {
        Builder::inert()
    }

    /// The dependency of this name: 1 to 128 bytes of printable text, without white space at its ends. The same name
    /// gives the same dependency.
    ///
    /// A name that cannot be one is a mistake that must not take the service down: it is logged once, and its
    /// operations get one attempt each and are not reported. So do those of a name beyond the first
    /// [`MAX_DEPENDENCIES`](crate::MAX_DEPENDENCIES): dependencies are never forgotten, and names that are made of
    /// data would fill memory and syncs. Each call for such a name gives a dependency of its own, whose totals
    /// nobody adds up.
    #[must_use]
    pub fn dependency(&self, name: &str) -> Dependency {
        let state = match damper_protocol::name_fault(name) {
            None => self.handle.core.dependency(name),
            Some(fault) => self.handle.core.misnamed(name, fault),
        };
        Dependency::new(Arc::clone(&self.handle), state)
    }

    /// The kill switch: turns all retries of this client off at once, or on again. Off is what `DAMPER_NO_RETRY` is
    /// at the start: operations that wait for a retry end with
    /// [`StopReason::RetriesOff`](crate::StopReason::RetriesOff) instead, new ones get one attempt, and attempts are
    /// counted and reported. It cannot turn on what the environment has turned off.
    pub fn set_retries(&self, on: bool) {
        self.handle.core.set_retries(on);
    }

    /// Delivers all totals now.
    ///
    /// # Errors
    ///
    /// [`FlushError`] if no server confirmed all of them within 5 s, and at once outside a tokio runtime, where nothing
    /// can be sent. An inert client has nothing to deliver.
    pub async fn flush(&self) -> Result<(), FlushError> {
        if self.handle.core.switch == Switch::Inert {
            return Ok(());
        }
        if Runtime::try_current().is_err() {
            return Err(FlushError);
        }
        // A sync that is under way comes first, and may be long in coming.
        match timeout(FLUSH_WITHIN, self.handle.core.sync()).await {
            Ok(Ok(synced)) if synced.refused == 0 => Ok(()),
            _ => Err(FlushError),
        }
    }

    /// Ends retries and background tasks, waits for the attempts in flight, and delivers the totals, all within `limit`.
    ///
    /// It returns as soon as nothing is in flight and the server has confirmed everything, and at the limit at the
    /// latest, with what is left: without a server, that is when it returns. Attempts go on unharmed, and what is
    /// called later gets one attempt: callers who keep calling keep it busy until the limit, so stop them first.
    /// Operations that wait for a retry are not waited for. Calling it again delivers what was counted since; with a
    /// limit of zero it tries once and waits for nothing. Outside a tokio runtime nothing can be sent or waited for:
    /// it returns at once.
    pub async fn shutdown(&self, limit: Duration) -> ShutdownReport {
        let core = &self.handle.core;
        core.shut_down();
        self.handle.stop.send_replace(());
        let abandoned = core.all_dependencies().iter().map(|dependency| dependency.waiting()).sum();
        if Runtime::try_current().is_ok() {
            drain::drain(core, limit).await;
        }
        let (delivered, undelivered) = core.delivery();
        ShutdownReport { delivered, undelivered, abandoned, in_flight: drain::in_flight(core) }
    }

    /// What this client knows about the server.
    #[must_use]
    pub fn health(&self) -> Health {
        Health::of(&self.handle.core)
    }
}

impl fmt::Debug for Damper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Damper").field("client", &self.handle.core.identity).finish_non_exhaustive()
    }
}
