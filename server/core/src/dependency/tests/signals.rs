//! What reports do to the pool: throttle, prices, hedges, caps, and the books.

use super::bench::{Bench, failure, ms, retry, retry_now};
use crate::{
    Ask, BoundBy, Cause, Class, Failure, FailureReason, Kind, MicroTokens, MicrosPerSecond, Reason, Span,
    TenantDraft, Totals, Verdict,
};

fn rate(bench: &mut Bench) -> f64 {
    bench.dependency.snapshot(bench.now).pool.rate.as_per_s()
}

/// A second of a hundred operations that are all rate limited.
fn overload(bench: &mut Bench) {
    let mut totals = Totals { logical: 100, physical: 100, ..Totals::default() };
    totals.failures[Class::RateLimited.index()] = 100;
    bench.report(totals);
    bench.pass(Span::SECOND);
}

#[test]
fn overload_turns_the_pool_down_to_a_trickle_and_recovery_turns_it_up() {
    let mut bench = Bench::fixed(10.0);
    let rates: Vec<f64> = (0..5)
        .map(|_| {
            overload(&mut bench);
            rate(&mut bench)
        })
        .collect();
    assert_eq!(rates, [5.0, 2.5, 1.25, 0.1, 0.1], "below a tenth only a tenth of the floor is left");
    let pool = bench.dependency.snapshot(bench.now).pool;
    assert_eq!((pool.throttled_by, pool.bound_by), (Some(Cause::Overload), BoundBy::PerS));
    bench.pass(Span::from_secs(20));
    assert_eq!(rate(&mut bench), 10.0);
}

#[test]
fn a_retry_costs_what_the_failure_before_it_did() {
    let mut bench = Bench::fixed(100.0);
    let mut draft = crate::PolicyDraft::default();
    draft.retry.per_s = Some(100.0);
    draft.retry.cost.timeout = Some(2);
    draft.retry.cost.rate_limited = Some(4);
    bench.dependency.configure(bench.now, crate::Policy::new(&draft).unwrap().into());
    let mut price = |class, reason, cost| {
        let before = bench.issued();
        let failure = Failure { reason, ..failure(class) };
        bench.decide(&Ask { failure: Some(failure), cost, ..retry_now() });
        bench.pass(ms(1000));
        bench.issued() - before
    };
    assert_eq!(price(Class::Transient, None, 1), 1);
    assert_eq!(price(Class::Transient, Some(FailureReason::Timeout), 1), 2);
    assert_eq!(price(Class::RateLimited, Some(FailureReason::Timeout), 1), 4, "the higher one");
    assert_eq!(price(Class::RateLimited, None, 2), 8, "times what the ask costs by itself");
}

#[test]
fn a_dependency_that_says_do_not_retry_ends_the_operation() {
    let mut bench = Bench::fixed(10.0);
    let told = Failure { do_not_retry: true, ..failure(Class::Transient) };
    assert_eq!(bench.reason(&Ask { failure: Some(told), ..retry_now() }), Reason::NotRetryable);
}

#[test]
fn hedges_live_on_a_twentieth_of_first_successes_and_pay_the_pool_as_well() {
    let mut bench = Bench::fixed(100.0);
    for _ in 0..3 {
        bench.report_first_attempts(200, 200);
        bench.pass(Span::SECOND);
    }
    let before = bench.issued();
    let hedge = Ask { kind: Kind::Hedge, failure: None, ..retry() };
    bench.report_first_attempts(200, 200);
    let hedges = bench.grants_within(Span::SECOND, &hedge);
    assert!((10..=20).contains(&hedges), "ten a second and at most a second's savings: {hedges}");
    assert_eq!(bench.issued() - before, hedges);
}

#[test]
fn hedges_never_wait_and_are_the_first_to_go() {
    let mut bench = Bench::fixed(100.0);
    let hedge = Ask { kind: Kind::Hedge, failure: None, ..retry() };
    assert_eq!(bench.reason(&hedge), Reason::BudgetExhausted, "nothing has succeeded yet");
    for _ in 0..3 {
        bench.report_first_attempts(2000, 2000);
        bench.pass(Span::SECOND);
    }
    assert_eq!(bench.reason(&hedge), Reason::WithinBudget);
    bench.report_first_attempts(2000, 2000);
    let mut timeouts = Totals { logical: 9000, physical: 9000, reason_timeout: 9000, ..Totals::default() };
    timeouts.failures[Class::Transient.index()] = 9000;
    bench.dependency.throttle.count(bench.now, &timeouts);
    bench.pass(Span::SECOND);
    assert_eq!(bench.reason(&hedge), Reason::BudgetExhausted);
    assert_eq!(bench.reason(&retry_now()), Reason::WithinBudget, "retries go on at half the rate");
}

