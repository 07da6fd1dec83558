//! What surrounds every endpoint: bounds on the head and on callers, a net for panics, and the counting of requests.

use std::any::Any;
use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;

use crate::api::admin::PREFIX;
use crate::app::App;
use crate::problem::Fault;

/// Most headers of a request.
const MOST_HEADERS: usize = 64;
/// Most bytes of a request's head.
const MOST_HEAD_BYTES: usize = 16 * 1024;

/// What stays in reach of a peer that calls too often: what supervisors and Prometheus look at.
const EXEMPT: [&str; 3] = ["/livez", "/readyz", "/metrics"];

/// Where a request came from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) IpAddr);

/// Answers a request within these bounds, and counts the answer.
pub(crate) async fn guard(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let started = Instant::now();
    let path = request.extensions().get::<MatchedPath>().cloned();
    let route = path.as_ref().map(MatchedPath::as_str);
    let trace = app.traces().map(|traces| traces.begin(route, &mut request));
    let response = match admit(&app, &request, route) {
        Ok(()) => caught(next.run(request)).await,
        Err(fault) => fault.into_response(),
    };
    if let Some(trace) = trace {
        trace.answered(response.status().as_u16());
    }
    app.metrics().answered(route, response.status().as_u16(), started.elapsed());
    response
}

/// What can be said of a request before its endpoint looks at it.
fn admit(app: &App, request: &Request, route: Option<&str>) -> Result<(), Fault> {
    if !head_is_bounded(request) {
        return Err(Fault::HeadTooLarge);
    }
    let peer = request.extensions().get::<Peer>().map(|Peer(peer)| peer.to_canonical());
    if !route.is_some_and(|route| EXEMPT.contains(&route))
        && let Some(Err(wait)) = peer.map(|peer| app.callers().admit(peer))
    {
        app.metrics().caller_refused();
        return Err(Fault::CallerRateLimited(wait));
    }
    let is_admin = route.is_some_and(|route| route.starts_with(PREFIX));
    if is_admin && !peer.is_some_and(|peer| peer.is_loopback()) {
        return Err(Fault::AdminNeedsLoopback);
    }
    Ok(())
}

/// The answer, or a 500 if finding it panicked: one peer's bad luck must not be everyone's.
async fn caught(answer: impl Future<Output = Response>) -> Response {
    AssertUnwindSafe(answer).catch_unwind().await.unwrap_or_else(|panic| {
        tracing::error!(panic = message(&*panic), "a request hit a bug");
        Fault::Bug.into_response()
    })
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("of an unknown kind")
}

fn head_is_bounded(request: &Request) -> bool {
    let headers = request.headers();
    let line = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
    let bytes = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4);
    headers.len() <= MOST_HEADERS && line + bytes.sum::<usize>() <= MOST_HEAD_BYTES
}

#[cfg(test)]
mod bench;

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    #[tokio::test]
    async fn a_panic_becomes_a_500() {
        let answer = caught(async { panic!("of the test") }).await;
        assert_eq!(answer.status(), 500);
        assert_eq!(answer.headers()["content-type"], damper_protocol::problem::MEDIA_TYPE);
    }

    #[test]
    fn heads_are_bounded_in_number_and_size() {
        let with = |count: usize, bytes: usize| {
            let request = (0..count).fold(Request::builder(), |request, number| {
                request.header(format!("x-{number}"), "v".repeat(bytes))
            });
            head_is_bounded(&request.body(Body::empty()).unwrap())
        };
        assert!(with(64, 100));
        assert!(!with(65, 1));
        assert!(!with(2, 8192));
    }
}
