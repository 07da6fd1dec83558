//! What a snapshot shows beside the state that decisions rest on.

use std::collections::BTreeSet;

use super::bench::{Bench, ms, retry, retry_now};
use crate::{Ask, BreakerCause, BreakerState, Force, MicrosPerSecond, Report, Span, TenantUsage, Totals};

#[test]
fn only_waits_that_end_with_a_grant_are_measured_and_to_the_full() {
    let mut bench = Bench::dry(10.0);
    bench.wait(&retry());
    bench.wait(&Ask { max_wait: Some(ms(250)), ..retry() });
    bench.decide(&Ask { tenant: "another".into(), ..retry_now() });
    bench.pass(Span::from_secs(1));
    let waits = bench.dependency.snapshot(bench.now).waits;
    let released: Vec<Span> =
        bench.released.values().filter(|(_, d)| d.grant.is_some()).map(|(_, d)| d.waited).collect();
    assert!(!released.is_empty());
    assert_eq!(waits.counts.iter().sum::<u64>(), released.len() as u64);
    assert_eq!(waits.total.as_nanos(), released.iter().map(|wait| wait.as_nanos()).sum::<u64>());
}

#[test]
fn transitions_are_counted_by_their_states_and_say_why() {
    let mut bench = Bench::fixed(100.0);
    bench.trip();
    bench.pass(Span::from_secs(40));
    bench.dependency.force_breaker(bench.now, Some(Force::Closed));
    bench.dependency.force_breaker(bench.now, Some(Force::Open));
    bench.dependency.force_breaker(bench.now, None);
    let seen = bench.dependency.snapshot(bench.now).transitions;
    let count = |from: BreakerState, to: BreakerState| seen[from.index()][to.index()];
    assert_eq!(count(BreakerState::Closed, BreakerState::Open), 2);
    assert_eq!(count(BreakerState::Open, BreakerState::HalfOpen), 2);
    assert_eq!(count(BreakerState::HalfOpen, BreakerState::Closed), 1);
    assert_eq!(seen.iter().flatten().sum::<u64>(), 5);
    let why: Vec<BreakerCause> = bench.dependency.take_transitions().iter().map(|one| one.cause).collect();
    let [share, over, by] = [BreakerCause::FailureShare, BreakerCause::OpenTimeOver, BreakerCause::Operator];
    assert_eq!(why, [share, over, by, by, by]);
}

fn sync(bench: &mut Bench, client: &str, tenant: &str, wants_per_s: u64, logical: u64) {
    let report = Report {
        client: client.into(),
        tenant: tenant.into(),
        wants_first: MicrosPerSecond::from_per_s(wants_per_s),
        totals: Totals { logical, physical: logical, ..Totals::default() },
        ..Report::default()
    };
    bench.dependency.sync(bench.now, &report);
}

#[test]
fn first_attempts_are_shown_as_wanted_and_as_leased_while_leases_live() {
    let mut bench = Bench::new(|draft| draft.capacity_per_s = Some(100.0));
    for _ in 0..3 {
        sync(&mut bench, "a", "t", 90, 0);
        sync(&mut bench, "b", "t", 60, 0);
        bench.pass(Span::from_secs(1));
    }
    let seen = bench.dependency.snapshot(bench.now);
    assert_eq!((seen.first.wanted.as_per_s(), seen.first.leases), (150.0, 2));
    assert_eq!(seen.first.allocated.as_per_s(), 100.0, "no more than the capacity");
    assert_eq!(seen.sync_lag, Some(Span::SECOND));
    bench.pass(Span::from_secs(4));
    let seen = bench.dependency.snapshot(bench.now);
    assert_eq!((seen.first, seen.sync_lag), (Default::default(), Some(Span::from_secs(5))));
    bench.pass(Span::from_secs(55));
    assert_eq!(bench.dependency.snapshot(bench.now).sync_lag, None, "nobody lives");
}

fn usage(bench: &mut Bench, known: &[&str], room: usize) -> TenantUsage {
    let known: BTreeSet<Box<str>> = known.iter().map(|name| (*name).into()).collect();
    let mut usage = bench.dependency.tenant_usage(bench.now, &known, room);
    usage.rows.sort_by(|a, b| a.name.cmp(&b.name));
    usage
}

#[test]
fn tenants_are_told_apart_and_add_up() {
    let mut bench = Bench::dry(1.0);
    for (tenant, operations) in [("a", 10), ("b", 30), ("c", 20)] {
        sync(&mut bench, tenant, tenant, 0, operations);
        bench.decide(&Ask { tenant: tenant.into(), ..retry_now() });
    }
    bench.wait(&Ask { tenant: "c".into(), ..retry() });
    let names = |usage: &TenantUsage| usage.rows.iter().map(|row| row.name.to_string()).collect::<Vec<_>>();
    let some = usage(&mut bench, &["a", "unknown"], 1);
    assert_eq!(names(&some), ["a", "b"], "the busiest of the others");
    assert_eq!(names(&usage(&mut bench, &["a"], 0)), ["a"]);
    let all = usage(&mut bench, &[], 9);
    let mut sum = all.rows[0].counts;
    all.rows[1..].iter().for_each(|row| sum.add(&row.counts));
    assert_eq!((sum, all.total.logical), (all.total, 60));
    assert_eq!(all.rows.iter().map(|row| row.waiting).sum::<u64>(), all.waiting);
}
