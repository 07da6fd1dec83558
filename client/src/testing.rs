//! For tests of services that use the client: a scripted server in memory, and repeatable jitter.
//!
//! There is no clock to inject: the client goes by tokio's, so that under `#[tokio::test(start_paused = true)]`
//! every wait, backoff and timeout passes at once and in order.
//!
//! ```
//! use damper_client::{Failure, FailureClass, Idempotency, Reason, StopReason, testing::{FakeServer, Script}};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! let server = FakeServer::new(|ask| match ask.attempt {
//!     2 => Script::granted(),
//!     _ => Script::shed(Reason::QueueFull),
//! });
//! let payments = server.client().dependency("payments");
//! let error = payments
//!     .operation("charge")
//!     .idempotency(Idempotency::Safe)
//!     .call(|_| async { Err::<(), _>(Failure::new(FailureClass::Transient)) })
//!     .await
//!     .unwrap_err();
//! assert_eq!((error.reason, error.attempts), (StopReason::QueueFull, 2));
//! assert_eq!(server.asks().len(), 2);
//! # }
//! ```

use std::{fmt, sync::Arc, time::Duration};

pub use crate::transport::{Bytestream, Fault, Pending, Transport};
pub use damper_protocol as protocol;
use damper_protocol::{AskRequest, Decision, Reason, SyncRequest, SyncedDependency};

use crate::{
    Builder, Damper,
    core::Switch,
    fake::{Fake, Step, answer, granted},
};

/// A client as set up, on a transport of your own: for simulations, which carry its requests without a network. The
/// builder's endpoint and credential are not used, nor is the environment. With a [seed](Builder::seed) such a
/// client does the same in every run, if its transport does.
#[must_use]
pub fn client_on(transport: Arc<dyn Transport>, builder: Builder) -> Damper {
    builder.build_over(transport, Switch::On)
}

/// What the server does with one ask.
#[derive(Clone, Debug)]
pub struct Script(Step);

impl Script {
    /// Grants it at once.
    #[must_use]
    pub fn granted() -> Self {
        Self(Step::at_once(Ok(granted())))
    }

    /// Refuses it at once, for this reason.
    #[must_use]
    pub fn shed(reason: Reason) -> Self {
        Self(Step::at_once(Ok(answer(Decision::Shed, reason))))
    }

    /// Lets it wait until its window has closed.
    #[must_use]
    pub fn expired() -> Self {
        Self(Step::at_once(Ok(answer(Decision::Expired, Reason::Expired))))
    }

    /// Never answers.
    #[must_use]
    pub fn silence() -> Self {
        Self(Step::hung())
    }

    /// Nobody listens.
    #[must_use]
    pub fn unreachable() -> Self {
        Self(Step::at_once(Err(Fault::Unreachable)))
    }

    /// Answers with what is no answer: a 5xx, garbage, a cut connection.
    #[must_use]
    pub fn garbage() -> Self {
        Self(Step::at_once(Err(Fault::NoAnswer)))
    }

    /// Is not ready or going away, and says when to come again.
    #[must_use]
    pub fn unavailable(pause: Duration) -> Self {
        Self(Step::at_once(Err(Fault::Unavailable(pause))))
    }

    /// Does not accept it, with this status.
    #[must_use]
    pub fn rejected(status: u16) -> Self {
        Self(Step::at_once(Err(Fault::Rejected(status))))
    }

    /// The same, and no other ask for so long.
    #[must_use]
    pub fn suppressing(mut self, pause: Duration) -> Self {
        if let Ok(answer) = &mut self.0.outcome {
            answer.suppress_ms = crate::wire::ms_up(pause);
        }
        self
    }

    /// The same after so long in the delay queue.
    #[must_use]
    pub fn after(self, wait: Duration) -> Self {
        Self(Step { decided_after: wait, ..self.0 })
    }
}

/// A server in memory. Syncs are answered as [told](Self::tell); its watch stream stays silent.
#[derive(Clone)]
pub struct FakeServer(Arc<Fake>);

impl FakeServer {
    /// One that treats asks like this.
    #[must_use]
    pub fn new(script: impl Fn(&AskRequest) -> Script + Send + Sync + 'static) -> Self {
        Self(Fake::new(move |ask| script(ask).0))
    }

    /// One that grants everything.
    #[must_use]
    pub fn granting() -> Self {
        Self::new(|_| Script::granted())
    }

    /// One that is not there, its syncs included.
    #[must_use]
    pub fn dead() -> Self {
        Self(Fake::dead())
    }

    /// A client of it, with the same jitter in every run.
    #[must_use]
    pub fn client(&self) -> Damper {
        self.client_of(Damper::builder("").seed(1))
    }

    /// A client of it as set up. The builder's endpoint and credential are not used, nor is the environment.
    #[must_use]
    pub fn client_of(&self, builder: Builder) -> Damper {
        client_on(Arc::clone(&self.0) as Arc<dyn Transport>, builder)
    }

    /// What syncs tell about every dependency from now on; `None`: they get no answer.
    pub fn tell(&self, told: Option<SyncedDependency>) {
        *self.0.told.lock() = told;
    }

    /// Starts another life of the server's counters.
    pub fn set_epoch(&self, epoch: &str) {
        epoch.clone_into(&mut self.0.epoch.lock());
    }

    /// All asks so far.
    #[must_use]
    pub fn asks(&self) -> Vec<AskRequest> {
        self.0.asks.lock().iter().map(|(_, ask)| ask.clone()).collect()
    }

    /// All syncs so far.
    #[must_use]
    pub fn syncs(&self) -> Vec<SyncRequest> {
        self.0.syncs.lock().clone()
    }

    /// The tokens that came back unused.
    #[must_use]
    pub fn returned(&self) -> Vec<String> {
        self.0.returned.lock().clone()
    }
}

impl fmt::Debug for FakeServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeServer").field("asks", &self.0.asks.lock().len()).finish_non_exhaustive()
    }
}
