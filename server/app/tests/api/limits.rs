//! Bounds on what a peer may send, in size and in time. Where a bound is in time, the clock is paused: it jumps to
//! the next moment at which anything happens.

use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;

use crate::support::{FULL_OF_TEN, Server, now, read_to_end, retry, with};

fn request(line: &str, headers: &str, body: &str) -> Vec<u8> {
    format!("{line} HTTP/1.1\r\nhost: d\r\nconnection: close\r\n{headers}\r\n{body}").into_bytes()
}

fn status(response: &str) -> u16 {
    response
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .unwrap_or_else(|| panic!("{response:?}"))
}

#[tokio::test]
async fn heads_are_bounded() {
    let server = Server::start("").await;
    let headers = |count: usize| (0..count).map(|number| format!("x-{number}: v\r\n")).collect::<String>();
    let long = format!("x-long: {}\r\n", "v".repeat(16 * 1024));
    let huge = format!("x-huge: {}\r\n", "v".repeat(1 << 20));
    let path = format!("GET /livez?{}", "v".repeat(16 * 1024));
    let cases = [
        ("GET /livez", headers(62), 200),
        ("GET /livez", headers(63), 431),
        ("GET /livez", headers(99), 431),
        ("GET /livez", headers(5000), 431),
        ("GET /livez", long, 431),
        ("GET /livez", huge, 431),
        (path.as_str(), String::new(), 431),
    ];
    for (line, headers, expected) in cases {
        let response = server.raw(&request(line, &headers, "")).await;
        assert_eq!(status(&response), expected, "{} bytes of headers", headers.len());
    }
    let response = server.raw(&request("GET /livez", &headers(70), "")).await;
    assert!(
        response.contains("application/problem+json") && response.contains("head_too_large"),
        "{response}"
    );
}

#[tokio::test]
async fn bodies_are_bounded_whether_their_length_is_declared_or_not() {
    let server = Server::start(FULL_OF_TEN).await;
    let kib = |count: usize| "x".repeat(count * 1024);
    for (path, most) in
        [("/v1/tokens", 64), ("/v1/tokens/return", 64), ("/v1/tokens/batch", 1024), ("/v1/sync", 1024)]
    {
        for declared in [true, false] {
            let body = format!("{{\"x\":\"{}\"}}", kib(most));
            let body = match declared {
                true => reqwest::Body::from(body),
                false => {
                    reqwest::Body::wrap_stream(futures_util::stream::iter([Ok::<_, std::io::Error>(body)]))
                }
            };
            let (status, problem) = server.post_text(path, body).await;
            assert_eq!((status, &problem["code"]), (413, &json!("body_too_large")), "{path}");
        }
        let (status, _) = server.post_text(path, format!("{{\"x\":\"{}\"}}", kib(most - 1))).await;
        assert_eq!(status, 422, "{path} takes what fits");
    }
    let declared = server
        .raw(&request(
            "POST /v1/tokens",
            "content-type: application/json\r\ncontent-length: 99999999999\r\n",
            "",
        ))
        .await;
    assert_eq!(status(&declared), 413, "before a byte of the body has come");
    assert_eq!(server.issued("payments").await, 0.0);
}

#[tokio::test]
async fn bodies_have_to_say_that_they_are_json() {
    let server = Server::start("").await;
    let cases = [
        (Some("application/json"), 200),
        (Some("Application/JSON; charset=utf-8"), 200),
        (Some("application/vnd.damper+json"), 200),
        (Some("text/plain"), 415),
        (Some("application/json5"), 415),
        (Some("application/x-www-form-urlencoded"), 415),
        (None, 415),
    ];
    for (kind, expected) in cases {
        let mut request = server.http.post(server.url("/v1/tokens")).body(now().to_string());
        if let Some(kind) = kind {
            request = request.header("content-type", kind);
        }
        assert_eq!(request.send().await.unwrap().status(), expected, "{kind:?}");
    }
}

#[tokio::test]
async fn routes_and_methods_that_do_not_exist_are_problems() {
    let server = Server::start("").await;
    for path in ["/nope", "/v1", "/v1/tokens/", "/v1/dependencies/a/b", "//"] {
        let (status, problem) = server.get(path).await;
        assert_eq!((status, &problem["code"]), (404, &json!("unknown_route")), "{path}");
    }
    let response = server.http.get(server.url("/v1/tokens")).send().await.unwrap();
    assert_eq!((response.status().as_u16(), &response.headers()["allow"]), (405, &"POST".parse().unwrap()));
    assert_eq!(server.post("/metrics", &json!({})).await.1["code"], "wrong_method");
    assert_eq!(server.http.head(server.url("/livez")).send().await.unwrap().status(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_drips_is_not_waited_for() {
    let server = Server::start(FULL_OF_TEN).await;
    let mut stream = server.connect().await;
    let head = "POST /v1/tokens HTTP/1.1\r\nhost: d\r\ncontent-type: application/json\r\ncontent-length: 500\r\n\r\n";
    let started = Instant::now();
    stream.write_all(head.as_bytes()).await.unwrap();
    let (mut reading, mut writing) = stream.split();
    let mut response = Vec::new();
    let drip = async {
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            if writing.write_all(b" ").await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    };
    tokio::select! { _ = reading.read_to_end(&mut response) => {}, () = drip => {} }
    let response = String::from_utf8_lossy(&response);
    assert_eq!(status(&response), 408, "{response}");
    assert!(response.contains("body_too_slow"));
    assert!(started.elapsed() < Duration::from_secs(12), "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_says_nothing_or_too_little_is_let_go() {
    let server = Server::start("").await;
    let half_requests: [&[u8]; 8] = [
        b"",
        b"P",
        b"PRI * HTTP/2.0\r\n",
        b"GET /livez HTTP/1.1\r\n",
        b"GET /livez HTTP/1.1\r\nhost: d\r\nx-",
        b"\r\n",
        b"GET /livez HTTP/1.1\r\nhost: d\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nhost: d\r\n\r\nGET /livez HTTP/1.1\r\nhos",
    ];
    for bytes in half_requests {
        let started = Instant::now();
        let mut stream = server.connect().await;
        stream.write_all(bytes).await.unwrap();
        read_to_end(&mut stream).await;
        assert!(started.elapsed() <= Duration::from_secs(7), "{bytes:?}: {:?}", started.elapsed());
    }
    let mut stream = server.connect().await;
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    stream.write_all(preface).await.unwrap();
    let started = Instant::now();
    read_to_end(&mut stream).await;
    assert!(started.elapsed() <= Duration::from_secs(7), "an HTTP/2 connection without a request");
}

#[tokio::test]
async fn both_versions_of_http_are_spoken_on_one_port() {
    let mut server = Server::start("").await;
    assert_eq!(
        server.http.get(server.url("/livez")).send().await.unwrap().version(),
        reqwest::Version::HTTP_11
    );
    server.http = reqwest::Client::builder().no_proxy().http2_prior_knowledge().build().unwrap();
    assert_eq!(
        server.http.get(server.url("/livez")).send().await.unwrap().version(),
        reqwest::Version::HTTP_2
    );
    assert_eq!(server.ask(&retry()).await["decision"], "granted");
    let (status, _) = server.post("/v1/tokens", &with(retry(), json!({"attempt": 0}))).await;
    assert_eq!(status, 422);
}
