//! What reqwest really says about handshakes and tunnels that fail, and what is made of it.

mod wire;

use std::time::Duration;

use damper_client::{
    Damper, Dispatch, Failure, FailureClass as Class, Idempotency, Profile, StopReason,
    testing::{FakeServer, Script},
};
use reqwest::{Certificate, Client, ClientBuilder, Proxy, tls::Version};
use tokio::net::TcpListener;
use tokio_rustls::rustls::version::{TLS12, TLS13};
use wire::{Identity, Manners, closed_port, raw, tls};

const OURS: &[&str] = &["127.0.0.1"];

/// A client that trusts this authority alone.
fn trusting(authority: &Identity) -> ClientBuilder {
    let root = Certificate::from_pem(authority.pem.as_bytes()).unwrap();
    Client::builder().no_proxy().retry(reqwest::retry::never()).tls_certs_only([root])
}

async fn get(client: &Client, port: u16) -> Result<(), reqwest::Error> {
    client.get(format!("https://127.0.0.1:{port}/")).send().await?.error_for_status().map(drop)
}

/// What the failure of a GET means.
async fn meaning(client: ClientBuilder, port: u16) -> Failure {
    let client = client.build().unwrap();
    let operation = Damper::inert().dependency("d").operation("get");
    operation.call(|_| get(&client, port)).await.unwrap_err().failure.map(|failure| *failure).unwrap()
}

fn seen(failure: &Failure) -> (Class, Dispatch, &str) {
    (failure.class, failure.dispatch, failure.code.as_deref().unwrap())
}

/// Not even a read that may be repeated at will is repeated, and no token is asked for.
async fn assert_refused(name: &str, client: ClientBuilder, port: u16) {
    let client = client.build().unwrap();
    let server = FakeServer::new(|_| Script::granted());
    let operation = server.client().dependency("d").operation("get").idempotency(Idempotency::Safe);
    let error = operation.call(|_| get(&client, port)).await.unwrap_err();
    assert_eq!((error.reason, error.attempts), (StopReason::NotRetryable, 1), "{name}: {error:?}");
    assert!(server.asks().is_empty(), "{name}");
    let failure = error.failure.unwrap();
    assert_eq!(seen(&failure), (Class::Fatal, Dispatch::NotSent, "tls"), "{name}");
}

#[tokio::test]
async fn a_certificate_that_is_as_it_should_be() {
    let identity = Identity::new(OURS);
    let port = tls(identity.accepting(&[&TLS12, &TLS13])).await;
    get(&trusting(&identity).build().unwrap(), port).await.unwrap();
}

#[tokio::test]
async fn certificates_that_are_refused() {
    let cases = [
        ("nobody vouches for it", Identity::new(OURS), Some(Identity::named("another authority", OURS))),
        ("expired", Identity::expired(OURS), None),
        ("of somebody else", Identity::new(&["elsewhere.test"]), None),
    ];
    for (name, identity, trusted) in cases {
        let port = tls(identity.accepting(&[&TLS12, &TLS13])).await;
        assert_refused(name, trusting(trusted.as_ref().unwrap_or(&identity)), port).await;
    }
}

#[tokio::test]
async fn servers_that_refuse_the_client() {
    let identity = Identity::new(OURS);
    let strict = trusting(&identity).tls_version_min(Version::TLS_1_3);
    assert_refused("too old", strict, tls(identity.accepting(&[&TLS12])).await).await;
    let port = tls(identity.demanding(&TLS12)).await;
    assert_refused("without a certificate", trusting(&identity).tls_version_max(Version::TLS_1_2), port)
        .await;
}

/// The client is done with the handshake before the server has looked at its certificate: the request may be under
/// way, and what is seen of the refusal depends on who is faster.
#[tokio::test]
async fn a_client_certificate_is_missed_too_late_to_know_that_nothing_was_sent() {
    let identity = Identity::new(OURS);
    let port = tls(identity.demanding(&TLS13)).await;
    assert_eq!(meaning(trusting(&identity), port).await.dispatch, Dispatch::Ambiguous);
}

