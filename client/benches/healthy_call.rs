//! What a healthy call costs: the same attempt alone, under a timeout, and through the client.
//!
//! ```text
//! cargo bench -p damper-client --all-features
//! ```
//!
//! Prints the added time, its ratio to a bare `tokio::time::timeout` in the same run, and the allocations.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use criterion::{Criterion, criterion_group, criterion_main};
use damper_client::{Damper, Dependency, Failure, Idempotency};
use tokio::runtime::Runtime;

const ROUNDS: usize = 21;
const CALLS: u32 = 20_000;

async fn attempt(number: u32) -> Result<u32, Failure> {
    Ok(black_box(number))
}

async fn bare() {
    let _ = black_box(attempt(1).await);
}

async fn timeout() {
    let _ = black_box(tokio::time::timeout(Duration::from_secs(10), attempt(1)).await);
}

async fn through(dependency: &Dependency) {
    let operation = dependency.operation("get").idempotency(Idempotency::Safe);
    let _ = black_box(operation.call(|current| attempt(current.number())).await);
}

async fn timed<F: Future<Output = ()>>(calls: u64, call: impl Fn() -> F) -> Duration {
    let start = Instant::now();
    for _ in 0..calls {
        call().await;
    }
    start.elapsed()
}

/// Nanoseconds per call, the median of rounds that take turns.
async fn medians(dependency: &Dependency) -> [f64; 3] {
    let mut rounds = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        rounds[0].push(timed(u64::from(CALLS), bare).await);
        rounds[1].push(timed(u64::from(CALLS), timeout).await);
        rounds[2].push(timed(u64::from(CALLS), || through(dependency)).await);
    }
    rounds.map(|mut round| {
        round.sort_unstable();
        let median = round.get(ROUNDS / 2).copied().unwrap_or_default();
        median.as_secs_f64() * 1e9 / f64::from(CALLS)
    })
}

fn allocations(runtime: &Runtime, dependency: &Dependency) -> u64 {
    let calls = 1000;
    let counted = runtime.block_on(async {
        let start = allocation_counter::measure(|| {
            futures_util::FutureExt::now_or_never(timed(calls, || through(dependency)));
        });
        start.count_total
    });
    counted / calls
}

fn healthy_call(criterion: &mut Criterion) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return println!("no runtime: {error}"),
    };
    let damper = match Damper::builder("http://127.0.0.1:1").build() {
        Ok(damper) => damper,
        Err(error) => return println!("no client: {error}"),
    };
    let dependency = damper.dependency("d");
    let [bare_ns, timeout_ns, through_ns] = runtime.block_on(medians(&dependency));
    println!(
        "a healthy call: {bare_ns:.0} ns alone, {timeout_ns:.0} ns under a timeout, {through_ns:.0} ns through damper: \
         {:.0} ns added, {:.2} x a timeout, {} allocation(s)",
        through_ns - bare_ns,
        through_ns / timeout_ns.max(1.0),
        allocations(&runtime, &dependency),
    );
    let custom = |calls| runtime.block_on(timed(calls, || through(&dependency)));
    criterion.bench_function("healthy_call", |bencher| bencher.iter_custom(custom));
}

criterion_group!(benches, healthy_call);
criterion_main!(benches);
