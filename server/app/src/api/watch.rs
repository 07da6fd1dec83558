//! `GET /v1/watch`: changes as they happen.

mod watcher;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use damper_protocol::problem::Problem;
use futures_util::stream;
use utoipa::IntoParams;

use super::Parameters;
use crate::app::App;
use crate::phase::Phase;
use crate::problem::{Fault, invalid_name};
use crate::wire;
use watcher::{Filter, Watcher};

/// A stream that is silent for longer than two of these is dead.
const HEARTBEAT: Duration = Duration::from_secs(10);

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "for the document")]
struct WatchQuery {
    /// Whose holds are told; `default` if it is left out.
    tenant: Option<String>,
    /// Only this dependency; may be repeated. All of them if it is left out.
    dependency: Option<Vec<String>>,
}

/// Server-sent events: `snapshot` first, then `breaker` and `dependency`, and `bye` at the end.
///
/// A consumer that falls behind gets a fresh snapshot; so does one that comes back, whatever its last event id. A
/// comment is sent every 10 seconds. Parameters that are not known are ignored: a newer client may send some.
#[utoipa::path(get, path = "/v1/watch", tag = "watch", params(WatchQuery), responses(
    (status = 200, description = "Events until the server goes away", content_type = "text/event-stream"),
    (status = 422, description = "A name that cannot be one", body = Problem, content_type = "application/problem+json"),
    (status = 503, description = "Going away, or too many streams", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn watch(State(app): State<App>, parameters: Parameters) -> Result<Response, Fault> {
    let given = |name| parameters.all(name).filter(|value| !value.is_empty());
    let tenant = given("tenant").last();
    let dependencies: Vec<&str> = given("dependency").collect();
    must_be_sound(tenant, &dependencies)?;
    follow(app, wire::tenant(tenant), dependencies)
}

/// The stream of a tenant about these dependencies, or about all of them if there are none.
pub(crate) fn follow(app: App, tenant: &str, dependencies: Vec<&str>) -> Result<Response, Fault> {
    if app.life().has_reached(Phase::Draining) {
        return Err(Fault::Draining);
    }
    let place = Arc::clone(app.streams()).try_acquire_owned().map_err(|_| Fault::TooManyStreams)?;
    let watcher = Watcher::new(app, Filter::new(tenant, dependencies), place);
    let events = stream::unfold(watcher, |mut watcher| async {
        let event = watcher.next().await?;
        Some((Ok::<Event, Infallible>(event), watcher))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(HEARTBEAT)).into_response())
}

fn must_be_sound(tenant: Option<&str>, dependencies: &[&str]) -> Result<(), Fault> {
    let of_tenant = tenant.and_then(|tenant| invalid_name("?tenant", tenant));
    let of_dependencies = dependencies.iter().filter_map(|name| invalid_name("?dependency", name));
    let faults: Vec<_> = of_tenant.into_iter().chain(of_dependencies).collect();
    if faults.is_empty() { Ok(()) } else { Err(Fault::Invalid(faults)) }
}
