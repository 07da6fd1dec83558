use hyper::body::Bytes;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use super::*;

/// A server that answers each request with this and hangs up.
async fn answering(answer: String) -> Http {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let _ = socket.read(&mut [0; 4096]).await;
            let _ = socket.write_all(answer.as_bytes()).await;
        }
    });
    Http::new(&endpoint.parse().unwrap(), None, None).unwrap()
}

/// What a watch is that is not one, whatever stands in between.
#[tokio::test]
async fn answers_to_a_watch_that_are_no_stream() {
    let html = "content-type: text/html\r\n";
    let cases = [
        ("200 OK", html, Fault::Rejected(200)),
        ("200 OK", "", Fault::Rejected(200)),
        ("200 OK", "content-type: application/json\r\n", Fault::Rejected(200)),
        ("204 No Content", "", Fault::Rejected(204)),
        ("302 Found", "location: /login\r\n", Fault::Rejected(302)),
        ("401 Unauthorized", html, Fault::Rejected(401)),
        ("403 Forbidden", html, Fault::Rejected(403)),
        ("404 Not Found", html, Fault::Rejected(404)),
        ("408 Request Timeout", "", Fault::NoAnswer),
        ("429 Too Many Requests", "retry-after: 7\r\n", Fault::Busy(Duration::from_secs(7))),
        ("500 Internal Server Error", "content-type: text/event-stream\r\n", Fault::NoAnswer),
        ("503 Service Unavailable", html, Fault::NoAnswer),
    ];
    for (status, headers, fault) in cases {
        let answer = format!("HTTP/1.1 {status}\r\n{headers}connection: close\r\n\r\n<html>");
        let opened = answering(answer).await.watch(None).await;
        assert_eq!(opened.err(), Some(fault), "{status} {headers}");
    }
}

#[tokio::test]
async fn a_stream_is_read_to_its_end() {
    for kind in ["text/event-stream", "text/event-stream; charset=utf-8"] {
        let head = format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\nconnection: close\r\n\r\n");
        let stream = answering(head + ": tick\n\n").await.watch(Some("7")).await.ok().unwrap();
        let chunks: Vec<Bytes> = stream.try_collect().await.unwrap();
        assert_eq!(chunks.concat(), b": tick\n\n", "{kind}");
    }
}
