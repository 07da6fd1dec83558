//! Serving: from a listener to the last closed connection.

mod connections;
mod patience;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use damper_engine::MemoryEngine;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{sleep, timeout};

use crate::app::{App, router};
use crate::config::{Config, ConfigError};
use crate::live::Reloaded;
use crate::phase::{Mover, Phase, life};
use crate::traces::Traces;
use connections::Connections;

/// How long a server that is not ready any more is still found by those who did not hear of it.
const LINGERS_FOR: Duration = Duration::from_millis(300);
/// How long asks may wait on while the server goes away.
const WAITS_FOR: Duration = Duration::from_secs(8);
/// How long going away takes at most.
const DRAINS_WITHIN: Duration = Duration::from_secs(10);

/// Why a server did not start or did not end well.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// It cannot listen where it should.
    #[error("cannot listen on {address}: {source}; give another address with --listen or server.listen")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// Connections were still open when the time for going away was over.
    #[error("connections were still open after {} s", DRAINS_WITHIN.as_secs())]
    Overrun,
    /// The server's task panicked.
    #[error("the server's own task panicked; its log has the details")]
    Panicked,
}

impl ServeError {
    /// Whether the same may work later, with nothing changed.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Listen { source, .. } if source.kind() == io::ErrorKind::AddrInUse)
    }
}

/// A server that runs in this process. Dropping it lets it go away in the background.
#[derive(Debug)]
pub struct Running {
    address: SocketAddr,
    app: App,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), ServeError>>,
}

impl Running {
    /// Where it listens.
    #[must_use]
    pub const fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// What decides in it.
    #[must_use]
    pub fn engine(&self) -> &MemoryEngine {
        self.app.engine()
    }

    /// Reads its configuration again and adopts it, as `POST /v1/admin/reload` does.
    ///
    /// # Errors
    /// Every mistake; nothing is changed then. It is logged too.
    pub async fn reload(&self) -> Result<Reloaded, ConfigError> {
        let app = self.app.clone();
        match spawn_blocking(move || app.reload()).await {
            Ok(reloaded) => reloaded,
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        }
    }

    /// Lets it go away and waits for its end: streams say goodbye, waiting asks are answered.
    ///
    /// # Errors
    /// It took too long, or had gone wrong before.
    pub async fn shutdown(self) -> Result<(), ServeError> {
        drop(self.stop);
        self.task.await.unwrap_or(Err(ServeError::Panicked))
    }
}

/// Starts a server with this configuration. Several can run in one process.
///
/// # Errors
/// It cannot listen.
pub async fn start(config: Config) -> Result<Running, ServeError> {
    let listener = bind(config.listen()).await?;
    Ok(start_on(listener, config))
}

/// Starts a server that serves on `listener`.
pub(crate) fn start_on(listener: TcpListener, config: Config) -> Running {
    let address = listener.local_addr().unwrap_or(config.listen());
    let (mover, life) = life();
    let app = App::new(config, life);
    let (stop, stopped) = oneshot::channel::<()>();
    let shutdown = async { drop(stopped.await) };
    let task = tokio::spawn(serve(listener, app.clone(), mover, shutdown));
    Running { address, app, stop, task }
}

/// Serves on `listener` until `shutdown` resolves and everything has drained.
///
/// # Errors
/// It took too long to drain.
pub async fn run(
    listener: TcpListener,
    config: &Config,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let running = start_on(listener, config.clone());
    shutdown.await;
    running.shutdown().await
}

/// A listener on `address`.
///
/// # Errors
/// The address is in use or not this machine's.
pub async fn bind(address: SocketAddr) -> Result<TcpListener, ServeError> {
    TcpListener::bind(address).await.map_err(|source| ServeError::Listen { address, source })
}

async fn serve(
    listener: TcpListener,
    app: App,
    mover: Mover,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let chronicle = tokio::spawn(crate::chronicle::keep(app.engine().changes(), app.engine().clone()));
    let connections = Connections::default();
    let life = app.life().clone();
    let accepting = tokio::spawn(connections.clone().accept(listener, router(app.clone()), life));
    shutdown.await;
    let drained = timeout(DRAINS_WITHIN, drain(&mover, &connections)).await;
    accepting.abort();
    chronicle.abort();
    let _ = spawn_blocking(move || app.traces().map(Traces::finish)).await;
    drained.map_err(|_| ServeError::Overrun)
}

async fn drain(mover: &Mover, connections: &Connections) {
    tracing::info!("going away: not ready any more");
    mover.enter(Phase::Draining);
    sleep(LINGERS_FOR).await;
    mover.enter(Phase::Closing);
    if timeout(WAITS_FOR, connections.closed()).await.is_err() {
        tracing::warn!("letting go of whoever still waits");
        mover.enter(Phase::LettingGo);
        connections.closed().await;
    }
    tracing::info!("gone: every connection is closed");
}
