//! Faults that people met in software of this kind, each named after its row in the list of known bugs.

use std::sync::Arc;

use super::bench::{Bench, failure, ms, retry, retry_now};
use crate::{
    Ask, BreakerState, Class, Failure, Kind, MicroTokens, Moment, Policy, PolicyDraft, Reason, Report, Span,
    Totals, Verdict,
};

fn tokens(bench: &mut Bench) -> f64 {
    bench.dependency.snapshot(bench.now).pool.tokens.as_tokens()
}

fn fixed_policy(per_s: f64) -> Arc<Policy> {
    let mut draft = PolicyDraft::default();
    draft.retry.per_s = Some(per_s);
    Arc::new(Policy::new(&draft).unwrap())
}

fn probe() -> Ask {
    Ask { kind: Kind::First, attempt: 1, failure: None, ..retry() }
}

#[test]
fn b15_a_quiet_day_banks_no_million_tokens() {
    let mut bench = Bench::cold(|draft| draft.retry.ratio = Some(0.1));
    for _ in 0..24 * 60 {
        bench.report_first_attempts(60_000, 60_000);
        bench.pass(Span::from_secs(60));
    }
    let start = bench.issued();
    for _ in 0..60 {
        bench.report_first_attempts(1000, 0);
        for _ in 0..100 {
            bench.decide(&retry_now());
            bench.pass(ms(10));
        }
    }
    // The floor, and a burst of one: none of the last seconds brought more.
    assert!(bench.issued() - start <= 60 + 1, "{}", bench.issued() - start);
}

#[test]
fn b16_what_comes_back_never_lifts_the_balance_above_the_burst() {
    let mut bench = Bench::fixed(10.0);
    let granted: Vec<_> = (0..2).filter_map(|_| bench.decide(&retry_now()).grant).collect();
    bench.pass(ms(150));
    for grant in granted.iter().chain(&granted) {
        bench.dependency.return_token(bench.now, grant.token);
    }
    assert_eq!(tokens(&mut bench), 10.0);

    let grant = bench.decide(&retry_now()).grant.unwrap();
    bench.dependency.configure(bench.now, fixed_policy(3.0));
    bench.dependency.return_token(bench.now, grant.token);
    assert_eq!(tokens(&mut bench), 3.0);
}

#[test]
fn b18_idleness_of_any_length_leaves_a_full_burst() {
    for idle in [12 * 3600, 400 * 86_400, 290 * 365 * 86_400] {
        let mut bench = Bench::cold(|draft| draft.retry.per_s = Some(1e9));
        bench.pass(Span::from_secs(idle));
        assert_eq!(tokens(&mut bench), 1e9);
        assert_eq!(bench.reason(&retry_now()), Reason::WithinBudget);
    }
}

#[test]
fn b19_a_degenerate_policy_refuses_or_is_refused_but_never_opens() {
    let mut bench = Bench::new(|draft| {
        draft.retry.per_s = Some(0.0);
        draft.retry.floor_per_s = Some(0.0);
        draft.retry.ratio = Some(0.0);
    });
    for cost in [1, 0, 1, 0] {
        match bench.dependency.ask(bench.now, &Ask { cost, ..retry_now() }) {
            Ok(crate::Asked::Decided(decision)) => {
                assert_ne!(decision.verdict, Verdict::Granted, "cost {cost}");
            }
            other => assert!(other.is_err(), "{other:?}"),
        }
        bench.pass(Span::from_secs(3600));
    }
    let mut draft = PolicyDraft::default();
    draft.breaker.window_ms = Some(0);
    assert!(Policy::new(&draft).is_err());
}

#[test]
fn b20_very_fast_and_very_slow_pools_keep_their_rate() {
    // The pool alone is driven to 6 000/s, 1 000 000/s and one a day in its own tests.
    for per_s in [6000.0, 0.01] {
        let mut bench = Bench::cold(|draft| draft.retry.per_s = Some(per_s));
        bench.pass(Span::from_secs(1000));
        let start = bench.issued();
        let step = if per_s > 1.0 { ms(1) } else { Span::from_secs(1) };
        let steps = if per_s > 1.0 { 60_000 } else { 6000 };
        for _ in 0..steps {
            while bench.decide(&retry_now()).verdict == Verdict::Granted {}
            bench.pass(step);
        }
        let seconds = step.as_nanos() as f64 / 1e9 * f64::from(steps);
        let target = per_s * seconds + per_s.max(1.0);
        let issued = (bench.issued() - start) as f64;
        assert!((issued - target).abs() <= (target * 0.01).max(1.0), "{per_s}: {issued} of {target}");
    }
}

