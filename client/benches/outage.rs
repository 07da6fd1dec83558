//! What a refused retry costs once the breaker towards a dead server is open: operations whose only attempt fails,
//! with retries switched off and with a server that is away, taking turns.
//!
//! ```text
//! cargo bench -p damper-client --all-features --bench outage
//! ```

use std::time::{Duration, Instant};

use damper_client::{Damper, Dependency, FailMode, Failure, FailureClass, Idempotency, StopReason};

const CALLS: usize = 50_000;

async fn fails(dependency: &Dependency) -> StopReason {
    let operation = dependency.operation("get").idempotency(Idempotency::Safe);
    match operation.call(|_| async { Err::<(), _>(Failure::new(FailureClass::Transient)) }).await {
        Ok(()) => StopReason::NotAFailure,
        Err(error) => error.reason,
    }
}

async fn timed(dependency: &Dependency, times: &mut Vec<Duration>) {
    let start = Instant::now();
    fails(dependency).await;
    times.push(start.elapsed());
}

fn percentile(times: &mut [Duration], percent: usize) -> f64 {
    times.sort_unstable();
    let at = times.len().saturating_mul(percent) / 100;
    times.get(at).copied().unwrap_or_default().as_secs_f64() * 1e6
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let inert = Damper::inert().dependency("d");
    let away = Damper::builder("http://127.0.0.1:1").fail_mode(FailMode::Closed).build()?.dependency("d");
    while fails(&away).await != StopReason::CircuitOpen {}
    let (mut alone, mut with) = (Vec::new(), Vec::new());
    for _ in 0..CALLS {
        timed(&inert, &mut alone).await;
        timed(&away, &mut with).await;
    }
    for percent in [50, 99] {
        let (alone, with) = (percentile(&mut alone, percent), percentile(&mut with, percent));
        println!(
            "p{percent}: {alone:.1} us without retries, {with:.1} us without a server: {:.1} us added",
            with - alone
        );
    }
    Ok(())
}
