//! The endpoints, one module for each subject.

pub(crate) mod admin;
pub(crate) mod dependencies;
pub(crate) mod document;
pub(crate) mod plan;
pub(crate) mod process;
pub(crate) mod sync;
pub(crate) mod tokens;
pub(crate) mod watch;

use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::problem::{Fault, invalid_name};

/// An answer as JSON.
fn json(answer: &impl Serialize) -> Response {
    match serde_json::to_vec(answer) {
        Ok(body) => ([(header::CONTENT_TYPE, JSON)], body).into_response(),
        Err(_) => Fault::Bug.into_response(),
    }
}

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// The parameters of a query, in their order.
pub(crate) struct Parameters(Vec<(String, String)>);

impl Parameters {
    /// The last value that a parameter was given.
    fn last(&self, name: &'static str) -> Option<&str> {
        self.all(name).last()
    }

    /// Every value that a parameter was given.
    fn all(&self, name: &'static str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(given, _)| given == name).map(|(_, value)| value.as_str())
    }
}

impl<S: Sync> FromRequestParts<S> for Parameters {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Fault> {
        let pairs = axum::extract::Query::try_from_uri(&parts.uri);
        pairs.map(|pairs| Self(pairs.0)).map_err(|_| {
            Fault::Malformed("the query cannot be read; percent-encode names and values".to_owned())
        })
    }
}

/// The name in the path, percent-encoded there, if it can be one.
pub(crate) struct Name(String);

impl<S: Send + Sync> FromRequestParts<S> for Name {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Fault> {
        const PLACE: &str = "?name";
        let name: Result<Path<String>, PathRejection> = Path::from_request_parts(parts, state).await;
        let Path(name) =
            name.map_err(|_| Fault::field(PLACE, "invalid_name", "is not UTF-8; encode it as such"))?;
        match invalid_name(PLACE, &name) {
            Some(field) => Err(Fault::Invalid(vec![field])),
            None => Ok(Self(name)),
        }
    }
}
