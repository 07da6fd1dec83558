//! The socket of the flaky dependency.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::serve::ListenerExt as _;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::{Model, Verdict};
use crate::measure::{Answer, Recorder};
use crate::scenario::Dependency;

/// Carries the number of the operation.
pub const OPERATION_HEADER: &str = "x-load-operation";

/// Carries the number of the attempt, from 1.
pub const ATTEMPT_HEADER: &str = "x-load-attempt";

/// A running dependency; it stops when this is dropped.
#[derive(Debug)]
pub struct Flaky {
    address: SocketAddr,
    serving: JoinHandle<()>,
}

impl Flaky {
    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Flaky {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

struct Shared {
    model: Mutex<Model>,
    recorder: Arc<Recorder>,
}

/// Starts a dependency on a free loopback port. Its time starts with the recorder's.
///
/// # Errors
/// No port could be had.
pub async fn serve(dependency: &Dependency, seed: u64, recorder: Arc<Recorder>) -> std::io::Result<Flaky> {
    let shared = Arc::new(Shared { model: Mutex::new(Model::new(dependency, seed)), recorder });
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    let listener = listener.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    let app = Router::new().route("/", get(handle).post(handle)).with_state(shared);
    let serving = tokio::spawn(async move {
        let _ = axum::serve(listener, app).await;
    });
    Ok(Flaky { address, serving })
}

async fn handle(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response {
    let operation = number(&headers, OPERATION_HEADER);
    let attempt = u32::try_from(number(&headers, ATTEMPT_HEADER)).unwrap_or(u32::MAX).max(1);
    let recorder = &shared.recorder;
    recorder.arrived(attempt);
    let verdict = shared.model.lock().arrive(recorder.now(), operation, attempt);
    match verdict {
        Verdict::Answered { at, success } => {
            let mut work = Work { recorder, finished: false };
            tokio::time::sleep_until(recorder.started() + at).await;
            work.finished = true;
            recorder.answered(if success { Answer::Success } else { Answer::Failure });
            if success { StatusCode::OK.into_response() } else { unavailable("failed") }
        }
        Verdict::QueueFull => {
            recorder.answered(Answer::QueueFull);
            unavailable("queue full")
        }
        Verdict::Limited { retry_after_s } => {
            recorder.answered(Answer::Limited);
            let retry_after = [(header::RETRY_AFTER, retry_after_s.to_string())];
            (StatusCode::TOO_MANY_REQUESTS, retry_after, "account limit").into_response()
        }
    }
}

fn unavailable(why: &'static str) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, why).into_response()
}

fn number(headers: &HeaderMap, name: &str) -> u64 {
    headers.get(name).and_then(|value| value.to_str().ok()).and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Notices that the caller hung up: the handler is dropped in its sleep.
struct Work<'a> {
    recorder: &'a Recorder,
    finished: bool,
}

impl Drop for Work<'_> {
    fn drop(&mut self) {
        if !self.finished {
            self.recorder.answered(Answer::Abandoned);
        }
    }
}
