//! What a client knows about its server.

use std::time::Duration;

use damper_protocol::Mode;

use crate::core::Core;

/// Whether the server can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reachability {
    /// It has not been asked anything yet, or never will be.
    Unknown,
    /// It answers.
    Up,
    /// It rejects some of this client's requests, asks, syncs or the watch, with this status: a mistake in the
    /// set-up.
    Rejected(u16),
    /// It does not answer; the outage rules are in force.
    Down,
}

/// What a client knows about its server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Health {
    /// Whether the server can be used.
    pub server: Reachability,
    /// How far its decisions can be trusted.
    pub mode: Mode,
    /// The life of its counters that was last seen.
    pub epoch: Option<String>,
    /// Time since the last successful sync.
    pub since_sync: Option<Duration>,
    /// The watch stream is open.
    pub watching: bool,
    /// Retries are switched off: by the environment, by [`Damper::set_retries`](crate::Damper::set_retries) or by a
    /// shutdown.
    pub retries_off: bool,
    /// Requests whose baggage had no room for damper's member, so that only the header told who retries.
    pub baggage_skipped: u64,
}

impl Health {
    pub(crate) fn of(core: &Core) -> Self {
        let now = core.clock.now();
        let status = core.status.lock();
        Self {
            server: match status.rejected.values().next() {
                _ if status.is_down(now) => Reachability::Down,
                Some(code) => Reachability::Rejected(*code),
                None if status.last_sync.is_none() => Reachability::Unknown,
                None => Reachability::Up,
            },
            mode: status.mode,
            epoch: status.epoch.clone(),
            since_sync: status.last_sync.map(|at| now.saturating_sub(at)),
            watching: status.watching,
            retries_off: !core.retries() || core.is_shut_down(),
            baggage_skipped: core.baggage_skipped.get(),
        }
    }
}
