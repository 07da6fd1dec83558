//! A service that serves its requests within the scope of their callers, and calls a dependency of its own.
//!
//! ```text
//! cargo run -p damper-client --example axum --features axum,reqwest-middleware
//! curl -i -H 'Damper-Timeout-Ms: 500' http://127.0.0.1:3000/checkout
//! ```

use std::time::Duration;

use axum::{Router, extract::State, routing::get};
use damper_client::{
    CallError, Damper, Deadline, Dependency, Failure, FailureClass, Idempotency, Inbound, axum::ScopeLayer,
};

/// A refusal becomes 429 or 503, and its caller is not made to retry what was retried here.
async fn checkout(
    inbound: Inbound,
    State(payments): State<Dependency>,
) -> Result<String, CallError<Failure>> {
    let quote = payments
        .operation("quote")
        .idempotency(Idempotency::Safe)
        .deadline(Deadline::inherit())
        .call(|attempt| async move {
            // The call goes here, with attempt.inject(..) on its headers.
            let remaining = attempt.remaining();
            if remaining.is_zero() { Err(Failure::new(FailureClass::Transient)) } else { Ok(remaining) }
        })
        .await?;
    let owner = inbound.context().map_or("this service", |context| context.owner()).to_owned();
    Ok(format!("quoted with {} ms to spare; retries belong to {owner}\n", quote.as_millis()))
}

fn app(payments: Dependency) -> Router {
    let scope = ScopeLayer::at_most(Duration::from_secs(5));
    Router::new().route("/checkout", get(checkout)).layer(scope).with_state(payments)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let damper = Damper::from_env()?;
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("http://{}/checkout", listener.local_addr()?);
    let interrupted = async { tokio::signal::ctrl_c().await.unwrap_or_default() };
    axum::serve(listener, app(damper.dependency("payments"))).with_graceful_shutdown(interrupted).await?;
    damper.shutdown(Duration::from_secs(1)).await;
    Ok(())
}
