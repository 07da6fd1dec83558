//! `POST /v1/tokens`: asks, their batches, and tokens that come back.

use std::io;

use axum::body::Body;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use damper_core::MicroTokens;
use damper_engine::{Asking, Ticket};
use damper_protocol::{
    AskRequest, AskResponse, BatchRequest, BatchResponse, MAX_BATCH_ASKS, ReturnRequest, ReturnResponse,
    problem::Problem,
};
use futures_util::stream;

use super::{JSON, json};
use crate::app::App;
use crate::body::Sound;
use crate::phase::{Life, Phase};
use crate::problem::{Fault, cost_above};
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
    Sound(request): Sound<AskRequest>,
) -> Result<Response, Fault> {
    match app.engine().ask(&request.dependency, &wire::asks::ask(&request))? {
        Asking::Decided(decided) => Ok(json(&wire::asks::answer(decided))),
        Asking::Waiting(ticket) => Ok(later(ticket, app.life().clone())),
    }
}

/// An answer whose body comes when the ticket is decided. Dropping the body drops the ticket.
fn later(ticket: Ticket, life: Life) -> Response {
    let body = stream::once(async move {
        let answer =
            decided(ticket, &life).await.map_err(|_| io::Error::other("the server is going away"))?;
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
    Sound(request): Sound<BatchRequest>,
) -> Result<Response, Fault> {
    if request.asks.len() > MAX_BATCH_ASKS {
        return Err(Fault::BatchTooLarge(request.asks.len()));
    }
    check_costs(&app, &request.asks)?;
    let mut answers = Vec::with_capacity(request.asks.len());
    for ask in request.asks {
        match decide_now(&app, ask).await {
            Ok(answer) => answers.push(answer),
            Err(fault) => {
                // All or nothing: who is told of a fault is not charged.
                let granted = answers.into_iter().filter_map(|answer: AskResponse| answer.token);
                granted.for_each(|token| _ = app.engine().return_token(&token));
                return Err(fault);
            }
        }
    }
    Ok(json(&BatchResponse { answers }))
}

async fn decide_now(app: &App, mut ask: AskRequest) -> Result<AskResponse, Fault> {
    ask.max_wait_ms = Some(0);
    match app.engine().ask(&ask.dependency, &wire::asks::ask(&ask))? {
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

/// Looks at the prices of a batch before any of its asks is decided.
fn check_costs(app: &App, asks: &[AskRequest]) -> Result<(), Fault> {
    let burst_of = |dependency: &str| app.engine().snapshot(dependency).map(|seen| seen.pool.burst);
    let costly = asks.iter().enumerate().filter(|(_, ask)| ask.cost > 1);
    let faults = costly.filter_map(|(place, ask)| {
        let burst = burst_of(&ask.dependency)?;
        let price = MicroTokens::from_tokens(u64::from(ask.cost));
        (price > burst).then(|| cost_above(&format!("/asks/{place}"), burst))
    });
    let faults: Vec<_> = faults.collect();
    if faults.is_empty() { Ok(()) } else { Err(Fault::Invalid(faults)) }
}

/// Takes an unused token back, once.
#[utoipa::path(post, path = "/v1/tokens/return", tag = "tokens", request_body = ReturnRequest, responses(
    (status = 200, description = "Whether it came back in time", body = ReturnResponse),
    (status = "4XX", description = "Nothing was credited", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn give_back(State(app): State<App>, Sound(request): Sound<ReturnRequest>) -> Response {
    json(&ReturnResponse { returned: app.engine().return_token(&request.token) })
}