#[test]
fn b23_a_probe_that_ends_in_nothing_never_wedges_the_breaker() {
    let mut bench = Bench::fixed(10.0);
    bench.trip();
    bench.pass(Span::from_secs(33));
    for round in 0..10 {
        let out: Vec<_> = (0..3).map(|_| bench.decide(&probe())).collect();
        assert!(out.iter().all(|decision| decision.reason == Reason::Probe), "round {round}");
        // One ends as a refusal of the request, which says nothing; one is returned; one is never heard of.
        let mut totals = Totals::default();
        totals.failures[Class::Invalid.index()] = 1;
        bench.report(totals);
        bench.dependency.return_token(bench.now, out[1].grant.unwrap().token);
        assert_eq!(bench.reason(&probe()), Reason::Probe);
        bench.pass(Span::from_secs(5));
    }
}

#[test]
fn b27_a_thousand_asks_in_one_instant_get_three_probes() {
    let mut bench = Bench::fixed(1000.0);
    bench.trip();
    bench.pass(Span::from_secs(33));
    let probes = (0..1000).filter(|_| bench.decide(&probe()).reason == Reason::Probe).count();
    assert_eq!(probes, 3);
}

#[test]
fn b28_breakers_that_opened_together_do_not_probe_together() {
    let open_for = |seed| {
        let mut dependency = crate::Dependency::new(Moment::ORIGIN, Arc::default(), seed);
        let mut totals = Totals::default();
        totals.failures[Class::Transient.index()] = 100;
        dependency.sync(Moment::ORIGIN, &Report { client: "a".into(), totals, ..Report::default() });
        dependency.breaker(Moment::ORIGIN, "a").open_for
    };
    let spans: std::collections::BTreeSet<Span> = (0..100).map(open_for).collect();
    assert!(spans.len() >= 90, "{}", spans.len());
}

#[test]
fn b34_a_policy_that_changes_under_live_use_never_panics_and_never_opens() {
    let mut bench = Bench::fixed(10.0);
    for round in 0..200_u32 {
        for tenant in 0..50_usize {
            let priority = crate::Priority::ALL[tenant % 3];
            bench.ask(&Ask { tenant: format!("{tenant}.{round}").into(), priority, ..retry() });
        }
        let grant = bench.dependency.ask(bench.now, &retry_now()).ok();
        bench.dependency.configure(bench.now, fixed_policy(f64::from(round % 20)));
        if let Some(crate::Asked::Decided(decision)) = grant
            && let Some(grant) = decision.grant
        {
            bench.dependency.return_token(bench.now, grant.token);
        }
        let pool = bench.dependency.snapshot(bench.now).pool;
        assert!(pool.tokens <= pool.burst);
        bench.pass(ms(50));
    }
    // Ten seconds at 9.5 tokens a second on average, and the largest burst.
    assert!(bench.issued() <= 95 + 20, "{}", bench.issued());
}

#[test]
fn b35_reloading_refills_nothing_and_a_change_is_live_at_once() {
    let mut bench = Bench::dry(10.0);
    let start = bench.issued();
    for _ in 0..600 {
        bench.dependency.configure(bench.now, fixed_policy(10.0));
        bench.decide(&retry_now());
        bench.pass(ms(100));
    }
    assert!(bench.issued() - start <= 600, "a minute at ten a second: {}", bench.issued() - start);
    bench.dependency.configure(bench.now, fixed_policy(1000.0));
    assert_eq!(bench.dependency.snapshot(bench.now).pool.rate.as_per_s(), 1000.0);
}

