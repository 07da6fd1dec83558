//! A POST that is repeated because the dependency recognises it by its key.
//!
//! ```text
//! cargo run -p damper-client --example charge -- http://127.0.0.1:3000/charges
//! ```

use std::time::Duration;

use damper_client::{Attempt, Damper, Failure, Idempotency, Opaque};
use reqwest::{Client, Response, header::HeaderMap};

type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// One attempt. What its error means is found inside it.
async fn charge(client: &Client, url: &str, attempt: Attempt) -> Result<Response, AnyError> {
    let mut headers = HeaderMap::new();
    attempt.inject_key(&mut headers)?;
    let response = client.post(url).headers(headers).send().await?;
    Ok(Failure::check(response)?)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), AnyError> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "http://127.0.0.1:3000/charges".to_owned());
    let client = Client::builder()
        .retry(reqwest::retry::never())
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(Duration::from_secs(5))
        .build()?;
    let damper = Damper::from_env()?;
    let payments = damper.dependency("payments");
    let receipt = payments
        .operation("charge")
        .idempotency(Idempotency::keyed("order-42"))
        .deadline(Duration::from_secs(2))
        .call(|attempt| async { charge(&client, &url, attempt).await.map_err(Opaque) })
        .await;
    match receipt {
        Ok(response) => println!("{}", response.status()),
        Err(error) => println!("{error}; it may have taken effect: {}", error.ambiguous),
    }
    let totals = payments.totals();
    println!("{} attempts, {} recovered", totals.physical, totals.recovered);
    damper.shutdown(Duration::from_secs(1)).await;
    Ok(())
}
