//! What surrounds every endpoint: bounds on the head, a net for panics, and the counting of requests.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;

use crate::app::App;
use crate::problem::Fault;

/// Most headers of a request.
const MOST_HEADERS: usize = 64;
/// Most bytes of a request's head.
const MOST_HEAD_BYTES: usize = 16 * 1024;

/// Answers a request within these bounds, and counts the answer.
pub(crate) async fn guard(State(app): State<App>, request: Request, next: Next) -> Response {
    let started = Instant::now();
    let path = request.extensions().get::<MatchedPath>().cloned();
    let response = if head_is_bounded(&request) {
        caught(next.run(request)).await
    } else {
        Fault::HeadTooLarge.into_response()
    };
    let route = path.as_ref().map(MatchedPath::as_str);
    app.metrics().answered(route, response.status().as_u16(), started.elapsed());
    response
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
