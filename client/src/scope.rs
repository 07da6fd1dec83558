//! What runs inside what: the scope of an attempt, or of a request that is being served.
//!
//! It travels with the task, so that nested operations find it without being told. A task that is spawned does
//! not inherit it and has to be given a handle.

use std::{cell::Cell, fmt, future::Future, sync::Arc, time::Duration};

use tokio::{task::futures::TaskLocalFuture, time::Instant};

use crate::{context::Context, operation::Life};

tokio::task_local! {
    static ENTERED: Entered;
}

/// A scope while something runs in it.
pub(crate) struct Entered {
    scope: Scope,
    /// An operation in it that owned its retries has given up.
    spent: Cell<bool>,
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
pub struct Scope {
    origin: Origin,
    end: Option<Instant>,
}

#[derive(Clone)]
enum Origin {
    Attempt { life: Arc<Life>, number: u32 },
    Request { context: Option<Arc<Context>>, foreign_attempts: u32 },
}

impl Scope {
    pub(crate) fn attempt(life: Arc<Life>, number: u32, end: Option<Instant>) -> Self {
        Self { origin: Origin::Attempt { life, number }, end }
    }

    pub(crate) fn inbound(context: Option<Context>, end: Option<Instant>, foreign_attempts: u32) -> Self {
        let context = context.map(Arc::new);
        Self { origin: Origin::Request { context, foreign_attempts }, end }
    }

    /// The scope that this code runs in, if it runs in one.
    #[must_use]
    pub fn current() -> Option<Self> {
        ENTERED.try_with(|entered| entered.scope.clone()).ok()
    }

    /// Runs something in this scope.
    pub fn run<F: Future>(self, inner: F) -> impl Future<Output = F::Output> {
        self.enter(inner)
    }

    /// The time that is left, if it is limited.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        self.end.map(|end| end.saturating_duration_since(Instant::now()))
    }

    /// The context that calls from here carry, if somebody owns their retries.
    #[must_use]
    pub fn context(&self) -> Option<Context> {
        match &self.origin {
            Origin::Attempt { life, number } => life.context(*number),
            Origin::Request { context, .. } => context.as_deref().map(Context::one_deeper),
        }
    }

    /// Whether somebody owns the retries of what is called here.
    pub(crate) fn is_claimed(&self) -> bool {
        match &self.origin {
            Origin::Attempt { life, .. } => life.claims(),
            Origin::Request { context, .. } => context.is_some(),
        }
    }

    pub(crate) const fn is_attempt(&self) -> bool {
        matches!(self.origin, Origin::Attempt { .. })
    }

    pub(crate) fn foreign_attempts(&self) -> u32 {
        match &self.origin {
            Origin::Attempt { .. } => 0,
            Origin::Request { foreign_attempts, .. } => *foreign_attempts,
        }
    }

    pub(crate) const fn end(&self) -> Option<Instant> {
        self.end
    }

    pub(crate) fn enter<F: Future>(self, inner: F) -> TaskLocalFuture<Entered, F> {
        ENTERED.scope(Entered { scope: self, spent: Cell::new(false) }, inner)
    }

    /// Notes that an operation in this scope has spent retries of its own in vain: repeating the whole would
    /// multiply them.
    pub(crate) fn spend() {
        let _ = ENTERED.try_with(|entered| entered.spent.set(true));
    }
}

impl Entered {
    pub(crate) fn is_spent(&self) -> bool {
        self.spent.get()
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
