//! A downstream that is protected.

use std::{borrow::Cow, fmt, sync::Arc};

use damper_protocol::Totals;

use crate::{Operation, core::DependencyState, damper::Handle};

/// A downstream that is protected. Cheap to clone; keep one where it is used often.
#[derive(Clone)]
pub struct Dependency {
    /// One reference, because every operation takes it along.
    pub(crate) pair: Arc<Pair>,
}

/// A dependency of one client.
pub(crate) struct Pair {
    pub(crate) handle: Arc<Handle>,
    pub(crate) state: Arc<DependencyState>,
}

impl Dependency {
    pub(crate) fn new(handle: Arc<Handle>, state: Arc<DependencyState>) -> Self {
        Self { pair: Arc::new(Pair { handle, state }) }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.pair.state.name
    }

    /// One logical operation on it. The name is for logs: a verb such as `charge`, not an id.
    #[inline]
    pub fn operation(&self, name: impl Into<Cow<'static, str>>) -> Operation {
        Operation::new(self.clone(), name.into())
    }

    /// What this process has counted on it so far. No count ever falls.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.pair.state.counts.snapshot()
    }

    /// Requests of the adapters that got one attempt because their bodies cannot be sent twice.
    #[must_use]
    pub fn not_replayable(&self) -> u64 {
        self.pair.state.not_replayable.get()
    }

    /// Failures that no rule knows: errors of an unknown kind, and statuses outside the table. They are never
    /// retried.
    #[must_use]
    pub fn unclassified(&self) -> u64 {
        self.pair.state.unclassified.get()
    }

    /// Headers about retries and time that cannot be read, or contradict each other: of its failed responses, and of the
    /// requests in whose [scope](crate::Scope) it was called first. They are ignored.
    #[must_use]
    pub fn unread_headers(&self) -> u64 {
        self.pair.state.unread.get()
    }

    /// Notes such a request.
    #[cfg(any(feature = "tower", feature = "reqwest-middleware"))]
    pub(crate) fn note_not_replayable(&self) {
        self.pair.state.not_replayable.up();
        let pair = &self.pair;
        pair.handle.core.observer.tell(|observer| observer.not_replayable(&pair.state.name));
    }

    /// Attempts that were started and have not ended.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.pair.state.counts.in_flight()
    }
}

impl fmt::Debug for Dependency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dependency").field("name", &self.pair.state.name).finish_non_exhaustive()
    }
}
