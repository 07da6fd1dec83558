//! What runs inside what: the scope of an attempt, or of a request that is being served.
//!
//! It travels with the task, so that nested operations find it without being told. A task that is spawned does
//! not inherit it and has to be given a handle.

use std::{
    fmt,
    future::{Future, poll_fn},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use scoped_tls_hkt::scoped_thread_local;
use tokio::time::Instant;

use crate::{Attempt, context::Context};

scoped_thread_local! {
    /// The innermost place that runs on this thread right now: set for each poll. Not tokio's task-locals, whose
    /// futures every attempt would have to be moved into.
    static CURRENT: dyn Place
}

/// What can be run in.
pub(crate) trait Place {
    /// A handle of it.
    fn scope(&self) -> Scope;
}

/// Runs a piece of code in a place.
pub(crate) fn enter<T>(place: &(dyn Place + 'static), code: impl FnOnce() -> T) -> T {
    CURRENT.set(place, code)
}

/// Who owns the retries of what runs here, and how long it may take.
///
/// Operations that are called while an attempt of another one runs make one attempt each, and one more if the
/// first was provably never sent: their retries belong to the outermost operation. A spawned task is not inside
/// by itself:
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// # let dependency = damper_client::Damper::inert().dependency("d");
/// # let call = dependency.operation("o").call(|attempt| async move {
/// let scope = attempt.scope();
/// let task = tokio::spawn(scope.run(async { "nested too" }));
/// # task.await.unwrap_or_default();
/// # Ok::<_, damper_client::Failure>(())
/// # });
/// # call.await.unwrap_or_default();
/// # }
/// ```
#[derive(Clone)]
pub struct Scope(Origin);

#[derive(Clone)]
enum Origin {
    Attempt(Attempt),
    Request {
        context: Option<Arc<Context>>,
        foreign_attempts: u32,
        end: Option<Instant>,
        /// Headers that could not be read, until somebody has counted them. Most requests have none.
        unread: Option<Arc<AtomicU32>>,
    },
}

impl Scope {
    pub(crate) fn attempt(attempt: Attempt) -> Self {
        Self(Origin::Attempt(attempt))
    }

    pub(crate) fn inbound(
        context: Option<Context>,
        end: Option<Instant>,
        foreign_attempts: u32,
        unread: u32,
    ) -> Self {
        let unread = (unread > 0).then(|| Arc::new(AtomicU32::new(unread)));
        Self(Origin::Request { context: context.map(Arc::new), foreign_attempts, end, unread })
    }

    /// The scope that this code runs in, if it runs in one.
    #[must_use]
    pub fn current() -> Option<Self> {
        CURRENT.is_set().then(|| CURRENT.with(Place::scope))
    }

    /// Runs something in this scope.
    pub async fn run<F: Future>(self, inner: F) -> F::Output {
        let mut inner = pin!(inner);
        poll_fn(|context| enter(&self, || inner.as_mut().poll(context))).await
    }

    /// The time that is left, if it is limited.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        self.end().map(|end| end.saturating_duration_since(Instant::now()))
    }

    /// The context that calls from here carry, if somebody owns their retries.
    #[must_use]
    pub fn context(&self) -> Option<Context> {
        match &self.0 {
            Origin::Attempt(attempt) => attempt.context(),
            Origin::Request { context, .. } => context.as_deref().map(Context::one_deeper),
        }
    }

    /// Whether somebody owns the retries of what is called here.
    pub(crate) fn is_claimed(&self) -> bool {
        match &self.0 {
            Origin::Attempt(attempt) => attempt.is_claimed(),
            Origin::Request { context, .. } => context.is_some(),
        }
    }

    pub(crate) const fn is_attempt(&self) -> bool {
        matches!(self.0, Origin::Attempt(_))
    }

    pub(crate) fn foreign_attempts(&self) -> u32 {
        match &self.0 {
            Origin::Attempt(attempt) => attempt.foreign_attempts(),
            Origin::Request { foreign_attempts, .. } => *foreign_attempts,
        }
    }

    /// The request's headers that could not be read, to whoever asks first.
    pub(crate) fn take_unread(&self) -> Option<u32> {
        match &self.0 {
            Origin::Request { unread: Some(unread), .. } => Some(unread.swap(0, Relaxed)),
            _ => None,
        }
    }

    pub(crate) fn end(&self) -> Option<Instant> {
        match &self.0 {
            Origin::Attempt(attempt) => attempt.end(),
            Origin::Request { end, .. } => *end,
        }
    }

    /// Notes that an operation in this scope has spent retries of its own in vain: repeating the whole would
    /// multiply them.
    pub(crate) fn spend(&self) {
        if let Origin::Attempt(attempt) = &self.0 {
            attempt.spend();
        }
    }
}

impl Place for Scope {
    fn scope(&self) -> Scope {
        self.clone()
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope")
            .field("claimed", &self.is_claimed())
            .field("remaining", &self.remaining())
            .finish()
    }
}