#[test]
fn a_returned_hedge_goes_back_to_both() {
    let mut bench = Bench::fixed(100.0);
    for _ in 0..3 {
        bench.report_first_attempts(20, 20);
        bench.pass(Span::SECOND);
    }
    let hedge = Ask { kind: Kind::Hedge, failure: None, ..retry() };
    let grant = bench.decide(&hedge).grant.unwrap();
    assert_eq!(bench.reason(&hedge), Reason::BudgetExhausted);
    assert!(bench.dependency.return_token(bench.now, grant.token));
    assert_eq!(bench.reason(&hedge), Reason::WithinBudget);
}

#[test]
fn a_tenants_amplification_is_capped() {
    let mut bench = Bench::new(|draft| {
        draft.retry.per_s = Some(1000.0);
        draft.amplification_cap = Some(1.1);
        draft
            .tenants
            .insert("vip".into(), TenantDraft { amplification_cap: Some(1.5), ..TenantDraft::default() });
    });
    assert_eq!(bench.reason(&retry_now()), Reason::WithinBudget, "the first one is free");
    assert_eq!(bench.reason(&retry_now()), Reason::AmplificationCap);
    bench.report_first_attempts(100, 50);
    let more = (0..50).filter(|_| bench.decide(&retry_now()).verdict == Verdict::Granted).count();
    assert_eq!(more, 9, "ten retries for a hundred operations");
    assert_eq!(bench.reason(&Ask { tenant: "vip".into(), ..retry_now() }), Reason::WithinBudget);
    bench.pass(Span::from_secs(10));
    assert_eq!(bench.reason(&retry_now()), Reason::WithinBudget, "it looks back ten seconds");
}

#[test]
fn what_was_granted_is_what_was_debited() {
    let mut bench = Bench::fixed(10.0);
    for cost in [1, 2, 3] {
        bench.ask(&Ask { cost, ..retry() });
    }
    bench.ask(&Ask { kind: Kind::First, failure: None, ..retry() });
    bench.pass(Span::from_secs(3));
    let pool = bench.dependency.snapshot(bench.now).pool;
    assert_eq!((pool.granted, pool.issued), (MicroTokens::from_tokens(6), MicroTokens::from_tokens(6)));
}

#[test]
fn tokens_that_nobody_accounts_for_are_unreported() {
    let mut bench = Bench::fixed(10.0);
    let tokens: Vec<_> = (0..2).filter_map(|_| bench.decide(&retry_now()).grant).collect();
    bench.pass(ms(500));
    bench.decide(&retry_now());
    bench.dependency.return_token(bench.now, tokens[0].token);
    let unreported = |bench: &mut Bench| bench.dependency.snapshot(bench.now).unreported;
    assert_eq!(unreported(&mut bench), 0, "they are still alive");
    bench.pass(Span::from_secs(2));
    assert_eq!(unreported(&mut bench), 2);
    bench.report(Totals { logical: 10, physical: 11, ..Totals::default() });
    assert_eq!(unreported(&mut bench), 1);
}

#[test]
fn the_last_refusals_say_whose_and_why() {
    let mut bench = Bench::fixed(1.0);
    for tenant in ["a", "b", "c"] {
        bench.decide(&Ask { tenant: tenant.into(), ..retry_now() });
        bench.pass(ms(100));
    }
    for _ in 0..100 {
        bench.decide(&Ask { attempt: 99, ..retry_now() });
    }
    let refusals = bench.dependency.snapshot(bench.now).refusals;
    assert_eq!(refusals.len(), 16);
    assert_eq!((&*refusals[0].tenant, refusals[0].reason), ("checkout", Reason::AttemptsExhausted));

    let mut bench = Bench::fixed(1.0);
    bench.decide(&Ask { tenant: "a".into(), ..retry_now() });
    bench.decide(&Ask { tenant: "b".into(), ..retry_now() });
    bench.pass(ms(100));
    let refusals = bench.dependency.snapshot(bench.now).refusals;
    let told: Vec<_> = refusals.iter().map(|r| (&*r.tenant, r.reason, r.ago)).collect();
    assert_eq!(told, [("b", Reason::BudgetExhausted, ms(100))]);
}

