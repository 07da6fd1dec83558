//! Connections, bounded in number and in patience.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use axum::Router;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;

use super::patience::Patient;
use crate::guard::Peer;
use crate::phase::{Life, Phase};

/// Most connections at once; more wait to be accepted.
const MOST: u32 = 10_000;
/// How long a request's head may take, and a connection may lie idle.
const HEAD_WITHIN: Duration = Duration::from_secs(5);
/// How often a silent HTTP/2 peer is asked whether it is alive, and how long it may take to say so.
const PING_EVERY: Duration = Duration::from_secs(20);
const PONG_WITHIN: Duration = Duration::from_secs(10);
/// Most bytes that hyper buffers of a head. The guard's bound is lower, so that most get a problem as answer.
const MOST_BUFFERED: usize = 32 * 1024;
const MOST_HEADER_LIST: u32 = 16 * 1024;
const MOST_CONCURRENT_STREAMS: u32 = 256;
/// A pause when the process has run out of descriptors or memory.
const BREATHER: Duration = Duration::from_millis(100);

/// The connections of one server.
#[derive(Clone, Debug)]
pub(super) struct Connections(Arc<Semaphore>);

impl Default for Connections {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MOST as usize)))
    }
}

impl Connections {
    /// Accepts connections until the server closes, and serves each with `router`.
    pub(super) async fn accept(self, listener: TcpListener, router: Router, life: Life) {
        let builder = Arc::new(builder());
        let service = TowerToHyperService::new(router);
        let closing = life.reaches(Phase::Closing);
        let mut closing = pin!(closing);
        loop {
            let accepted = tokio::select! {
                biased;
                () = &mut closing => return,
                accepted = self.next(&listener) => accepted,
            };
            match accepted {
                Ok((stream, peer, place)) => {
                    let serving = serve(stream, peer, Arc::clone(&builder), service.clone(), life.clone());
                    tokio::spawn(async move {
                        serving.await;
                        drop(place);
                    });
                }
                Err(error) => rest(&error).await,
            }
        }
    }

    /// Resolves once no connection is open, and none can be opened from then on.
    pub(super) async fn closed(&self) {
        if let Ok(all) = self.0.acquire_many(MOST).await {
            all.forget();
        }
    }

    async fn next(&self, listener: &TcpListener) -> io::Result<(TcpStream, Peer, OwnedSemaphorePermit)> {
        let place = Arc::clone(&self.0).acquire_owned().await.map_err(io::Error::other)?;
        let (stream, address) = listener.accept().await?;
        Ok((stream, Peer(address.ip()), place))
    }
}

fn builder() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        .max_buf_size(MOST_BUFFERED)
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PONG_WITHIN)
        .max_header_list_size(MOST_HEADER_LIST)
        .max_concurrent_streams(MOST_CONCURRENT_STREAMS);
    builder
}

/// Serves one connection to its end.
async fn serve(
    stream: TcpStream,
    peer: Peer,
    builder: Arc<Builder<TokioExecutor>>,
    service: TowerToHyperService<Router>,
    life: Life,
) {
    // An answer is one small write; waiting for more to send would cost it the client's time budget.
    let _ = stream.set_nodelay(true);
    let spoken = AtomicBool::new(false);
    let service = service_fn(|mut request: hyper::Request<_>| {
        spoken.store(true, Relaxed);
        request.extensions_mut().insert(peer);
        service.call(request)
    });
    let mut connection = pin!(builder.serve_connection(TokioIo::new(Patient::new(stream)), service));
    // Until it knows the protocol's version, hyper waits without a limit.
    let silent = async {
        sleep(HEAD_WITHIN).await;
        if spoken.load(Relaxed) {
            std::future::pending::<()>().await;
        }
    };
    let ended = tokio::select! {
        ended = &mut connection => Some(ended),
        () = silent => return tracing::debug!("closed a connection that said nothing"),
        () = life.reaches(Phase::Closing) => None,
    };
    let ended = match ended {
        Some(ended) => ended,
        None => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(error, "a connection broke off");
    }
}

/// A failed accept is the peer's affair, unless it is a shortage here, which would only come again at once.
async fn rest(error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    if !matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset) {
        tracing::warn!(%error, "cannot accept connections");
        sleep(BREATHER).await;
    }
}
