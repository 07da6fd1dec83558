//! `GET /v1/watch`.

use std::time::Duration;

use damper_core::Report;
use reqwest::Response;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::support::{FULL_OF_TEN, HARD, Server, pointers, retry, with};

/// A stream, event by event.
pub(crate) struct Stream {
    response: Response,
    read: String,
}

/// One block of a stream.
#[derive(Debug, PartialEq)]
pub(crate) struct Event {
    pub(crate) name: String,
    pub(crate) id: String,
    pub(crate) data: Value,
}

impl Stream {
    pub(crate) async fn open(server: &Server, query: &str) -> Self {
        let response = server.http.get(server.url(&format!("/v1/watch{query}"))).send().await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { response, read: String::new() }
    }

    /// The next block; [`None`] at the end of the stream.
    pub(crate) async fn block(&mut self) -> Option<String> {
        loop {
            if let Some((block, rest)) = self.read.split_once("\n\n") {
                let (block, rest) = (block.to_owned(), rest.to_owned());
                self.read = rest;
                return Some(block);
            }
            let chunk = timeout(HARD, self.response.chunk()).await.unwrap().unwrap()?;
            self.read.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }

    /// The next event. Heartbeats are passed over, but not for ever.
    pub(crate) async fn event(&mut self) -> Option<Event> {
        timeout(HARD, self.any_event()).await.unwrap()
    }

    async fn any_event(&mut self) -> Option<Event> {
        loop {
            let block = self.block().await?;
            let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
            if let (Some(name), Some(id), Some(data)) = (field("event:"), field("id:"), field("data:")) {
                let data = serde_json::from_str(data).unwrap();
                return Some(Event { name: name.to_owned(), id: id.to_owned(), data });
            }
        }
    }

    /// The next event, which has to be of this name.
    pub(crate) async fn expect(&mut self, name: &str) -> Value {
        let event = self.event().await.unwrap();
        assert_eq!(event.name, name, "{event:?}");
        event.data
    }
}

fn failing(dependency: &str) -> Value {
    let totals = json!({"logical": 20, "physical": 20, "failures": {"transient": 20}});
    json!({"client": {"id": "c", "incarnation": "1"}, "dependencies": {dependency: {"totals": totals}}})
}

#[tokio::test]
async fn a_snapshot_comes_first_then_a_breaker_that_opens() {
    let server = Server::start(FULL_OF_TEN).await;
    let mut stream = Stream::open(&server, "").await;
    let snapshot = stream.expect("snapshot").await;
    let (_, synced) = server.post("/v1/sync", &failing("payments")).await;
    assert_eq!(snapshot["epoch"], synced["epoch"]);
    let before = &snapshot["dependencies"]["payments"];
    assert_eq!(before["breaker"], json!({"state": "closed", "version": 1, "open_for_ms": 0}));
    assert_eq!((&before["dependency"], &before["policy"]["max_attempts"]), (&json!("payments"), &json!(4)));
    let change = stream.expect("breaker").await;
    assert_eq!((&change["dependency"], &change["breaker"]["state"]), (&json!("payments"), &json!("open")));
    assert_eq!(change["breaker"]["version"], 2);
    let open_for = change["breaker"]["open_for_ms"].as_u64().unwrap();
    assert!((29_000..=33_000).contains(&open_for), "{open_for}");
    let answer = server.ask(&retry()).await;
    assert_eq!((&answer["reason"], &answer["breaker"]["version"]), (&json!("breaker_open"), &json!(2)));
}

#[tokio::test]
async fn a_new_dependency_and_a_hold_are_told() {
    let server = Server::start("").await;
    let mut stream = Stream::open(&server, "?tenant=checkout").await;
    assert_eq!(stream.expect("snapshot").await["dependencies"], json!({}));
    server.ask(&with(retry(), json!({"tenant": "checkout"}))).await;
    assert_eq!(stream.expect("dependency").await["dependency"], "payments");
    let failure = json!({"class": "rate_limited", "retry_after_ms": 40_000});
    for tenant in ["other", "checkout"] {
        server.ask(&with(retry(), json!({"tenant": tenant, "failure": failure}))).await;
    }
    assert_eq!(
        stream.expect("dependency").await["holds_ms"],
        json!({}),
        "another tenant's hold is its own affair"
    );
    let holds = stream.expect("dependency").await["holds_ms"].clone();
    assert!((1..=40_000).contains(&holds["checkout"].as_u64().unwrap()), "{holds}");
    assert_eq!(holds.as_object().unwrap().len(), 1);
}

#[tokio::test]
async fn a_watcher_hears_of_the_dependencies_that_it_asked_for() {
    let server = Server::start("[dependencies.a]\n[dependencies.b]\n[dependencies.c]").await;
    let from_a_newer_client = "?dependency=b&dependency=late&encoding=cbor";
    let mut stream = Stream::open(&server, from_a_newer_client).await;
    let snapshot = stream.expect("snapshot").await;
    let told: Vec<&String> = snapshot["dependencies"].as_object().unwrap().keys().collect();
    assert_eq!(told, ["b"]);
    for dependency in ["a", "late", "b"] {
        server.post("/v1/sync", &failing(dependency)).await;
    }
    assert_eq!(stream.expect("dependency").await["dependency"], "late");
    assert_eq!(stream.expect("breaker").await["dependency"], "late");
    assert_eq!(stream.expect("breaker").await["dependency"], "b");
    let (status, problem) = server.get("/v1/watch?tenant=%00&dependency=%20x").await;
    assert_eq!((status, pointers(&problem)), (422, vec!["?tenant", "?dependency"]));
}

#[tokio::test]
async fn a_dependency_that_is_forgotten_leaves_no_open_breaker_behind() {
    let server = Server::start("[defaults]\nmax_attempts = 2").await;
    let path = "/v1/admin/dependencies/payments";
    assert_eq!(server.put(path, &json!({"max_attempts": 7})).await.0, 201);
    let mut stream = Stream::open(&server, "").await;
    let mut elsewhere = Stream::open(&server, "?dependency=mail").await;
    stream.expect("snapshot").await;
    elsewhere.expect("snapshot").await;
    server.post("/v1/sync", &failing("payments")).await;
    let open = stream.expect("breaker").await["breaker"].clone();
    assert_eq!((&open["state"], &open["version"]), (&json!("open"), &json!(2)));
    assert_eq!(server.delete(path).await.0, 204);
    let told = stream.expect("dependency").await;
    assert_eq!(told["breaker"], json!({"state": "closed", "version": 3, "open_for_ms": 0}));
    assert_eq!((&told["dependency"], &told["policy"]["max_attempts"]), (&json!("payments"), &json!(2)));
    // A client that has not heard of it yet names the dependency again, and brings what it saw.
    let mut late = failing("payments");
    late["dependencies"]["payments"] = json!({"breaker_version": 2, "breaker_state": "open"});
    let (_, synced) = server.post("/v1/sync", &late).await;
    assert_eq!(synced["dependencies"]["payments"]["breaker"]["state"], "closed");
    assert_eq!(synced["dependencies"]["payments"]["breaker"]["version"], 3, "which is news to it");
    assert_eq!(stream.expect("dependency").await["breaker"]["version"], 3);
    server.post("/v1/admin/dependencies/payments/breaker", &json!({"force": "open"})).await;
    assert_eq!(stream.expect("breaker").await["breaker"]["version"], 4);
    server.post("/v1/sync", &failing("mail")).await;
    assert_eq!(elsewhere.expect("dependency").await["dependency"], "mail", "and nothing else before");
}

#[tokio::test]
async fn a_consumer_that_missed_that_a_dependency_was_forgotten_learns_it_from_its_snapshot() {
    let server = Server::start("server.max_dependencies = 5000").await;
    server.post("/v1/sync", &failing("payments")).await;
    let mut stream = Stream::open(&server, "?dependency=payments").await;
    let before = stream.expect("snapshot").await["dependencies"]["payments"]["breaker"].clone();
    assert_eq!((&before["state"], &before["version"]), (&json!("open"), &json!(2)));
    let engine = server.running.engine();
    assert!(engine.forget("payments"));
    for number in 0..2000 {
        let probes = None::<std::iter::Empty<(&str, bool)>>;
        engine.sync(&number.to_string(), Report::default(), probes).unwrap();
    }
    let after = stream.expect("snapshot").await["dependencies"]["payments"]["breaker"].clone();
    assert_eq!((&after["state"], &after["version"]), (&json!("closed"), &json!(3)));
}

#[tokio::test]
async fn a_consumer_that_falls_behind_gets_a_fresh_snapshot_and_ids_go_on() {
    let server = Server::start("server.max_dependencies = 5000\n[dependencies.payments]").await;
    let mut stream = Stream::open(&server, "?dependency=payments").await;
    let first = stream.event().await.unwrap();
    // More changes than are kept, before the stream's task has a chance to run.
    for number in 0..2000 {
        let probes = None::<std::iter::Empty<(&str, bool)>>;
        server.running.engine().sync(&number.to_string(), Report::default(), probes).unwrap();
    }
    let second = stream.event().await.unwrap();
    assert_eq!((first.name.as_str(), second.name.as_str()), ("snapshot", "snapshot"));
    assert!(second.data["dependencies"]["payments"].is_object(), "{second:?}");
    let number = |event: &Event| event.id.rsplit('-').next().unwrap().parse::<u64>().unwrap();
    assert!(number(&second) > number(&first));
}

#[tokio::test(start_paused = true)]
async fn a_quiet_stream_has_a_heartbeat() {
    let server = Server::start("").await;
    let mut stream = Stream::open(&server, "").await;
    stream.expect("snapshot").await;
    let started = tokio::time::Instant::now();
    for _ in 0..3 {
        let block = stream.block().await.unwrap();
        assert!(block.starts_with(':'), "{block}");
    }
    let took = started.elapsed();
    assert!((Duration::from_secs(25)..Duration::from_secs(35)).contains(&took), "{took:?}");
}

#[tokio::test]
async fn open_streams_are_counted() {
    let server = Server::start("").await;
    let mut stream = Stream::open(&server, "").await;
    stream.expect("snapshot").await;
    assert!(server.text("/metrics").await.contains("damper_watch_streams 1\n"));
    drop(stream);
    let gone = async {
        while !server.text("/metrics").await.contains("damper_watch_streams 0\n") {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(HARD, gone).await.unwrap();
}