#[test]
fn in_shadow_everything_is_granted_and_everything_is_counted() {
    let mut bench = Bench::cold(|draft| {
        draft.retry.per_s = Some(1.0);
        draft.shadow = Some(true);
    });
    let would_have_been: Vec<_> = [retry_now(), retry_now(), retry(), Ask { attempt: 9, ..retry() }]
        .iter()
        .map(|ask| {
            let decision = bench.decide(ask);
            assert_eq!((decision.verdict, decision.reason), (Verdict::Granted, Reason::Shadow));
            assert!(decision.grant.is_some());
            decision.would_have_been.unwrap()
        })
        .collect();
    let expected =
        [Reason::WithinBudget, Reason::BudgetExhausted, Reason::AfterDelay, Reason::AttemptsExhausted];
    assert_eq!(would_have_been, expected);
    bench.pass(ms(1000));
    let snapshot = bench.dependency.snapshot(bench.now);
    let counts: Vec<_> = snapshot.decided.iter().map(|count| (count.reason, count.count)).collect();
    assert_eq!(
        counts,
        [
            (Reason::WithinBudget, 1),
            (Reason::AfterDelay, 1),
            (Reason::AttemptsExhausted, 1),
            (Reason::BudgetExhausted, 1),
            (Reason::Shadow, 4),
        ]
    );
    assert_eq!(snapshot.pool.issued, MicroTokens::from_tokens(2), "what it would have issued");
}

#[test]
fn headroom_and_the_safe_arrival_rate_come_from_the_window() {
    let mut bench = Bench::cold(|draft| draft.capacity_per_s = Some(130.0));
    let mut totals = Totals { logical: 1000, physical: 1100, success: 968, ..Totals::default() };
    totals.failures[Class::Transient.index()] = 132;
    bench.report(totals);
    let [window, ..] = bench.dependency.snapshot(bench.now).windows;
    assert_eq!((window.physical_per_s, window.headroom_per_s), (110.0, Some(20.0)));
    assert_eq!(format!("{:.3}", window.safe_arrival_per_s.unwrap()), "114.424");
}

#[test]
fn nested_layers_show_as_more_attempts_than_failures_explain() {
    let mut bench = Bench::fixed(10.0);
    let mut totals = Totals { logical: 1000, physical: 1440, success: 1267, ..Totals::default() };
    totals.failures[Class::Transient.index()] = 173;
    bench.report(totals);
    let [window, ..] = bench.dependency.snapshot(bench.now).windows;
    assert!(window.other_layers_retry, "{:?}", window.observed_to_expected);
}

#[test]
fn the_emergency_share_is_the_rate_over_the_living_clients() {
    let mut bench = Bench::fixed(10.0);
    for _ in 0..4 {
        bench.report(Totals::default());
    }
    let report = crate::Report { client: "fifth".into(), tenant: "a".into(), ..crate::Report::default() };
    let advice = bench.dependency.sync(bench.now, &report);
    assert_eq!((advice.emergency_per_s, advice.throttled), (MicrosPerSecond::from_per_s(2), false));
    overload(&mut bench);
    assert!(bench.dependency.sync(bench.now, &report).throttled, "so that it fades without a server");
}

#[test]
fn counts_at_the_end_of_the_integers_are_numbers_like_others() {
    let most = Totals {
        logical: u64::MAX,
        physical: u64::MAX,
        success: u64::MAX,
        slow: u64::MAX,
        reason_timeout: u64::MAX,
        reason_no_resources: u64::MAX,
        failures: [u64::MAX; _],
        latency: [u64::MAX; _],
        recovery: [u64::MAX; _],
        ..Totals::default()
    };
    for capacity in [None, Some(100.0)] {
        let mut bench = Bench::new(|draft| draft.capacity_per_s = capacity);
        for _ in 0..5 {
            bench.report(most);
            bench.report(Totals { recovered: u64::MAX, ..most });
            bench.pass(Span::SECOND);
            bench.ask(&retry());
        }
        let snapshot = bench.dependency.snapshot(bench.now);
        assert_eq!(snapshot.totals.logical, u64::MAX);
        assert!(snapshot.windows.iter().all(|window| window.physical_per_s.is_finite()));
    }
}

#[test]
fn a_repeated_request_in_shadow_gets_the_shadows_answer() {
    let mut bench = Bench::cold(|draft| {
        draft.retry.per_s = Some(1.0);
        draft.shadow = Some(true);
    });
    bench.decide(&retry_now());
    let ask = Ask { request_id: Some("a".into()), ..retry() };
    let first = bench.decide(&ask);
    bench.pass(ms(1500));
    assert_eq!(bench.decide(&ask), first, "though its place in the queue has been served meanwhile");
}
