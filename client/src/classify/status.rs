//! HTTP statuses.

use damper_protocol::{Dispatch, FailureClass as Class};
use http::StatusCode;

use super::rules::StatusRules;
use crate::Failure;

/// What one status means.
struct Row {
    class: Class,
    /// Implementations agree that its class is retried.
    retried: bool,
    /// It stands in the table; what does not is never retried.
    listed: bool,
}

/// The table; `None` for a success.
fn row(code: u16, rules: StatusRules) -> Option<Row> {
    let agreed = |class| Some(Row { class, retried: true, listed: true });
    let contested = |retried| Some(Row { class: Class::Transient, retried, listed: true });
    let unlisted = |class| Some(Row { class, retried: true, listed: false });
    match code {
        200..=299 | 304 => None,
        409 if rules.keyed_conflicts => agreed(Class::Transient),
        300..=399 | 404 | 409 | 410 | 412 | 423 | 424 | 428 => agreed(Class::Semantic),
        400 | 405 | 406 | 411 | 413..=417 | 422 | 426 | 431 => agreed(Class::Invalid),
        401 | 403 | 407 | 451 => agreed(Class::Permission),
        408 | 421 | 425 | 502 | 503 | 504 => agreed(Class::Transient),
        429 | 509 | 529 => agreed(Class::RateLimited),
        500 => contested(rules.internal_errors),
        520..=524 | 530 => contested(rules.gateway_errors),
        501 | 505..=508 | 510 | 511 | 525 | 526 => agreed(Class::Fatal),
        400..=499 => unlisted(Class::Invalid),
        _ => unlisted(Class::Fatal),
    }
}

/// A status alone: all that is left of a response in some errors.
pub(super) fn from_status(status: StatusCode, rules: StatusRules) -> Option<Failure> {
    let code = status.as_u16();
    let row = row(code, rules)?;
    let dispatch = match row.class {
        _ if matches!(code, 421 | 425) => Dispatch::NotProcessed,
        Class::RateLimited if rules.unprocessed_rejections => Dispatch::NotProcessed,
        // An answer about the request itself: its effect, if any, is known.
        Class::Invalid | Class::Permission | Class::Semantic => Dispatch::Processed,
        _ => Dispatch::Ambiguous,
    };
    let failure = Failure::new(row.class).with_dispatch(dispatch).with_code(code.to_string());
    Some(Failure {
        do_not_retry: !row.retried,
        contested: !row.retried,
        unclassified: !row.listed,
        ..failure
    })
}

#[cfg(test)]
mod tests;
