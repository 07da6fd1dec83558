//! The endpoints, one module for each subject.

pub(crate) mod admin;
pub(crate) mod dependencies;
pub(crate) mod document;
pub(crate) mod plan;
pub(crate) mod process;
pub(crate) mod sync;
pub(crate) mod tokens;
pub(crate) mod watch;

use std::collections::BTreeSet;

use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use damper_protocol::problem::InvalidField;
use serde::Serialize;

use crate::config::nearest;
use crate::problem::{Fault, invalid, invalid_name};
use crate::shape::shortened;

/// An answer as JSON.
fn json(answer: &impl Serialize) -> Response {
    match serde_json::to_vec(answer) {
        Ok(body) => ([(header::CONTENT_TYPE, JSON)], body).into_response(),
        Err(_) => Fault::Bug.into_response(),
    }
}

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Most unknown parameters that are named: each brings the list of those that are known.
const MOST_UNKNOWN: usize = 16;

/// The parameters of a query, in their order.
pub(crate) struct Parameters(Vec<(String, String)>);

impl Parameters {
    /// The last value that a parameter was given.
    fn last(&self, name: &'static str) -> Option<&str> {
        self.all(name).last()
    }

    /// The parameters that are none of `known`. One that is misspelt must not count as left out: the answer would be
    /// that to another question.
    fn unknown(&self, known: &[&str]) -> Vec<InvalidField> {
        let unknown = self.0.iter().map(|(name, _)| name.as_str()).filter(|name| !known.contains(name));
        let unknown: BTreeSet<&str> = unknown.collect();
        let told = unknown.into_iter().take(MOST_UNKNOWN);
        told.map(|name| invalid(format!("?{}", shortened(name)), "unknown_parameter", remedy(name, known)))
            .collect()
    }

    /// Refuses parameters that are none of `known`.
    fn must_be(&self, known: &[&str]) -> Result<(), Fault> {
        let unknown = self.unknown(known);
        if unknown.is_empty() { Ok(()) } else { Err(Fault::Invalid(unknown)) }
    }

    /// Every value that a parameter was given.
    fn all(&self, name: &'static str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(given, _)| given == name).map(|(_, value)| value.as_str())
    }
}

/// What to do about an unknown parameter.
fn remedy(name: &str, known: &[&str]) -> String {
    if known.is_empty() {
        return "is not known: this endpoint takes no parameters; leave it out".to_owned();
    }
    let nearest = nearest(name, known.iter().copied());
    let meant = nearest.map_or_else(String::new, |nearest| format!("did you mean {nearest}? "));
    format!("is not known; {meant}The parameters are: {}", known.join(", "))
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
