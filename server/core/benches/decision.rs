//! What one decision costs, at one tenant and at a hundred thousand, beside governor's keyed limiter in the
//! same run. The printed ratios compare medians of the same run; absolute times depend on the machine.
#![allow(
    missing_docs,
    clippy::expect_used,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a benchmark"
)]

use std::hint::black_box;
use std::num::NonZeroU32;
use std::time::Instant;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use damper_core::{
    Ask, Class, Dependency, Dispatch, Failure, Kind, Moment, Policy, PolicyDraft, Priority, Report, Span,
};
use governor::{Quota, RateLimiter};

fn ask(tenant: usize, max_wait: Option<Span>) -> Ask {
    Ask {
        request_id: None,
        tenant: format!("tenant-{tenant}").into(),
        kind: Kind::Retry,
        attempt: 2,
        failure: Some(Failure {
            class: Class::Transient,
            reason: None,
            dispatch: Dispatch::NotSent,
            do_not_retry: false,
            caller_rejected: false,
            retry_after: None,
        }),
        idempotent: true,
        recovery_mode: None,
        priority: Priority::Normal,
        cost: 1,
        deadline: Span::from_secs(2),
        earliest: Span::ZERO,
        expected: Span::from_millis(50),
        max_wait,
    }
}

/// A dependency whose pool brings so many tokens per second.
fn dependency(per_s: f64) -> Dependency {
    let mut draft = PolicyDraft::default();
    draft.retry.per_s = Some(per_s);
    let policy = Policy::new(&draft).expect("a valid policy");
    let mut dependency = Dependency::new(Moment::ORIGIN, policy.into(), 1);
    dependency.poll(Moment::from_millis(60_000));
    dependency
}

/// Asks in an order that no cache can guess, a microsecond apart.
struct Load {
    asks: Vec<Ask>,
    next: usize,
    now: u64,
}

impl Load {
    fn new(tenants: usize) -> Self {
        let asks = (0..tenants).map(|tenant| ask(tenant, Some(Span::ZERO))).collect();
        Self { asks, next: 0, now: 60_000_000_000 }
    }

    fn next(&mut self) -> (Moment, &Ask) {
        self.next = (self.next + 7919) % self.asks.len();
        self.now += 1000;
        (Moment::from_nanos(self.now), self.asks.get(self.next).expect("in range"))
    }
}

fn decisions(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decision");
    group.throughput(Throughput::Elements(1));
    for tenants in [1, 100_000] {
        for (name, per_s) in [("granted", 1e9), ("refused", 1.0)] {
            let mut dependency = dependency(per_s);
            let mut load = Load::new(tenants);
            group.bench_function(format!("{name}/{tenants}"), |bencher| {
                bencher.iter(|| {
                    let (now, ask) = load.next();
                    black_box(dependency.ask(now, ask).expect("an ask that can be decided"))
                });
            });
        }
        let limiter = RateLimiter::keyed(Quota::per_second(NonZeroU32::MAX));
        let mut load = Load::new(tenants);
        group.bench_function(format!("governor-keyed/{tenants}"), |bencher| {
            bencher.iter(|| {
                let (_, ask) = load.next();
                black_box(limiter.check_key(&ask.tenant).is_ok())
            });
        });
    }
    group.finish();
    ratios();
    newcomers();
}

/// What a report of a client that nobody has heard of costs once the table of clients is full, beside one of a client
/// that is known, in turns.
fn newcomers() {
    const ROUNDS: usize = 51;
    const EACH: usize = 200;
    const CLIENTS: usize = 20_000;
    let mut dependency = dependency(10.0);
    let mut now = 60_000_000_000;
    let mut report = |client: usize| {
        now += 1000;
        let report = Report { client: client.to_string().into(), tenant: "t".into(), ..Report::default() };
        let start = Instant::now();
        black_box(dependency.sync(Moment::from_nanos(now), &report));
        start.elapsed().as_secs_f64()
    };
    let full: f64 = (0..CLIENTS).map(&mut report).sum();
    black_box(full);
    let mut rounds: Vec<(f64, f64)> = (0..ROUNDS)
        .map(|round| {
            let new = (0..EACH).map(|client| report(CLIENTS * 2 + round * EACH + client)).sum();
            let known = (0..EACH).map(|client| report(CLIENTS - 1 - client)).sum();
            (new, known)
        })
        .collect();
    rounds.sort_by(|a, b| (a.0 / a.1).total_cmp(&(b.0 / b.1)));
    let (new, known) = rounds.get(ROUNDS / 2).copied().expect("in range");
    let each = new / EACH as f64 * 1e9;
    println!("full table of clients: {each:.0} ns for a new one, {:.2} x one that is known", new / known);
}

/// Paired runs: the two take turns within one loop, so that whatever disturbs one disturbs the other.
fn ratios() {
    const ROUNDS: usize = 51;
    const EACH: u32 = 2000;
    for tenants in [1, 100_000] {
        let mut dependency = dependency(1e9);
        let limiter = RateLimiter::keyed(Quota::per_second(NonZeroU32::MAX));
        let (mut ours, mut theirs) = (Load::new(tenants), Load::new(tenants));
        let mut rounds: Vec<(f64, f64)> = (0..ROUNDS)
            .map(|_| {
                let start = Instant::now();
                for _ in 0..EACH {
                    let (now, ask) = ours.next();
                    let _ = black_box(dependency.ask(now, ask));
                }
                let middle = Instant::now();
                for _ in 0..EACH {
                    let (_, ask) = theirs.next();
                    black_box(limiter.check_key(&ask.tenant).is_ok());
                }
                ((middle - start).as_secs_f64(), middle.elapsed().as_secs_f64())
            })
            .collect();
        rounds.sort_by(|a, b| (a.0 / a.1).total_cmp(&(b.0 / b.1)));
        let (damper, governor) = rounds.get(ROUNDS / 2).copied().expect("in range");
        let per_decision = damper / f64::from(EACH) * 1e9;
        println!(
            "{tenants} tenants: {per_decision:.0} ns a decision, {:.2} x governor's keyed check",
            damper / governor
        );
    }
}

criterion_group!(benches, decisions);
criterion_main!(benches);
