//! A service that calls a dependency through damper, and what becomes of its failures.
//!
//! ```text
//! cargo run -p damper-client --example quickstart
//! ```
//!
//! With a server (`cargo run -p damper-server -- serve`) failures are retried, as far as the pool of a dependency that
//! nobody knows yet allows. Without one, all five operations that fail end with `emergency_exhausted`: the emergency
//! budget is empty in the first second of a process, and the calls take no longer.

use std::{
    io,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use damper_client::{Damper, Idempotency, Profile};

/// A dependency that resets one connection in eight.
async fn look_up(calls: &AtomicU32) -> io::Result<&'static str> {
    tokio::time::sleep(Duration::from_millis(5)).await;
    match calls.fetch_add(1, Ordering::Relaxed) % 8 {
        7 => Err(io::ErrorKind::ConnectionReset.into()),
        _ => Ok("in stock"),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let damper = Damper::from_env()?;
    let stock = damper.dependency("stock");
    let calls = AtomicU32::new(0);

    for number in 1..=40 {
        let outcome = stock
            .operation("look_up")
            .idempotency(Idempotency::Safe)
            .profile(Profile::interactive())
            .deadline(Duration::from_secs(2))
            .call(|_attempt| look_up(&calls))
            .await;
        if let Err(error) = outcome {
            println!("operation {number}: {error}");
        }
    }

    let totals = stock.totals();
    println!(
        "{} operations, {} attempts, {} succeeded, {} of them after a failure",
        totals.logical, totals.physical, totals.success, totals.recovered,
    );
    println!("{:?}", damper.health());
    println!("{:?}", damper.shutdown(Duration::from_secs(1)).await);
    Ok(())
}
