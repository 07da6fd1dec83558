//! `POST /v1/sync`: what clients report, and what they are told in return.

use axum::extract::State;
use axum::response::Response;
use damper_protocol::{Mode, SyncDependency, SyncRequest, SyncResponse, SyncedDependency, problem::Problem};

use super::json;
use crate::app::App;
use crate::body::Sound;
use crate::wire;

/// When a client syncs again.
const NEXT_SYNC_MS: u64 = 1000;
/// The configuration is read once in a server's life.
const CONFIG_VERSION: u64 = 1;

/// Cumulative totals up; breaker states, shares and policy down.
///
/// A dependency that the server refuses to keep is left out of the answer; the others are not held up by it.
#[utoipa::path(post, path = "/v1/sync", tag = "sync", request_body = SyncRequest, responses(
    (status = 200, description = "Counted", body = SyncResponse),
    (status = "4XX", description = "Nothing was counted", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn sync(State(app): State<App>, Sound(request): Sound<SyncRequest>) -> Response {
    let tenant = wire::tenant(request.tenant.as_deref());
    let client = wire::syncs::client_key(tenant, &request.client);
    let synced = request
        .dependencies
        .iter()
        .filter_map(|(name, synced)| Some((name.clone(), sync_one(&app, &client, tenant, name, synced)?)));
    json(&SyncResponse {
        epoch: app.epoch().to_owned(),
        config_version: CONFIG_VERSION,
        mode: Mode::Normal,
        next_sync_ms: NEXT_SYNC_MS,
        dependencies: synced.collect(),
    })
}

fn sync_one(
    app: &App,
    client: &str,
    tenant: &str,
    name: &str,
    synced: &SyncDependency,
) -> Option<SyncedDependency> {
    let report = wire::syncs::report(client, tenant, synced);
    let probes = synced.probes.as_ref();
    let probes = probes.map(|probes| probes.iter().map(|probe| (probe.token.as_str(), probe.success)));
    let advice = app.engine().sync(name, report, probes);
    advice.map(|advice| wire::syncs::advice(&advice)).inspect_err(|error| app.metrics().refused(*error)).ok()
}
