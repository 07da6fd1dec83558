//! What the people who run the server look at.

use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use damper_protocol::problem::Problem;
use prometheus::TEXT_FORMAT;

use super::{JSON, document};
use crate::app::App;
use crate::phase::Phase;
use crate::problem::Fault;

const HOME: &str = include_str!("home.txt");

/// Answers as long as the process can.
#[utoipa::path(get, path = "/livez", tag = "process", responses((status = 200, description = "Alive")))]
pub(crate) async fn livez() -> &'static str {
    "alive\n"
}

/// Whether new clients should come here.
#[utoipa::path(get, path = "/readyz", tag = "process", responses(
    (status = 200, description = "Ready"),
    (status = 503, description = "Going away", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn readyz(State(app): State<App>) -> Result<&'static str, Fault> {
    if app.life().has_reached(Phase::Draining) { Err(Fault::Draining) } else { Ok("ready\n") }
}

/// Metrics in Prometheus' text format.
#[utoipa::path(get, path = "/metrics", tag = "process", responses(
    (status = 200, description = "Every metric", content_type = "text/plain"),
))]
pub(crate) async fn metrics(State(app): State<App>) -> Result<Response, Fault> {
    let text = app.metrics().text().map_err(|error| {
        tracing::error!(%error, "the metrics cannot be written");
        Fault::Bug
    })?;
    Ok(([(header::CONTENT_TYPE, HeaderValue::from_static(TEXT_FORMAT))], text).into_response())
}

/// This document.
#[utoipa::path(get, path = "/openapi.json", tag = "process", responses(
    (status = 200, description = "OpenAPI", content_type = "application/json"),
))]
pub(crate) async fn openapi() -> Response {
    ([(header::CONTENT_TYPE, JSON)], document::json()).into_response()
}

pub(crate) async fn home() -> &'static str {
    HOME
}
