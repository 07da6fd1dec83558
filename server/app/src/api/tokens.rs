//! `POST /v1/tokens`: asks, their batches, and tokens that come back.

use std::io;

use axum::body::Body;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use damper_core::{Ask, Span};
use damper_engine::{Asking, EngineError, Ticket};
use damper_protocol::{
    AskRequest, AskResponse, BatchRequest, BatchResponse, MAX_BATCH_ASKS, ReturnRequest, ReturnResponse,
    problem::Problem,
};
use futures_util::stream;

use super::{JSON, json};
use crate::app::App;
use crate::body::Sound;
use crate::phase::{Life, Phase};
use crate::problem::{Fault, undecidable};
use crate::traces::Trace;
use crate::wire;

/// May this attempt start, and when?
///
/// Answered with 200 whatever the decision. The status line and the headers are sent as soon as the ask is
/// admitted, the body when it is decided. A client that hangs up before leaves the delay queue.
#[utoipa::path(post, path = "/v1/tokens", tag = "tokens", request_body = AskRequest, responses(
    (status = 200, description = "Decided", body = AskResponse),
    (status = "4XX", description = "Nothing was charged", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn ask(
    State(app): State<App>,
    trace: Trace,
    Sound(request): Sound<AskRequest>,
) -> Result<Response, Fault> {
    trace.about(&request.dependency, wire::tenant(request.tenant.as_deref()));
    match app.engine().ask(&request.dependency, &wire::asks::ask(&request))? {
        Asking::Decided(decided) => {
            let answer = wire::asks::answer(decided);
            trace.decided(&answer);
            Ok(json(&answer))
        }
        Asking::Waiting(ticket) => Ok(later(ticket, app.life().clone(), trace)),
    }
}

/// An answer whose body comes when the ticket is decided. Dropping the body drops the ticket, and ends the trace.
fn later(ticket: Ticket, life: Life, trace: Trace) -> Response {
    let body = stream::once(async move {
        let answer =
            decided(ticket, &life).await.map_err(|_| io::Error::other("the server is going away"))?;
        trace.decided(&answer);
        serde_json::to_vec(&answer).map_err(io::Error::from)
    });
    ([(header::CONTENT_TYPE, JSON)], Body::from_stream(body)).into_response()
}

/// Several asks, decided at once and in their order.
#[utoipa::path(post, path = "/v1/tokens/batch", tag = "tokens", request_body = BatchRequest, responses(
    (status = 200, description = "Decided, in the order of the asks", body = BatchResponse),
    (status = "4XX", description = "Nothing was charged", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn batch(
    State(app): State<App>,
    trace: Trace,
    Sound(request): Sound<BatchRequest>,
) -> Result<Response, Fault> {
    trace.count("damper.asks", request.asks.len());
    if request.asks.len() > MAX_BATCH_ASKS {
        return Err(Fault::BatchTooLarge(request.asks.len()));
    }
    let asks: Vec<(String, Ask)> = request.asks.into_iter().map(to_decide_now).collect();
    admit_all(&app, &asks)?;
    let mut answers = Vec::with_capacity(asks.len());
    for (dependency, ask) in &asks {
        answers.push(decide_now(&app, dependency, ask).await?);
    }
    Ok(json(&BatchResponse { answers }))
}

fn to_decide_now(request: AskRequest) -> (String, Ask) {
    let ask = Ask { max_wait: Some(Span::ZERO), ..wire::asks::ask(&request) };
    (request.dependency, ask)
}

/// All or nothing: looks at every ask, then makes room for every dependency, before any ask is decided. After
/// this, only a server that is going away can fail a batch.
fn admit_all(app: &App, asks: &[(String, Ask)]) -> Result<(), Fault> {
    let mut invalid = Vec::new();
    for (place, (dependency, ask)) in asks.iter().enumerate() {
        match app.engine().check(dependency, ask) {
            Ok(()) => {}
            Err(EngineError::Ask(fault)) => invalid.push(undecidable(&format!("/asks/{place}"), fault)),
            Err(error) => return Err(error.into()),
        }
    }
    if !invalid.is_empty() {
        return Err(Fault::Invalid(invalid));
    }
    asks.iter().try_for_each(|(dependency, _)| app.engine().admit(dependency).map_err(Fault::from))
}

async fn decide_now(app: &App, dependency: &str, ask: &Ask) -> Result<AskResponse, Fault> {
    match app.engine().ask(dependency, ask)? {
        Asking::Decided(decided) => Ok(wire::asks::answer(decided)),
        // Only a repeat of an ask that waits elsewhere: one request id has one answer, and this is not yet it.
        Asking::Waiting(ticket) => decided(ticket, app.life()).await,
    }
}

async fn decided(ticket: Ticket, life: &Life) -> Result<AskResponse, Fault> {
    tokio::select! {
        decided = ticket => Ok(wire::asks::answer(decided?)),
        () = life.reaches(Phase::LettingGo) => Err(Fault::Draining),
    }
}

/// Takes an unused token back, once.
#[utoipa::path(post, path = "/v1/tokens/return", tag = "tokens", request_body = ReturnRequest, responses(
    (status = 200, description = "Whether it came back in time", body = ReturnResponse),
    (status = "4XX", description = "Nothing was credited", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn give_back(State(app): State<App>, Sound(request): Sound<ReturnRequest>) -> Response {
    json(&ReturnResponse { returned: app.engine().return_token(&request.token) })
}
