//! A server without sockets: the application of one, called as functions. For simulations, which run thousands of
//! clients in one process and in virtual time.

use std::io;
use std::sync::Arc;

use axum::body::Body;
use damper_engine::{Asking, Change};
use damper_protocol::{
    AskRequest, AskResponse, BreakerState, BreakerVersion, DependencyState, SyncRequest, SyncResponse,
};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, Stream, StreamExt};
use hyper::body::Bytes;
use tokio::sync::broadcast::error::RecvError;

use crate::api;
use crate::app::App;
use crate::config::Config;
use crate::phase::{Mover, life};
use crate::problem::Fault;
use crate::wire::{self, ToWire};

/// A server of this process. It has to live within a tokio runtime, whose clock it reads.
///
/// Requests are taken as they are: what the HTTP interface refuses to read does not get here. Cheap to clone.
///
/// ```
/// use damper_server::{Config, local::{Asked, Local}};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let server = Local::start(Config::default());
/// let ask = serde_json::json!({"dependency": "payments", "operation": "o1", "attempt": 2, "deadline_ms": 1000,
///     "max_wait_ms": 0, "failure": {"class": "transient"}, "idempotent": true});
/// let Ok(Asked::Decided(answer)) = server.ask(&serde_json::from_value(ask)?) else { panic!() };
/// assert_eq!(answer.reason.as_str(), "within_budget");
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Local {
    app: App,
    _mover: Arc<Mover>,
}

/// What becomes of an ask.
pub enum Asked {
    /// Decided.
    Decided(AskResponse),
    /// It waits in the delay queue. Dropping the future leaves the queue; it fails if the server goes away.
    Waiting(BoxFuture<'static, Result<AskResponse, Gone>>),
}

/// The server went away before it decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server is going away")]
pub struct Gone;

/// The server does not accept the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("refused with {status}")]
pub struct Refused {
    /// The status with which the HTTP interface says so.
    pub status: u16,
}

impl From<Fault> for Refused {
    fn from(fault: Fault) -> Self {
        Self { status: fault.status().as_u16() }
    }
}

impl Local {
    /// Starts a server with this configuration; where to listen is ignored.
    #[must_use]
    pub fn start(config: Config) -> Self {
        let (mover, life) = life();
        Self { app: App::new(config, life), _mover: Arc::new(mover) }
    }

    /// `POST /v1/tokens`.
    ///
    /// # Errors
    /// The ask can never be decided; nothing is charged.
    pub fn ask(&self, request: &AskRequest) -> Result<Asked, Refused> {
        match self.app.engine().ask(&request.dependency, &wire::asks::ask(request)) {
            Ok(Asking::Decided(decided)) => Ok(Asked::Decided(wire::asks::answer(decided))),
            Ok(Asking::Waiting(ticket)) => {
                let answer = async { ticket.await.map(wire::asks::answer).map_err(|_| Gone) };
                Ok(Asked::Waiting(answer.boxed()))
            }
            Err(error) => Err(Fault::from(error).into()),
        }
    }

    /// `POST /v1/tokens/return`.
    pub fn give_back(&self, token: &str) {
        let _ = self.app.engine().return_token(token);
    }

    /// `POST /v1/sync`.
    #[must_use]
    pub fn sync(&self, request: &SyncRequest) -> SyncResponse {
        api::sync::answer(&self.app, request)
    }

    /// `GET /v1/watch` of one tenant, all dependencies: the bytes of the event stream.
    ///
    /// # Errors
    /// Too many streams are open.
    pub fn watch(
        &self,
        tenant: Option<&str>,
    ) -> Result<impl Stream<Item = io::Result<Bytes>> + Send + use<>, Refused> {
        let response = api::watch::follow(self.app.clone(), wire::tenant(tenant), Vec::new());
        let body: Body = response?.into_body();
        Ok(body.into_data_stream().map(|bytes| bytes.map_err(io::Error::other)))
    }

    /// `GET /v1/dependencies/{name}`.
    #[must_use]
    pub fn state(&self, name: &str) -> Option<DependencyState> {
        api::dependencies::state(&self.app, name)
    }

    /// The transitions of the breaker of the dependency `name`, as they happen. A reader that falls a thousand
    /// changes behind misses some.
    pub fn breaker_transitions(&self, name: &str) -> impl Stream<Item = BreakerVersion> + Send + use<> {
        let name = name.to_owned();
        futures_util::stream::unfold((self.app.engine().changes(), name), |(mut changes, name)| async {
            loop {
                match changes.recv().await {
                    Ok(Change::Breaker { dependency, breaker, .. }) if *dependency == *name => {
                        let state: BreakerState = breaker.state.to_wire();
                        let now = BreakerVersion { state, version: breaker.version };
                        return Some((now, (changes, name)));
                    }
                    Ok(_) | Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return None,
                }
            }
        })
    }
}

impl std::fmt::Debug for Asked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Decided(answer) => f.debug_tuple("Decided").field(answer).finish(),
            Self::Waiting(_) => f.write_str("Waiting"),
        }
    }
}
