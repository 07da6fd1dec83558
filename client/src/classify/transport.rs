//! Errors of the transports: `std::io`, tokio's timeouts, reqwest and hyper.

use std::{error::Error, io};

use damper_protocol::{Dispatch, FailureClass as Class, FailureSource};

use super::status::from_status;
use crate::Failure;

/// What one error of the chain says on its own.
pub(crate) fn failure(error: &(dyn Error + 'static)) -> Option<Failure> {
    if let Some(error) = error.downcast_ref::<reqwest::Error>() {
        return from_reqwest(error);
    }
    if let Some(error) = error.downcast_ref::<hyper::Error>() {
        return from_hyper(error);
    }
    if error.is::<tokio::time::error::Elapsed>() {
        return Some(Failure::timed_out());
    }
    error.downcast_ref::<io::Error>().and_then(|error| from_io(error.kind()))
}

/// Errors whose sources tell them apart (a truncated body from bad JSON) are left to the sources.
fn from_reqwest(error: &reqwest::Error) -> Option<Failure> {
    if let Some(status) = error.status() {
        return from_status(status);
    }
    if error.is_builder() {
        let unsent = Failure::new(Class::Invalid).with_dispatch(Dispatch::NotSent);
        return Some(unsent.with_source(FailureSource::Application).with_code("request"));
    }
    if error.is_redirect() {
        return Some(Failure::new(Class::Semantic).with_code("redirect"));
    }
    if error.is_connect() {
        let unsent = Failure::new(Class::Transient).with_dispatch(Dispatch::NotSent);
        return Some(unsent.with_code("connect"));
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
mod tests {
    use super::*;

    #[test]
    fn io_errors() {
        use io::ErrorKind as Kind;
        for kind in [
            Kind::ConnectionReset,
            Kind::ConnectionAborted,
            Kind::BrokenPipe,
            Kind::NotConnected,
            Kind::UnexpectedEof,
            Kind::TimedOut,
            Kind::HostUnreachable,
            Kind::NetworkUnreachable,
        ] {
            let failure = failure(&io::Error::from(kind)).unwrap();
            assert_eq!(
                (failure.class, failure.dispatch),
                (Class::Transient, Dispatch::Ambiguous),
                "{kind:?}"
            );
            assert_eq!(failure.reason.is_some(), kind == Kind::TimedOut, "{kind:?}");
        }
        let refused = failure(&io::Error::from(Kind::ConnectionRefused)).unwrap();
        assert_eq!((refused.class, refused.dispatch), (Class::Transient, Dispatch::NotSent));
        for kind in [Kind::InvalidData, Kind::PermissionDenied, Kind::Other, Kind::NotFound, Kind::WouldBlock]
        {
            assert_eq!(failure(&io::Error::from(kind)), None, "{kind:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_timeout_is_ambiguous() {
        let never = std::future::pending::<()>();
        let elapsed = tokio::time::timeout(std::time::Duration::from_secs(1), never).await.unwrap_err();
        assert_eq!(failure(&elapsed), Some(Failure::timed_out()));
    }

    #[test]
    fn a_request_that_cannot_be_built_never_left() {
        let error = reqwest::Client::new().get("not a url").build().unwrap_err();
        let failure = failure(&error).unwrap();
        assert_eq!((failure.class, failure.dispatch), (Class::Invalid, Dispatch::NotSent));
        assert_eq!(failure.source, FailureSource::Application);
    }
}
