//! A reqwest client that retries within the budget of the fleet.
//!
//! ```text
//! cargo run -p damper-client --example reqwest_middleware --features reqwest-middleware -- http://127.0.0.1:3000/
//! ```

use std::time::Duration;

use damper_client::{
    Damper,
    reqwest_middleware::{Retry, client_builder},
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "http://127.0.0.1:3000/".to_owned());
    let damper = Damper::from_env()?;
    let stock = damper.dependency("stock");
    let retry =
        Retry::new(stock.clone()).shape(|operation| operation.deadline(Duration::from_secs(2))).propagate();
    let client = reqwest_middleware::ClientBuilder::new(client_builder().build()?).with(retry).build();
    match client.get(url).send().await {
        Ok(response) => println!("{}", response.status()),
        Err(error) => println!("{error:?}"),
    }
    println!("{:?}", stock.totals());
    damper.shutdown(Duration::from_secs(1)).await;
    Ok(())
}
