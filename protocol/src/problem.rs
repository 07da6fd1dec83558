//! Errors: `application/problem+json` (RFC 9457).

use serde::{Deserialize, Serialize};

/// The media type of an error's body.
pub const MEDIA_TYPE: &str = "application/problem+json";

/// What every `type` starts with; the rest is the code.
pub const TYPE_PREFIX: &str = "urn:damper:problem:";

/// An error. Clients branch on `code` alone; the rest is for people.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct Problem {
    /// `urn:damper:problem:<code>`.
    #[serde(rename = "type")]
    pub kind: String,
    /// A short summary, the same for every occurrence.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What is wrong here, and the remedy.
    pub detail: String,
    /// A stable word in snake_case.
    pub code: String,
    /// Whether the same request may succeed later.
    pub retryable: bool,
    /// When, in milliseconds, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// Every invalid field of the request.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<InvalidField>,
}

/// One invalid field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct InvalidField {
    /// Where: a JSON Pointer (RFC 6901) into the body or, of a reload, into the configuration; or the name of a
    /// parameter of the query or the path behind a `?`.
    pub pointer: String,
    /// What is wrong: `missing`, `wrong_type`, `out_of_range`, `unknown_value`, `unknown_key`,
    /// `invalid_name`; of a reload also `invalid`.
    pub code: String,
    /// The same for people, with the remedy.
    pub detail: String,
}
