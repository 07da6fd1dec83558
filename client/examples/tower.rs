//! A tower client that retries within the budget of the fleet.
//!
//! ```text
//! cargo run -p damper-client --example tower --features tower
//! ```

use std::{
    convert::Infallible,
    sync::atomic::{AtomicU32, Ordering},
    task::{Context, Poll},
    time::Duration,
};

use damper_client::{
    Damper,
    tower::{ReplayBody, RetryLayer},
};
use futures_util::future::{Ready, ready};
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Bytes;
use tower_layer::Layer;
use tower_service::Service;

static CALLS: AtomicU32 = AtomicU32::new(0);

/// A dependency that fails one request in four; a hyper client in real life.
#[derive(Clone)]
struct Stock;

impl Service<Request<ReplayBody<Full<Bytes>>>> for Stock {
    type Response = Response<&'static str>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<ReplayBody<Full<Bytes>>>) -> Self::Future {
        assert!(request.headers().contains_key("damper-context"), "it is told who retries");
        let mut response = Response::new("in stock");
        if CALLS.fetch_add(1, Ordering::Relaxed) % 4 == 3 {
            *response.status_mut() = http::StatusCode::SERVICE_UNAVAILABLE;
        }
        ready(Ok(response))
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let damper = Damper::from_env()?;
    let dependency = damper.dependency("stock");
    let layer = RetryLayer::new(dependency.clone())
        .shape(|operation| operation.deadline(Duration::from_secs(2)))
        .propagate();
    let mut stock = layer.layer(Stock);
    for _ in 0..20 {
        let request = Request::get("http://stock/items/7").body(Full::default())?;
        println!("{}", stock.call(request).await?.status());
    }
    let totals = dependency.totals();
    println!("{} operations, {} attempts, {} recovered", totals.logical, totals.physical, totals.recovered);
    damper.shutdown(Duration::from_secs(1)).await;
    Ok(())
}
