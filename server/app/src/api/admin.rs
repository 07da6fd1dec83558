//! `/v1/admin`: what operators change while the server runs. The guard lets only loopback peers in.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use damper_core::Force;
use damper_engine::Configured;
use damper_protocol::admin::{ForceRequest, ReloadResponse};
use damper_protocol::{DependencyState, ForcedBreaker, problem::Problem};
use tokio::task::spawn_blocking;

use super::{Name, json};
use crate::app::App;
use crate::body::{AnyJson, Sound};
use crate::live::Reloaded;
use crate::problem::Fault;

/// What every path of this module starts with.
pub(crate) const PREFIX: &str = "/v1/admin/";

/// Forces a breaker open or closed, or releases it.
///
/// Forced open, it refuses with `breaker_open` until it is released. Released, one that was open lets probes test
/// the dependency first.
#[utoipa::path(post, path = "/v1/admin/dependencies/{name}/breaker", tag = "admin",
    params(("name" = String, Path, description = "The dependency")), request_body = ForceRequest, responses(
    (status = 200, description = "Done: the dependency as it is now", body = DependencyState),
    (status = "4XX", description = "Nothing was changed", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn breaker(
    State(app): State<App>,
    Name(name): Name,
    Sound(request): Sound<ForceRequest>,
) -> Result<Response, Fault> {
    let force = match request.force {
        ForcedBreaker::Open => Some(Force::Open),
        ForcedBreaker::Closed => Some(Force::Closed),
        ForcedBreaker::Auto => None,
    };
    if !app.engine().force_breaker(&name, force) {
        return Err(Fault::UnknownDependency);
    }
    tracing::warn!(dependency = name, force = request.force.as_str(), "an operator forced a breaker");
    state(&app, &name)
}

/// Gives a dependency a policy: the keys of `[dependencies.NAME]`, with the same nesting.
///
/// What is left out is taken from `[defaults]`. The dependency is made if it is unknown; balances, queue and windows
/// are kept. In force at once, and until the next reload or restart: what is to stay belongs into the file.
#[utoipa::path(put, path = "/v1/admin/dependencies/{name}", tag = "admin",
    params(("name" = String, Path, description = "The dependency")),
    request_body(content = Object, description = "Such as {\"capacity_per_s\": 130, \"retry\": {\"per_s\": 10}}"),
    responses(
    (status = 200, description = "In force: the dependency as it is now", body = DependencyState),
    (status = 201, description = "Made", body = DependencyState),
    (status = "4XX", description = "Nothing was changed", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn put(
    State(app): State<App>,
    Name(name): Name,
    AnyJson(policy): AnyJson,
) -> Result<Response, Fault> {
    let (changing, named) = (app.clone(), name.clone());
    let status = match aside(move || changing.put_policy(&named, &policy)).await?? {
        Configured::Made => StatusCode::CREATED,
        Configured::Changed | Configured::Unchanged => StatusCode::OK,
    };
    Ok((status, state(&app, &name)?).into_response())
}

/// Forgets a dependency that is not in the configuration file.
///
/// Asks that wait for it are shed, its tokens are void. If anyone names it again, it is made from the defaults and
/// starts as any new dependency does. Watchers are told at once what that is: a closed breaker of a higher version and
/// the policy of the defaults.
#[utoipa::path(delete, path = "/v1/admin/dependencies/{name}", tag = "admin",
    params(("name" = String, Path, description = "The dependency")), responses(
    (status = 204, description = "Forgotten"),
    (status = "4XX", description = "Nothing was changed", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn delete(State(app): State<App>, Name(name): Name) -> Result<StatusCode, Fault> {
    aside(move || app.forget(&name)).await?.map(|()| StatusCode::NO_CONTENT)
}

/// Reads the configuration file again, as SIGHUP does.
///
/// A rule that stays the same notices nothing; one that changes is in force at once, with its balance kept; a
/// dependency that is not in the file any more, or was put by hand, goes by the file or the defaults again. A file
/// with mistakes changes nothing. The address and the engine cannot change while the server runs.
#[utoipa::path(post, path = "/v1/admin/reload", tag = "admin", responses(
    (status = 200, description = "In force", body = ReloadResponse),
    (status = "4XX", description = "Nothing was changed", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn reload(State(app): State<App>) -> Result<Response, Fault> {
    let Reloaded { config_version, changed } = aside(move || app.reload()).await??;
    Ok(json(&ReloadResponse { config_version, changed }))
}

/// Changes something where it holds nobody up: a reload reads a file, and the other changes wait for it.
async fn aside<T: Send + 'static>(change: impl FnOnce() -> T + Send + 'static) -> Result<T, Fault> {
    spawn_blocking(change).await.map_err(|_| Fault::Bug)
}

fn state(app: &App, name: &str) -> Result<Response, Fault> {
    super::dependencies::state(app, name).map(|state| json(&state)).ok_or(Fault::UnknownDependency)
}
