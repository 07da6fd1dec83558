//! `POST /v1/sync`: what clients report, and what they are told in return.

use axum::extract::State;
use axum::response::Response;
use damper_core::Advice;
use damper_protocol::{Mode, SyncDependency, SyncRequest, SyncResponse, problem::Problem};

use super::json;
use crate::app::App;
use crate::body::Sound;
use crate::traces::Trace;
use crate::wire;

/// When a client syncs again.
const NEXT_SYNC_MS: u64 = 1000;

/// Cumulative totals up; breaker states, shares and policy down.
///
/// A dependency that the server refuses to keep is left out of the answer; the others are not held up by it.
#[utoipa::path(post, path = "/v1/sync", tag = "sync", request_body = SyncRequest, responses(
    (status = 200, description = "Counted", body = SyncResponse),
    (status = "4XX", description = "Nothing was counted", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn sync(
    State(app): State<App>,
    trace: Trace,
    Sound(request): Sound<SyncRequest>,
) -> Response {
    trace.tenant(wire::tenant(request.tenant.as_deref()));
    trace.count("damper.dependencies", request.dependencies.len());
    json(&answer(&app, &request))
}

/// Counts a sound request and says what its client is told.
pub(crate) fn answer(app: &App, request: &SyncRequest) -> SyncResponse {
    let tenant = wire::tenant(request.tenant.as_deref());
    let client = wire::syncs::client_key(tenant, &request.client);
    let mut learning = false;
    let synced = request.dependencies.iter().filter_map(|(name, synced)| {
        let advice = sync_one(app, &client, tenant, name, synced)?;
        learning |= advice.learning;
        Some((name.clone(), wire::syncs::advice(&advice)))
    });
    let dependencies = synced.collect();
    SyncResponse {
        epoch: app.epoch().to_owned(),
        config_version: app.live().version(),
        mode: if learning { Mode::Learning } else { Mode::Normal },
        next_sync_ms: NEXT_SYNC_MS,
        dependencies,
    }
}

fn sync_one(app: &App, client: &str, tenant: &str, name: &str, synced: &SyncDependency) -> Option<Advice> {
    let report = wire::syncs::report(client, tenant, synced);
    let probes = synced.probes.as_ref();
    let probes = probes.map(|probes| probes.iter().map(|probe| (probe.token.as_str(), probe.success)));
    let advice = app.engine().sync(name, report, probes);
    advice.inspect_err(|error| app.refused(name, *error)).ok()
}
