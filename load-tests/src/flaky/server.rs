//! The socket of the flaky dependency.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::serve::ListenerExt as _;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::Desk;
use crate::measure::Answer;

/// Carries the number of the operation.
pub const OPERATION_HEADER: &str = "x-load-operation";

/// Carries the number of the attempt, from 1.
pub const ATTEMPT_HEADER: &str = "x-load-attempt";

/// The body of an answer that is wrong.
pub const WRONG: &str = "wrong";

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

/// Starts a dependency on a free loopback port.
///
/// # Errors
/// No port could be had.
pub async fn serve(desk: Desk) -> std::io::Result<Flaky> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    let listener = listener.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    let app = Router::new().route("/", get(handle).post(handle)).with_state(Arc::new(desk));
    let serving = tokio::spawn(async move {
        let _ = axum::serve(listener, app).await;
    });
    Ok(Flaky { address, serving })
}

async fn handle(State(desk): State<Arc<Desk>>, headers: HeaderMap) -> Response {
    let operation = number(&headers, OPERATION_HEADER);
    let attempt = u32::try_from(number(&headers, ATTEMPT_HEADER)).unwrap_or(u32::MAX).max(1);
    match desk.take(operation, attempt).await {
        Answer::Success => StatusCode::OK.into_response(),
        Answer::Wrong => WRONG.into_response(),
        Answer::Failure | Answer::Abandoned => unavailable("failed"),
        Answer::QueueFull => unavailable("queue full"),
        Answer::Limited { retry_after_s } => {
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
