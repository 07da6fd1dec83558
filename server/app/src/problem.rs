//! The one place that turns what went wrong into a status and a body.

use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use damper_core::AskFault;
use damper_engine::EngineError;
use damper_protocol::problem::{InvalidField, MEDIA_TYPE, Problem, TYPE_PREFIX};
use damper_protocol::{MAX_BATCH_ASKS, name_fault};

use crate::config::{ConfigError, ConfigFault};
use crate::shape::pointer;

/// A full table has room again once an operator has had a dependency forgotten: nothing that seconds bring.
const FULL_FOR: Duration = Duration::from_secs(60);
/// Another server, or this one's successor, answers by then.
const AWAY_FOR: Duration = Duration::from_secs(1);

/// Why a request is not answered as asked.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Fault {
    /// The query or the body cannot be read: why, and the remedy.
    Malformed(String),
    /// Fields of the body or the query that cannot be.
    Invalid(Vec<InvalidField>),
    /// The body is larger than so many bytes.
    TooLarge(usize),
    /// More asks than a batch may have.
    BatchTooLarge(usize),
    /// The body is not declared as JSON.
    NotJson,
    /// The body took too long to arrive, or its sender went away.
    TooSlow,
    /// More headers than a request may have, or longer ones.
    HeadTooLarge,
    /// No such endpoint.
    UnknownRoute,
    /// Not with this method.
    WrongMethod,
    /// The dependency is not known here.
    UnknownDependency,
    /// The server keeps as many dependencies as it may.
    TooManyDependencies,
    /// The dependency is in the configuration file.
    ConfiguredDependency,
    /// The configuration cannot be adopted: why, and every mistake.
    InvalidConfiguration(String, Vec<InvalidField>),
    /// Operators' calls come from this machine alone.
    AdminNeedsLoopback,
    /// The peer calls too often; it may again after so long.
    CallerRateLimited(Duration),
    /// The server serves as many streams as it may.
    TooManyStreams,
    /// The server is going away.
    Draining,
    /// The server's own fault.
    Bug,
}

/// What a kind of fault looks like: status, code, title.
type Look = (StatusCode, &'static str, &'static str);

impl Fault {
    /// One invalid field.
    pub(crate) fn field(pointer: impl Into<String>, code: &str, detail: impl Into<String>) -> Self {
        Self::Invalid(vec![invalid(pointer, code, detail)])
    }

