//! C8 of the goals, on the core alone: one tenant at a hundred times beside 99 others, all failing.

use std::collections::BTreeMap;

use super::bench::{Bench, ms, retry};
use crate::{Ask, AskId, Asked, Span, Verdict};

const OTHERS: usize = 99;
/// Tokens per second and tenant, were they shared out evenly.
const SHARE_PER_S: u64 = 10;

struct Crowd {
    bench: Bench,
    owners: BTreeMap<AskId, usize>,
    granted: Vec<u64>,
}

impl Crowd {
    fn new() -> Self {
        let bench = Bench::dry((SHARE_PER_S * (OTHERS as u64 + 1)) as f64);
        Self { bench, owners: BTreeMap::new(), granted: vec![0; OTHERS + 1] }
    }

    fn ask(&mut self, tenant: usize) {
        match self.bench.ask(&Ask { tenant: tenant.to_string().into(), ..retry() }) {
            Asked::Decided(decision) => {
                self.granted[tenant] += u64::from(decision.verdict == Verdict::Granted);
            }
            Asked::Waiting(id) => drop(self.owners.insert(id, tenant)),
        }
    }

    fn pass(&mut self, span: Span) {
        self.bench.pass(span);
        for (id, (_, decision)) in std::mem::take(&mut self.bench.released) {
            if let Some(tenant) = self.owners.remove(&id) {
                self.granted[tenant] += u64::from(decision.verdict == Verdict::Granted);
            }
        }
    }

    /// `seconds` in which each tenant asks so many times per second: tenant 0, then the others.
    fn run(&mut self, seconds: u64, noisy_per_s: u64, other_per_s: u64) -> Vec<u64> {
        let before = self.granted.clone();
        for _ in 0..seconds * 100 {
            for _ in 0..noisy_per_s / 100 {
                self.ask(0);
            }
            for tenant in 1..=OTHERS {
                // Each other tenant spreads its asks over the second, at its own phase.
                if (self.bench.now.as_nanos() / 10_000_000 + tenant as u64)
                    .is_multiple_of(100 / other_per_s.max(1))
                    && other_per_s > 0
                {
                    self.ask(tenant);
                }
            }
            self.pass(ms(10));
        }
        self.granted.iter().zip(before).map(|(after, before)| after - before).collect()
    }
}

#[test]
fn a_tenant_at_a_hundred_times_takes_nothing_from_the_others() {
    let mut crowd = Crowd::new();
    crowd.run(1, 2000, 20);
    for _ in 0..2 {
        let granted = crowd.run(10, 2000, 20);
        let least = granted[1..].iter().min().unwrap();
        assert!(*least >= 95, "of a guaranteed share of 100 in ten seconds: {least}");
        assert!(granted[0] <= 110, "{}", granted[0]);
    }
}

#[test]
fn an_idle_share_is_lent_at_once_and_reclaimed_at_once() {
    let mut crowd = Crowd::new();
    crowd.run(2, 2000, 0);
    let alone = crowd.run(1, 2000, 0);
    assert!(alone[0] >= 950, "within two seconds the whole pool is lent: {}", alone[0]);
    let reclaimed = crowd.run(1, 2000, 20);
    let back: u64 = reclaimed[1..].iter().sum();
    assert!(back >= 850, "within the first second the others have theirs back: {back}");
    let settled = crowd.run(10, 2000, 20);
    assert!(settled[1..].iter().all(|granted| *granted >= 95), "{settled:?}");
}