#[test]
fn b36_a_restart_hands_out_one_second_of_the_floor_and_counts_reports_once() {
    // What happened while no server lived is counted, but pays for no retries.
    let (mut logical, mut issued) = (0, 0);
    let mut acked = Totals::default();
    for life in 1..=120_u64 {
        let mut bench = Bench::cold(|draft| draft.retry.ratio = Some(0.1));
        let done = life * 1000;
        let totals = Totals { logical: done, physical: done, success: done, ..Totals::default() };
        let report = Report { client: "a".into(), tenant: "t".into(), totals, acked, ..Report::default() };
        for _ in 0..3 {
            bench.dependency.sync(bench.now, &report);
        }
        acked = totals;
        logical += bench.dependency.snapshot(bench.now).totals.logical;
        issued += bench.grants_within(ms(5000), &retry_now());
    }
    assert_eq!(logical, 120_000);
    // Ten minutes at the floor of one a second, and one second of it for each of 120 lives.
    assert!(issued <= 600 + 120, "{issued}");
}

#[test]
fn b38_a_flood_of_names_disturbs_no_one() {
    let mut bench = Bench::fixed(10.0);
    for number in 0..150_000 {
        bench.decide(&Ask { tenant: number.to_string().into(), attempt: 99, ..retry_now() });
    }
    let snapshot = bench.dependency.snapshot(bench.now);
    assert_eq!((snapshot.tenants.len(), snapshot.tenant_count), (100, 100_001));
    assert_eq!(bench.reason(&retry_now()), Reason::WithinBudget);
}

#[test]
fn b39_names_that_look_alike_have_budgets_of_their_own() {
    let names = ["a/b", "a", "b", "a:b", "a%2Fb", "Ωμέγα", "Ωμε\u{301}γα", "\u{200f}a", "A"];
    let mut bench = Bench::fixed(1000.0);
    for name in names {
        let ask = Ask { tenant: name.into(), request_id: Some("same".into()), ..retry_now() };
        bench.decide(&ask);
        bench.decide(&ask);
    }
    let tenants = bench.dependency.snapshot(bench.now).tenants;
    assert_eq!(tenants.len(), names.len());
    assert!(tenants.iter().all(|tenant| tenant.granted == 1), "each was charged once: {tenants:?}");
}

#[test]
fn b42_b43_a_clock_that_jumps_back_locks_nobody_out_and_earns_nothing() {
    let mut bench = Bench::dry(10.0);
    let start = bench.issued();
    for step in 0..600_u64 {
        let back = Moment::from_nanos(bench.now.as_nanos().saturating_sub((step % 11) * 1_000_000_000));
        let _ = bench.dependency.ask(back, &retry_now());
        bench.decide(&retry_now());
        bench.pass(ms(100));
    }
    let issued = bench.issued() - start;
    assert!((590..=600).contains(&issued), "a minute at ten a second: {issued}");
}

#[test]
fn b45_versions_only_rise_whatever_clients_claim() {
    let mut bench = Bench::fixed(10.0);
    let mut last = 0;
    for round in 0..50_u64 {
        if round % 2 == 0 {
            bench.trip();
        } else {
            bench.dependency.force_breaker(bench.now, Some(crate::Force::Closed));
            bench.dependency.force_breaker(bench.now, None);
        }
        let claim = Report {
            client: "liar".into(),
            tenant: "checkout".into(),
            breaker_version: [0, 1, round, u64::MAX][(round % 4) as usize],
            breaker_state: Some(BreakerState::Closed),
            ..Report::default()
        };
        bench.dependency.sync(bench.now, &claim);
        let view = bench.dependency.breaker(bench.now, "checkout");
        assert!(view.version > last, "{round}");
        last = view.version;
        bench.pass(ms(10));
    }
}

#[test]
fn a_retry_after_of_any_size_is_a_value_and_not_a_fault() {
    let mut bench = Bench::fixed(10.0);
    for wait in [0, 1, u64::MAX] {
        let told = Failure { retry_after: Some(Span::from_millis(wait)), ..failure(Class::RateLimited) };
        bench.ask(&Ask { failure: Some(told), ..retry() });
    }
    assert_eq!(bench.dependency.snapshot(bench.now).hold, Span::from_secs(300));
    assert_eq!(bench.dependency.snapshot(bench.now).pool.issued, MicroTokens::ONE);
}
