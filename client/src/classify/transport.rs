//! Errors of the transports: `std::io`, tokio's timeouts, reqwest and hyper.

mod connect;

use std::{error::Error, io};

use damper_protocol::{Dispatch, FailureClass as Class, FailureSource};

use super::{rules::StatusRules, status::from_status};
use crate::Failure;

/// What one error of the chain says on its own.
pub(crate) fn failure(error: &(dyn Error + 'static)) -> Option<Failure> {
    if let Some(error) = error.downcast_ref::<reqwest::Error>() {
        return from_reqwest(error);
    }
    if let Some(error) = error.downcast_ref::<hyper::Error>() {
        return from_hyper(error);
    }
    #[cfg(feature = "http2")]
    if let Some(error) = error.downcast_ref::<h2::Error>() {
        return Some(from_h2(error));
    }
    if error.is::<tokio::time::error::Elapsed>() {
        return Some(Failure::timed_out());
    }
    error.downcast_ref::<io::Error>().and_then(|error| from_io(error.kind()))
}

/// Errors whose sources tell them apart (a truncated body from bad JSON) are left to the sources.
fn from_reqwest(error: &reqwest::Error) -> Option<Failure> {
    if let Some(status) = error.status() {
        return from_status(status, StatusRules::new());
    }
    if error.is_builder() {
        let unsent = Failure::new(Class::Invalid).with_dispatch(Dispatch::NotSent);
        return Some(unsent.with_source(FailureSource::Application).with_code("request"));
    }
    if error.is_redirect() {
        return Some(Failure::new(Class::Semantic).with_code("redirect"));
    }
    if error.is_connect() {
        return Some(connect::failure(error));
    }
    if error.is_timeout() {
        return Some(Failure::timed_out());
    }
    from_sources(error).or_else(|| undecodable(error))
}

fn from_sources(error: &reqwest::Error) -> Option<Failure> {
    super::find(error.source()?, failure)
}

/// The body came whole and was not what the caller expected: a wrong answer.
fn undecodable(error: &reqwest::Error) -> Option<Failure> {
    let wrong = Failure::new(Class::Semantic).with_dispatch(Dispatch::Processed).with_code("decode");
    error.is_decode().then_some(wrong)
}

fn from_hyper(error: &hyper::Error) -> Option<Failure> {
    if error.is_parse() {
        return Some(Failure::new(Class::Fatal).with_code("not_http"));
    }
    if error.is_timeout() {
        return Some(Failure::timed_out());
    }
    if error.is_user() {
        return Some(
            Failure::new(Class::Invalid).with_source(FailureSource::Application).with_code("request"),
        );
    }
    let cut = error.is_incomplete_message() || error.is_closed() || error.is_canceled();
    cut.then(|| Failure::new(Class::Transient).with_code("incomplete"))
}

/// A stream or a connection that the other side has ended. Only a refused stream is known to be unprocessed; that it
/// lies beyond the last one of a GOAWAY is not said.
#[cfg(feature = "http2")]
fn from_h2(error: &h2::Error) -> Failure {
    if let Some(error) = error.get_io() {
        return from_io(error.kind())
            .unwrap_or_else(|| Failure::new(Class::Transient).with_code("incomplete"));
    }
    let ambiguous = Failure::new(Class::Transient);
    match error.reason() {
        Some(h2::Reason::REFUSED_STREAM) if error.is_remote() && error.is_reset() => {
            ambiguous.with_dispatch(Dispatch::NotProcessed).with_code("REFUSED_STREAM")
        }
        Some(h2::Reason::ENHANCE_YOUR_CALM) => {
            Failure::new(Class::RateLimited).with_code("ENHANCE_YOUR_CALM")
        }
        Some(reason) => ambiguous.with_code(format!("{reason:?}")),
        None => ambiguous.with_code("http2"),
    }
}

fn from_io(kind: io::ErrorKind) -> Option<Failure> {
    use io::ErrorKind as Kind;
    let transient = Failure::new(Class::Transient);
    match kind {
        Kind::ConnectionRefused => {
            Some(transient.with_dispatch(Dispatch::NotSent).with_code("connection_refused"))
        }
        Kind::TimedOut => Some(Failure::timed_out()),
        Kind::ConnectionReset => Some(transient.with_code("connection_reset")),
        Kind::ConnectionAborted => Some(transient.with_code("connection_aborted")),
        Kind::BrokenPipe => Some(transient.with_code("broken_pipe")),
        Kind::NotConnected => Some(transient.with_code("not_connected")),
        Kind::UnexpectedEof => Some(transient.with_code("unexpected_eof")),
        Kind::HostUnreachable => Some(transient.with_code("host_unreachable")),
        Kind::NetworkUnreachable => Some(transient.with_code("network_unreachable")),
        Kind::NetworkDown => Some(transient.with_code("network_down")),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
