//! Going away.

use std::time::Duration;

use serde_json::json;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use crate::support::{HARD, ONE_PER_SECOND, Server, now, retry, with};
use crate::watch::Stream;

#[tokio::test]
async fn streams_say_goodbye_and_waiting_asks_are_answered() {
    let server = Server::start(ONE_PER_SECOND).await;
    let mut stream = Stream::open(&server, "").await;
    stream.expect("snapshot").await;
    server.ask(&now()).await;
    stream.expect("dependency").await;
    let waiting = server.posting("/v1/tokens", &retry()).send().await.unwrap();
    let address = server.running.local_addr();
    let ending = tokio::spawn(server.running.shutdown());
    assert!(stream.expect("bye").await["reconnect_within_ms"].as_u64().unwrap() > 0);
    assert_eq!(stream.event().await, None, "the stream ends with the goodbye");
    let answer: serde_json::Value = waiting.json().await.unwrap();
    assert_eq!(answer["decision"], "granted");
    timeout(HARD, ending).await.unwrap().unwrap().unwrap();
    assert!(TcpStream::connect(address).await.is_err(), "nobody listens any more");
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_too_long_is_let_go_in_time() {
    let server = Server::start("[defaults]\nretry.per_s = 1\nmax_delay_ms = 600000").await;
    let ask = with(retry(), json!({"deadline_ms": 600_000, "earliest_ms": 300_000}));
    let waiting = server.posting("/v1/tokens", &ask).send().await.unwrap();
    let silent = server.connect().await;
    let started = Instant::now();
    let (ended, answer) = tokio::join!(server.running.shutdown(), waiting.text());
    ended.unwrap();
    assert!(answer.is_err(), "an ask that is not decided has no answer: {answer:?}");
    assert!(started.elapsed() <= Duration::from_secs(10), "{:?}", started.elapsed());
    drop(silent);
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_holds_on_makes_the_shutdown_an_overrun() {
    let server = Server::start("").await;
    let mut stream = server.connect().await;
    let ending = tokio::spawn(server.running.shutdown());
    sleep(Duration::from_millis(200)).await;
    let head =
        "POST /v1/sync HTTP/1.1\r\nhost: d\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n";
    tokio::io::AsyncWriteExt::write_all(&mut stream, head.as_bytes()).await.unwrap();
    let error = ending.await.unwrap().unwrap_err();
    assert!(matches!(error, damper_server::ServeError::Overrun), "{error}");
}

#[tokio::test]
async fn servers_of_one_process_are_strangers() {
    let (one, other) = (Server::start(ONE_PER_SECOND).await, Server::start(ONE_PER_SECOND).await);
    assert_eq!(one.ask(&now()).await["decision"], "granted");
    assert_eq!(other.ask(&now()).await["decision"], "granted");
    one.running.shutdown().await.unwrap();
    assert_eq!(other.ask(&now()).await["decision"], "shed");
}
