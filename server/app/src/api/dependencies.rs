//! `GET /v1/dependencies`: states, for people and tools.

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use damper_protocol::{DependencyList, DependencyState, problem::Problem};

use super::{Parameters, json};
use crate::app::App;
use crate::problem::Fault;
use crate::wire;

/// Every dependency, in the order of their names.
#[utoipa::path(get, path = "/v1/dependencies", tag = "dependencies", responses(
    (status = 200, description = "All of them", body = DependencyList),
    (status = 422, description = "It takes no parameters", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn list(State(app): State<App>, parameters: Parameters) -> Result<Response, Fault> {
    parameters.must_be(&[])?;
    let states = app.engine().names().into_iter().filter_map(|name| state(&app, &name));
    Ok(json(&DependencyList { dependencies: states.collect() }))
}

/// One dependency. Its name is percent-encoded in the path.
#[utoipa::path(get, path = "/v1/dependencies/{name}", tag = "dependencies",
    params(("name" = String, Path, description = "The dependency")), responses(
    (status = 200, description = "Its state", body = DependencyState),
    (status = 404, description = "Not known", body = Problem, content_type = "application/problem+json"),
    (status = 422, description = "It takes no parameters", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn one(
    State(app): State<App>,
    name: Result<Path<String>, PathRejection>,
    parameters: Parameters,
) -> Result<Response, Fault> {
    parameters.must_be(&[])?;
    let Path(name) = name.map_err(|_| Fault::UnknownDependency)?;
    state(&app, &name).map(|state| json(&state)).ok_or(Fault::UnknownDependency)
}

pub(crate) fn state(app: &App, name: &str) -> Option<DependencyState> {
    app.engine().snapshot(name).map(|snapshot| wire::states::state(name, &snapshot))
}