    const fn look(&self) -> Look {
        match self {
            Self::Malformed(_) => (StatusCode::BAD_REQUEST, "malformed", "The request cannot be read"),
            Self::Invalid(_) => {
                (StatusCode::UNPROCESSABLE_ENTITY, "invalid_field", "A field is missing or cannot be")
            }
            Self::TooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", "The body is too large"),
            Self::BatchTooLarge(_) => {
                (StatusCode::PAYLOAD_TOO_LARGE, "batch_too_large", "The batch has too many asks")
            }
            Self::NotJson => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "not_json", "The body is not JSON"),
            Self::TooSlow => {
                (StatusCode::REQUEST_TIMEOUT, "body_too_slow", "The body did not arrive in time")
            }
            Self::HeadTooLarge => {
                (StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "head_too_large", "The head is too large")
            }
            Self::UnknownRoute => (StatusCode::NOT_FOUND, "unknown_route", "There is no such endpoint"),
            Self::WrongMethod => {
                (StatusCode::METHOD_NOT_ALLOWED, "wrong_method", "The endpoint does not take this method")
            }
            Self::UnknownDependency => {
                (StatusCode::NOT_FOUND, "unknown_dependency", "The dependency is not known")
            }
            Self::TooManyDependencies => {
                (StatusCode::TOO_MANY_REQUESTS, "too_many_dependencies", "There are too many dependencies")
            }
            Self::ConfiguredDependency => {
                (StatusCode::CONFLICT, "configured_dependency", "The dependency is configured")
            }
            Self::InvalidConfiguration(..) => {
                (StatusCode::UNPROCESSABLE_ENTITY, "invalid_configuration", "The configuration has mistakes")
            }
            Self::AdminNeedsLoopback => {
                (StatusCode::FORBIDDEN, "admin_needs_loopback", "Only the server's own machine may change it")
            }
            Self::CallerRateLimited(_) => {
                (StatusCode::TOO_MANY_REQUESTS, "caller_rate_limited", "The caller calls too often")
            }
            Self::TooManyStreams => {
                (StatusCode::SERVICE_UNAVAILABLE, "too_many_streams", "There are too many watch streams")
            }
            Self::Draining => (StatusCode::SERVICE_UNAVAILABLE, "draining", "The server is going away"),
            Self::Bug => (StatusCode::INTERNAL_SERVER_ERROR, "bug", "The server made a mistake"),
        }
    }

    fn detail(&self) -> String {
        match self {
            Self::Malformed(detail) => detail.clone(),
            Self::Invalid(fields) => match fields.as_slice() {
                [only] => format!("{} {}", only.pointer, only.detail),
                more => format!("{} fields are wrong; see errors", more.len()),
            },
            Self::TooLarge(most) => format!("send at most {most} bytes"),
            Self::BatchTooLarge(asks) => {
                format!("it has {asks} asks; send at most {MAX_BATCH_ASKS} at once")
            }
            Self::NotJson => "send content-type: application/json".to_owned(),
            Self::TooSlow => "send the whole body within 10 seconds".to_owned(),
            Self::HeadTooLarge => "send at most 64 headers and 16 KiB of them".to_owned(),
            Self::UnknownRoute => "GET / lists the endpoints".to_owned(),
            Self::WrongMethod => "the allow header lists the methods".to_owned(),
            Self::UnknownDependency => {
                "configure it, or let the server make unknown dependencies: unknown_dependencies = \"default\""
                    .to_owned()
            }
            Self::TooManyDependencies => {
                "check that names are not made of ids, have some forgotten, or raise max_dependencies".to_owned()
            }
            Self::ConfiguredDependency => {
                "remove its section from the configuration file and reload; then it can be forgotten".to_owned()
            }
            Self::InvalidConfiguration(detail, _) => detail.clone(),
            Self::AdminNeedsLoopback => {
                "this version has no credentials: call from the machine that the server runs on, by a loopback \
                 address"
                    .to_owned()
            }
            Self::CallerRateLimited(_) => {
                "wait as long as retry_after_ms says; server.caller_per_s is the limit".to_owned()
            }
            Self::TooManyStreams => "share one stream per process".to_owned(),
            Self::Draining => "ask another server, or this one's successor".to_owned(),
            Self::Bug => "the server's log has the details".to_owned(),
        }
    }

    const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::TooManyDependencies => Some(FULL_FOR),
            Self::TooManyStreams | Self::Draining => Some(AWAY_FOR),
            Self::CallerRateLimited(wait) => Some(*wait),
            _ => None,
        }
    }

    /// As the peer is told.
    pub(crate) fn problem(&self) -> Problem {
        let (status, code, title) = self.look();
        let retry_after = self.retry_after();
        Problem {
            kind: format!("{TYPE_PREFIX}{code}"),
            title: title.to_owned(),
            status: status.as_u16(),
            detail: self.detail(),
            code: code.to_owned(),
            retryable: retry_after.is_some() || matches!(self, Self::TooSlow),
            retry_after_ms: retry_after
                .and_then(|wait| u64::try_from(wait.as_nanos().div_ceil(1_000_000)).ok()),
            errors: match self {
                Self::Invalid(fields) | Self::InvalidConfiguration(_, fields) => fields.clone(),
                _ => Vec::new(),
            },
        }
    }
}

/// One invalid field of a [`Fault::Invalid`].
pub(crate) fn invalid(pointer: impl Into<String>, code: &str, detail: impl Into<String>) -> InvalidField {
    InvalidField { pointer: pointer.into(), code: code.to_owned(), detail: detail.into() }
}

/// The field that holds this name, if it cannot be one.
pub(crate) fn invalid_name(pointer: impl Into<String>, name: &str) -> Option<InvalidField> {
    name_fault(name).map(|why| invalid(pointer, "invalid_name", why))
}

