//! Traces, as a collector receives them.

use std::sync::{Arc, Mutex};

use axum::{Json, Router, extract::State, routing::post};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio::time::timeout;

use crate::support::{HARD, ONE_PER_SECOND, Server, now, retry, with};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

/// A collector that keeps what it is sent.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<Value>>>);

impl Collector {
    /// Listens; the configuration that sends it everything.
    async fn start(&self) -> String {
        let keep = async |State(collector): State<Self>, Json(sent): Json<Value>| {
            collector.0.lock().unwrap().push(sent);
            Json(json!({}))
        };
        let router = Router::new().route("/v1/traces", post(keep)).with_state(self.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        format!("{ONE_PER_SECOND}\n[telemetry]\notlp_endpoint = {endpoint:?}")
    }

    /// Every span that arrived, by its name, with its attributes beside it.
    fn spans(&self) -> Vec<(String, Value)> {
        let sent = self.0.lock().unwrap();
        let scopes = sent.iter().flat_map(|sent| list(&sent["resourceSpans"]));
        let spans = scopes.flat_map(|resource| list(&resource["scopeSpans"]));
        let mut spans: Vec<(String, Value)> =
            spans.flat_map(|scope| list(&scope["spans"])).map(flat).collect();
        spans.sort_by_key(|(name, _)| name.clone());
        spans
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().unwrap().iter()
}

fn flat(span: &Value) -> (String, Value) {
    let mut fields = json!({"trace": span["traceId"], "parent": span["parentSpanId"], "kind": span["kind"]});
    for attribute in list(&span["attributes"]) {
        let value = attribute["value"].as_object().unwrap().values().next().unwrap().clone();
        fields[attribute["key"].as_str().unwrap()] = value;
    }
    (span["name"].as_str().unwrap().to_owned(), fields)
}

async fn ask_within(server: &Server, trace: &str, sampled: &str, ask: &Value) -> u16 {
    let parent = format!("00-{trace}-{PARENT}-{sampled}");
    let sent = server.posting("/v1/tokens", ask).header("traceparent", parent).send().await.unwrap();
    let status = sent.status().as_u16();
    sent.bytes().await.unwrap();
    status
}

#[tokio::test]
async fn a_request_is_a_child_of_its_callers_span_and_says_what_was_decided() {
    let collector = Collector::default();
    let server = Server::start(&collector.start().await).await;
    let ask = with(now(), json!({"tenant": "checkout"}));
    assert_eq!(ask_within(&server, TRACE, "01", &ask).await, 200);
    server.get("/readyz").await;
    server.get("/v1/dependencies/unknown").await;
    timeout(HARD, server.running.shutdown()).await.unwrap().unwrap();
    let spans = collector.spans();
    let names: Vec<&str> = spans.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["GET /v1/dependencies/{name}", "POST /v1/tokens"], "health is not traced");
    let [(_, unknown), (_, asked)] = &spans[..] else { panic!("{spans:?}") };
    assert_eq!((&unknown["parent"], &unknown["http.response.status_code"]), (&json!(""), &json!("404")));
    assert_ne!(unknown["trace"], TRACE);
    let expected = json!({
        "trace": TRACE, "parent": PARENT, "kind": 2,
        "http.request.method": "POST", "http.route": "/v1/tokens", "http.response.status_code": "200",
        "damper.dependency": "payments", "damper.tenant": "checkout", "damper.decision": "granted",
        "damper.reason": "within_budget", "damper.waited_ms": "0",
    });
    assert_eq!(*asked, expected);
}

#[tokio::test]
async fn the_span_of_an_ask_that_waits_ends_with_its_decision() {
    let collector = Collector::default();
    let server = Server::start(&collector.start().await).await;
    ask_within(&server, TRACE, "01", &now()).await;
    ask_within(&server, TRACE, "01", &retry()).await;
    timeout(HARD, server.running.shutdown()).await.unwrap().unwrap();
    let reasons: Vec<Value> =
        collector.spans().iter().map(|(_, span)| span["damper.reason"].clone()).collect();
    assert_eq!(reasons, ["within_budget", "after_delay"]);
}

#[tokio::test]
async fn a_callers_decision_about_sampling_comes_first_and_then_the_ratio() {
    let collector = Collector::default();
    let toml = format!("{}\ntrace_ratio = 0", collector.start().await);
    let server = Server::start(&toml).await;
    ask_within(&server, TRACE, "01", &now()).await;
    ask_within(&server, "4bf92f3577b34da6a3ce929d0e0e4737", "00", &now()).await;
    server.ask(&now()).await;
    timeout(HARD, server.running.shutdown()).await.unwrap().unwrap();
    let traces: Vec<Value> = collector.spans().iter().map(|(_, span)| span["trace"].clone()).collect();
    assert_eq!(traces, [TRACE]);
}

#[tokio::test]
async fn headers_that_are_no_trace_context_begin_a_trace() {
    let collector = Collector::default();
    let server = Server::start(&collector.start().await).await;
    for nonsense in ["", "00", "00-zz-00-01", "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"] {
        let sent = server.posting("/v1/tokens", &now()).header("traceparent", nonsense).send().await.unwrap();
        assert_eq!(sent.status(), 200, "{nonsense}");
    }
    timeout(HARD, server.running.shutdown()).await.unwrap().unwrap();
    let parents: Vec<Value> = collector.spans().iter().map(|(_, span)| span["parent"].clone()).collect();
    assert_eq!(parents, ["", "", "", ""]);
}

/// What became of spans, once as many have ended.
async fn outcome(server: &Server, outcome: &str) -> f64 {
    let sample = format!("damper_trace_spans_total{{outcome=\"{outcome}\"}} ");
    let page = server.text("/metrics").await;
    page.lines().find_map(|line| line.strip_prefix(&sample)).unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_dead_endpoint_costs_a_count_and_nothing_else() {
    let dead = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let toml = format!("[telemetry]\notlp_endpoint = \"http://{dead}\"");
    let server = Server::start(&toml).await;
    server.ask(&now()).await;
    let counted = async { while outcome(&server, "failed").await < 1.0 {} };
    timeout(HARD, counted).await.unwrap();
    assert_eq!((outcome(&server, "exported").await, outcome(&server, "dropped").await), (0.0, 0.0));
    timeout(HARD, server.running.shutdown()).await.unwrap().unwrap();
}

#[tokio::test]
async fn an_endpoint_that_never_answers_is_not_waited_for() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let toml = format!("[telemetry]\notlp_endpoint = \"http://{}\"", silent.local_addr().unwrap());
    let server = Server::start(&toml).await;
    server.ask(&now()).await;
    let (mut export, _) = timeout(HARD, silent.accept()).await.unwrap().unwrap();
    timeout(HARD, server.running.shutdown()).await.unwrap().unwrap();
    let mut sent = vec![0; 1 << 16];
    while timeout(std::time::Duration::from_millis(10), export.read(&mut sent)).await.is_ok_and(|read| {
        assert!(read.unwrap() > 0, "the export had ended before the server went away");
        true
    }) {}
}
