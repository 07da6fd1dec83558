//! What reqwest really says about what happens on the wire, and what is made of it.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    unreachable_pub,
    reason = "a test may fail in any way; the lints exempt only functions that are marked as tests"
)]

mod expect;
mod late;
mod wire;

use std::time::Duration;

use damper_client::{
    Damper, Deadline, Dispatch, Failure, FailureClass as Class,
    reqwest_middleware::{Retry, client_builder},
};
use h2::Reason;
use http::HeaderMap;
use tokio::net::TcpListener;
use wire::{Unresolvable, going_away, raw, resetting};

/// What becomes of a GET by this client.
async fn meaning(client: &reqwest::Client, url: &str) -> Failure {
    let read = |_| async { client.get(url).send().await?.bytes().await };
    let operation = Damper::inert().dependency("d").operation("get").deadline(Deadline::unbounded());
    *operation.call(read).await.unwrap_err().failure.unwrap()
}

fn http2() -> reqwest::Client {
    client_builder().no_proxy().http2_prior_knowledge().build().unwrap()
}

/// The reason, the class, whether there can have been an effect.
#[tokio::test]
async fn a_reset_stream() {
    let cases = [
        (Reason::REFUSED_STREAM, Class::Transient, Dispatch::NotProcessed),
        (Reason::CANCEL, Class::Transient, Dispatch::Ambiguous),
        (Reason::INTERNAL_ERROR, Class::Transient, Dispatch::Ambiguous),
        (Reason::ENHANCE_YOUR_CALM, Class::RateLimited, Dispatch::Ambiguous),
    ];
    for (reason, class, dispatch) in cases {
        let failure = meaning(&http2(), &resetting(reason).await).await;
        assert_eq!((failure.class, failure.dispatch), (class, dispatch), "{failure:?}");
        assert_eq!(failure.code, Some(format!("{reason:?}").into()));
    }
}

/// Nothing says which of the streams were looked at, so that all may have taken effect.
#[tokio::test]
async fn a_goodbye() {
    let cases = [
        (Reason::NO_ERROR, 1, Class::Transient),
        (Reason::NO_ERROR, 0, Class::Transient),
        (Reason::INTERNAL_ERROR, 0, Class::Transient),
        (Reason::ENHANCE_YOUR_CALM, 0, Class::RateLimited),
    ];
    for (reason, last_stream, class) in cases {
        let failure = meaning(&http2(), &going_away(reason, last_stream).await).await;
        let seen = (failure.class, failure.dispatch);
        assert_eq!(seen, (class, Dispatch::Ambiguous), "{reason:?} {last_stream}: {failure:?}");
    }
}

#[tokio::test]
async fn what_http1_servers_do() {
    type Case = (&'static [u8], bool, Class);
    let cases: [Case; 6] = [
        (b"", false, Class::Transient),
        (b"", true, Class::Transient),
        (b"HTTP/1.1 200", true, Class::Transient),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc", true, Class::Transient),
        (b"SSH-2.0-OpenSSH_9.9\r\n\r\n", true, Class::Fatal),
        (b"\x16\x03\x01\x00\x02\x02\x28", true, Class::Fatal),
    ];
    let client = client_builder().no_proxy().build().unwrap();
    for (answer, reads, class) in cases {
        let failure = meaning(&client, &raw(answer, reads).await).await;
        let seen = (failure.class, failure.dispatch);
        assert_eq!(seen, (class, Dispatch::Ambiguous), "{:?}", String::from_utf8_lossy(answer));
    }
}

#[tokio::test]
async fn a_connection_that_never_was_has_sent_nothing() {
    let client = client_builder().no_proxy().build().unwrap();
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let refused = meaning(&client, &format!("http://{nobody}/")).await;
    assert_eq!((refused.class, refused.dispatch), (Class::Transient, Dispatch::NotSent));
    for (kind, class) in [
        (std::io::ErrorKind::Other, Class::Transient),
        // What rustls makes of a certificate that nobody trusts, in the same place of the chain.
        (std::io::ErrorKind::InvalidData, Class::Fatal),
    ] {
        let client = client_builder().no_proxy().dns_resolver(Unresolvable(kind)).build().unwrap();
        let failure = meaning(&client, "http://nowhere.test/").await;
        assert_eq!((failure.class, failure.dispatch), (class, Dispatch::NotSent), "{kind:?}");
    }
}

#[tokio::test]
async fn a_timeout_is_ambiguous_unless_the_connection_was_not_there() {
    let url = raw(b"", true).await;
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let hung = format!("http://{}/", silent.local_addr().unwrap());
    let impatient = client_builder().no_proxy().timeout(Duration::from_millis(50)).build().unwrap();
    let failure = meaning(&impatient, &hung).await;
    assert_eq!((failure.class, failure.dispatch), (Class::Transient, Dispatch::Ambiguous));
    assert_eq!(failure.reason, Some(damper_client::FailureReason::Timeout));
    let patient = client_builder().no_proxy().build().unwrap();
    assert_eq!(meaning(&patient, &url).await.reason, None, "closed, and not late");
}

/// Each request that a dependency gets is one attempt, and none goes where nobody sent it.
#[tokio::test]
async fn a_redirect_is_an_answer() {
    let elsewhere = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let location = format!("http://{}/", elsewhere.local_addr().unwrap());
    let answer =
        format!("HTTP/1.1 307 Temporary Redirect\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n");
    let url = raw(answer.leak().as_bytes(), true).await;
    let dependency = Damper::inert().dependency("d");
    let client = reqwest_middleware::ClientBuilder::new(client_builder().no_proxy().build().unwrap())
        .with(Retry::new(dependency.clone()))
        .build();
    tokio::select! {
        biased;
        answered = client.get(&url).send() => {
            let response = answered.unwrap();
            assert_eq!(response.status(), 307);
            assert_eq!(response.headers()["location"], location);
        }
        _ = elsewhere.accept() => panic!("it was followed"),
    }
    let totals = dependency.totals();
    assert_eq!((totals.physical, totals.failures.semantic, totals.failures.transient), (1, 1, 0));
}

/// A gRPC client's status, made of an error of its transport.
#[derive(Debug)]
struct Unavailable(reqwest::Error);

impl std::fmt::Display for Unavailable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("UNAVAILABLE")
    }
}

impl std::error::Error for Unavailable {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

/// Where the request goes, and whether it can have had an effect.
#[tokio::test]
async fn an_unavailable_grpc_service_is_asked_again_if_it_was_never_asked() {
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let cases = [
        (format!("http://{nobody}/"), Dispatch::NotSent),
        (resetting(Reason::REFUSED_STREAM).await, Dispatch::NotProcessed),
        (resetting(Reason::CANCEL).await, Dispatch::Ambiguous),
        (raw(b"", true).await, Dispatch::Ambiguous),
    ];
    for (url, dispatch) in cases {
        let status = Unavailable(http2().post(&url).send().await.unwrap_err());
        let failure = Failure::from_grpc_error(14, &HeaderMap::new(), &status).unwrap();
        assert_eq!((failure.class, failure.dispatch), (Class::Transient, dispatch), "{status:?}");
        assert_eq!(failure.code.as_deref(), Some("UNAVAILABLE"));
        assert_eq!(Failure::from_grpc_error(0, &HeaderMap::new(), &status), None);
        // An answer about the request is one, whatever came before it.
        let answered = Failure::from_grpc_error(3, &HeaderMap::new(), &status).unwrap();
        assert_eq!(answered.dispatch, Dispatch::Processed);
    }
}