impl From<EngineError> for Fault {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::UnknownDependency => Self::UnknownDependency,
            EngineError::TooManyDependencies => Self::TooManyDependencies,
            EngineError::Ask(fault) => Self::Invalid(vec![undecidable("", fault)]),
            EngineError::Stopped => Self::Draining,
        }
    }
}

impl From<ConfigError> for Fault {
    fn from(error: ConfigError) -> Self {
        let field = |fault: &ConfigFault| {
            invalid(pointer(fault.place.iter().map(String::as_str)), "invalid", fault.to_string())
        };
        let fields: Vec<_> = error.faults().iter().map(field).collect();
        let detail = match fields.as_slice() {
            [] => error.to_string(),
            [only] => only.detail.clone(),
            more => format!("{} mistakes; see errors", more.len()),
        };
        Self::InvalidConfiguration(detail, fields)
    }
}

/// What makes it impossible to decide an ask; `ask` is the pointer to the ask in the body.
pub(crate) fn undecidable(ask: &str, fault: AskFault) -> InvalidField {
    let cost = |detail: String| invalid(format!("{ask}/cost"), "out_of_range", detail);
    match fault {
        AskFault::CostAboveBurst { burst } => cost(format!(
            "is above the pool's burst of {}, so it would wait for ever; give at most that, or raise retry.burst",
            burst.as_tokens()
        )),
        AskFault::CostZero => cost("is 0; give 1 or more".to_owned()),
        AskFault::FailureMissing => {
            invalid(format!("{ask}/failure/class"), "missing", "is required for a retry")
        }
    }
}

impl Fault {
    /// The status that it is answered with.
    pub(crate) fn status(&self) -> StatusCode {
        self.look().0
    }
}

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        let problem = self.problem();
        let status = self.status();
        let body = serde_json::to_vec(&problem).unwrap_or_default();
        let kind = [(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE))];
        let mut response = (status, kind, body).into_response();
        if let Some(ms) = problem.retry_after_ms {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(ms.div_ceil(1000)));
        }
        if matches!(self, Self::TooSlow) {
            // What is left of the body must not be taken for the next request.
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    const PROTOCOL: &str = include_str!("../../../docs/protocol.md");

    /// What stands in quotes behind a status in [`super::Fault::look`]: `(code, status)`.
    fn codes() -> BTreeSet<&'static str> {
        let source = include_str!("problem.rs");
        let look = source.split("const fn look").nth(1).unwrap().split("fn detail").next().unwrap();
        look.split("StatusCode::").skip(1).map(|look| look.split('"').nth(1).unwrap()).collect()
    }

    #[test]
    fn every_code_is_documented_with_its_remedy() {
        let rows = PROTOCOL.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
        let documented: BTreeSet<&str> = rows.map(|(code, _)| code).collect();
        assert!(codes().len() > 15);
        assert_eq!(documented, codes());
    }

    #[test]
    fn every_code_of_a_field_is_documented() {
        let sources = [
            include_str!("shape.rs"),
            include_str!("problem.rs"),
            include_str!("config/value.rs"),
            include_str!("config/reader.rs"),
            include_str!("config/json.rs"),
            include_str!("api.rs"),
            include_str!("api/plan.rs"),
        ];
        let told: BTreeSet<&str> = sources
            .iter()
            .flat_map(|source| {
                ["fault(\"", "code: \"", "invalid(pointer, \"", "shortened(name)), \""]
                    .map(|before| (source, before))
            })
            .flat_map(|(source, before)| source.split(before).skip(1))
            .map(|after| after.split('"').next().unwrap())
            .filter(|code| *code != "unavailable")
            .collect();
        assert!(told.len() >= 4, "{told:?}");
        for code in told {
            assert!(PROTOCOL.contains(&format!("`{code}`")), "{code}");
        }
    }

    #[test]
    fn every_endpoint_is_documented() {
        for route in crate::app::ROUTES {
            assert!(
                PROTOCOL.contains(&format!(" {route}`")) || PROTOCOL.contains(&format!(" {route}?")),
                "{route}"
            );
        }
    }
}