/// What the server says instead of its half of the handshake.
#[tokio::test]
async fn what_is_no_handshake() {
    let cases: [(&str, &[u8]); 6] = [
        ("plain HTTP", b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n"),
        ("handshake failure", b"\x15\x03\x03\x00\x02\x02\x28"),
        ("bad certificate", b"\x15\x03\x03\x00\x02\x02\x2a"),
        ("protocol version", b"\x15\x03\x03\x00\x02\x02\x46"),
        ("internal error", b"\x15\x03\x03\x00\x02\x02\x50"),
        ("unrecognised name", b"\x15\x03\x03\x00\x02\x02\x70"),
    ];
    let identity = Identity::new(OURS);
    for (name, bytes) in cases {
        assert_refused(name, trusting(&identity), raw(bytes, Manners::default()).await).await;
    }
}

#[tokio::test]
async fn servers_that_hang_up_in_the_handshake() {
    let half = b"\x16\x03\x03\x01\x00\x02\x00".as_slice();
    let (deaf, rude) = (Manners { reads: false, resets: false }, Manners { reads: false, resets: true });
    let cases = [
        ("at once", b"".as_slice(), deaf),
        ("after the hello", b"", Manners::default()),
        ("in a record", half, Manners::default()),
        ("by a reset", b"", rude),
        ("by a reset after the hello", b"", Manners { reads: true, resets: true }),
    ];
    let identity = Identity::new(OURS);
    for (name, bytes, manners) in cases {
        let failure = meaning(trusting(&identity), raw(bytes, manners).await).await;
        assert_eq!(seen(&failure), (Class::Transient, Dispatch::NotSent, "connect"), "{name}");
    }
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let hasty = trusting(&identity).connect_timeout(Duration::from_millis(50));
    let failure = meaning(hasty, silent.local_addr().unwrap().port()).await;
    assert_eq!(seen(&failure), (Class::Transient, Dispatch::NotSent, "connect"));
}

/// What a proxy answers to CONNECT. Of its status, reqwest tells 407 from the rest, and no more.
#[tokio::test]
async fn tunnels_that_are_not_made() {
    let passing = (Class::Transient, Dispatch::NotSent, "connect");
    let cases: [(&[u8], bool, _); 8] = [
        (b"HTTP/1.1 407 Who are you\r\n\r\n", false, (Class::Permission, Dispatch::NotSent, "407")),
        (b"HTTP/1.1 502 Bad Gateway\r\n\r\n", false, passing),
        (b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 9\r\n\r\n", false, passing),
        (b"HTTP/1.1 403 Forbidden\r\n\r\n", false, passing),
        (b"SSH-2.0-OpenSSH_9.9\r\n\r\n", false, passing),
        (b"HTTP/1.1 2", false, passing),
        (b"", false, passing),
        (b"", true, passing),
    ];
    for (answer, resets, expected) in cases {
        let proxy = raw(answer, Manners { reads: true, resets }).await;
        let failure = meaning(through(proxy), 9).await;
        assert_eq!(seen(&failure), expected, "{:?}", String::from_utf8_lossy(answer));
        assert_eq!(failure.retry_after, None, "what a proxy asks for is not seen");
    }
    assert_eq!(seen(&meaning(through(closed_port()), 9).await), passing);
}

#[tokio::test]
async fn a_proxy_that_knows_nobody_is_asked_once() {
    let proxy = raw(b"HTTP/1.1 407 Who are you\r\n\r\n", Manners::default()).await;
    let client = through(proxy).build().unwrap();
    let server = FakeServer::new(|_| Script::granted());
    let operation = server.client().dependency("d").operation("get").idempotency(Idempotency::Safe);
    let error = operation.profile(Profile::interactive()).call(|_| get(&client, 9)).await.unwrap_err();
    assert_eq!((error.reason, error.attempts), (StopReason::NotRetryable, 1));
}

fn through(proxy: u16) -> ClientBuilder {
    trusting(&Identity::new(OURS)).proxy(Proxy::all(format!("http://127.0.0.1:{proxy}")).unwrap())
}
