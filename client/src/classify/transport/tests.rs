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
        assert_eq!((failure.class, failure.dispatch), (Class::Transient, Dispatch::Ambiguous), "{kind:?}");
        assert_eq!(failure.reason.is_some(), kind == Kind::TimedOut, "{kind:?}");
    }
    let refused = failure(&io::Error::from(Kind::ConnectionRefused)).unwrap();
    assert_eq!((refused.class, refused.dispatch), (Class::Transient, Dispatch::NotSent));
    for kind in [Kind::InvalidData, Kind::PermissionDenied, Kind::Other, Kind::NotFound, Kind::WouldBlock] {
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
