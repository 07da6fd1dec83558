//! What telemetry costs an ask, in process: without sockets the share is the largest that it can be. Measured in
//! processor time of the thread that answers, so that what else the machine does counts little.
//!
//! `cargo test --release -p damper-server --lib telemetry_costs -- --ignored --nocapture`

use axum::Router;
use axum::body::Body;
use axum::http::{Method, header};
use axum::middleware::from_fn_with_state;
use axum::routing::post;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;

use super::*;
use crate::config::Config;
use crate::phase::life;

const ROUNDS: usize = 31;
const REQUESTS: u32 = 20_000;
const ASK: &str = r#"{"request_id":null,"dependency":"payments","tenant":"checkout","operation":"op-1","attempt":2,
    "failure":{"class":"transient"},"idempotent":true,"deadline_ms":30000,"max_wait_ms":0}"#;

/// The same bounds and net, and nothing that is told of it.
async fn bare(State(app): State<App>, request: Request, next: Next) -> Response {
    let path = request.extensions().get::<MatchedPath>().cloned();
    match admit(&app, &request, path.as_ref().map(MatchedPath::as_str)) {
        Ok(()) => caught(next.run(request)).await,
        Err(fault) => fault.into_response(),
    }
}

fn asks() -> Router<App> {
    Router::new().route("/v1/tokens", post(crate::api::tokens::ask))
}

fn told(toml: &str) -> Router {
    let app = App::new(Config::from_toml(toml).unwrap(), life().1);
    asks().layer(from_fn_with_state(app.clone(), guard)).with_state(app)
}

fn untold() -> Router {
    let app = App::new(Config::default(), life().1);
    asks().layer(from_fn_with_state(app.clone(), bare)).with_state(app)
}

async fn asks_per_s(router: &Router) -> f64 {
    let service = TowerToHyperService::new(router.clone());
    let started = processor_s();
    for _ in 0..REQUESTS {
        let request = Request::builder().method(Method::POST).uri("/v1/tokens");
        let request = request.header(header::CONTENT_TYPE, "application/json");
        let answer = service.call(request.body(Body::from(ASK)).unwrap()).await.unwrap();
        assert_eq!(answer.status(), 200);
    }
    f64::from(REQUESTS) / (processor_s() - started)
}

/// Processor time of this thread; Linux brings it up to date every few milliseconds, of which a round takes many.
fn processor_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    stat.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e9
}

#[tokio::test]
#[ignore = "a benchmark"]
async fn telemetry_costs() {
    let dead = "[telemetry]\notlp_endpoint = \"http://127.0.0.1:9\"";
    let variants = [
        ("without telemetry", untold()),
        ("metrics, traces off", told("")),
        ("metrics by tenant too", told("telemetry.tenants = true")),
        ("traces on, none kept", told(&format!("{dead}\ntrace_ratio = 0"))),
        ("traces on, all kept", told(dead)),
    ];
    let mut rates: Vec<Vec<f64>> = vec![Vec::new(); variants.len()];
    for round in 0..ROUNDS {
        // In turns, and in another order each time, so that what else the machine does meets all alike.
        for place in 0..variants.len() {
            let place = (place + round) % variants.len();
            rates[place].push(asks_per_s(&variants[place].1).await);
        }
    }
    let ratios = |rates: &[f64], base: &[f64]| {
        let mut ratios: Vec<f64> = rates.iter().zip(base).map(|(rate, base)| rate / base).collect();
        ratios.sort_by(f64::total_cmp);
        ratios[ratios.len() / 2]
    };
    for ((name, _), own) in variants.iter().zip(&rates) {
        let mut sorted = own.clone();
        sorted.sort_by(f64::total_cmp);
        let (median, ratio) = (sorted[ROUNDS / 2], ratios(own, &rates[0]));
        println!("{name:<24} {median:>9.0} asks per processor second  {ratio:.3} of without");
    }
}
