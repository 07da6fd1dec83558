//! `/v1/admin`: what operators change while a server runs.

use serde::{Deserialize, Serialize};

use crate::ForcedBreaker;

/// `POST /v1/admin/dependencies/{name}/breaker`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ForceRequest {
    /// Where the breaker stays until it is released.
    pub force: ForcedBreaker,
}

/// The answer to `POST /v1/admin/reload`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct ReloadResponse {
    /// The configuration in force; it has risen if anything changed.
    pub config_version: u64,
    /// The dependencies that go by another policy now, in the order of their names.
    pub changed: Vec<String>,
}
