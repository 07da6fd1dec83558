//! Which reason for which ask, and what is charged.

use super::bench::{Bench, failure, ms, retry, retry_now};
use crate::{
    Ask, AskFault, Asked, BreakerState, Class, Dispatch, Failure, Force, Kind, MicroTokens, Moment, Reason,
    RecoveryMode, Span, TokenId, Verdict,
};

fn with_failure(failure: Failure) -> Ask {
    Ask { failure: Some(failure), idempotent: false, ..retry_now() }
}

#[test]
fn only_a_class_that_a_retry_can_help_gets_one() {
    for (class, reason) in [
        (Class::Transient, Reason::WithinBudget),
        (Class::RateLimited, Reason::WithinBudget),
        (Class::Invalid, Reason::NotRetryable),
        (Class::Permission, Reason::NotRetryable),
        (Class::Fatal, Reason::NotRetryable),
        (Class::Semantic, Reason::NotRetryable),
    ] {
        let ask = Ask { failure: Some(failure(class)), ..retry_now() };
        assert_eq!(Bench::fixed(10.0).reason(&ask), reason, "{class:?}");
    }
}

#[test]
fn an_unknown_effect_is_repeated_only_where_that_is_safe() {
    let of = |dispatch| with_failure(Failure { dispatch, ..failure(Class::Transient) });
    let recovering = |mode| Ask { recovery_mode: Some(mode), ..of(Dispatch::Ambiguous) };
    let rejected = with_failure(Failure { caller_rejected: true, ..failure(Class::Transient) });
    for (ask, reason) in [
        (of(Dispatch::NotSent), Reason::WithinBudget),
        (of(Dispatch::NotProcessed), Reason::WithinBudget),
        (of(Dispatch::Ambiguous), Reason::AmbiguousNotRepeatable),
        (of(Dispatch::Processed), Reason::AmbiguousNotRepeatable),
        (Ask { idempotent: true, ..of(Dispatch::Ambiguous) }, Reason::WithinBudget),
        (recovering(RecoveryMode::ProviderIdempotent), Reason::WithinBudget),
        (recovering(RecoveryMode::Queryable), Reason::AmbiguousNotRepeatable),
        (recovering(RecoveryMode::Compensatable), Reason::AmbiguousNotRepeatable),
        (recovering(RecoveryMode::Opaque), Reason::AmbiguousNotRepeatable),
        (rejected, Reason::WithinBudget),
    ] {
        assert_eq!(Bench::fixed(10.0).reason(&ask), reason, "{ask:?}");
    }
}

#[test]
fn attempts_count_from_one_up_to_the_policy() {
    let mut bench = Bench::fixed(10.0);
    assert_eq!(bench.reason(&Ask { attempt: 4, ..retry_now() }), Reason::WithinBudget);
    assert_eq!(bench.reason(&Ask { attempt: 5, ..retry_now() }), Reason::AttemptsExhausted);
    assert_eq!(bench.reason(&Ask { attempt: u32::MAX, ..retry_now() }), Reason::AttemptsExhausted);
}

#[test]
fn a_deadline_has_to_leave_room_for_backoff_and_attempt() {
    let mut bench = Bench::fixed(10.0);
    let with = |deadline, earliest, expected| Ask {
        deadline: ms(deadline),
        earliest: ms(earliest),
        expected: ms(expected),
        ..retry()
    };
    assert_eq!(bench.reason(&with(0, 0, 0)), Reason::DeadlineTooShort);
    assert_eq!(bench.reason(&with(50, 0, 50)), Reason::DeadlineTooShort);
    assert_eq!(bench.reason(&with(50, 0, 49)), Reason::WithinBudget);
    assert_eq!(bench.reason(&with(100, 60, 40)), Reason::DeadlineTooShort);
    bench.wait(&with(101, 60, 40));
}

#[test]
fn the_gates_come_in_their_order() {
    let mut bench = Bench::fixed(10.0);
    bench.dependency.force_breaker(bench.now, Some(Force::Open));
    // Everything is wrong with this ask; each line mends what the one before named.
    let mut ask = Ask {
        attempt: 9,
        deadline: Span::ZERO,
        ..with_failure(Failure { retry_after: Some(ms(60_000)), ..failure(Class::Fatal) })
    };
    assert_eq!(bench.reason(&ask), Reason::NotRetryable);
    ask.failure = Some(Failure { retry_after: Some(ms(60_000)), ..failure(Class::Transient) });
    assert_eq!(bench.reason(&ask), Reason::AttemptsExhausted);
    ask.attempt = 4;
    assert_eq!(bench.reason(&ask), Reason::AmbiguousNotRepeatable);
    ask.idempotent = true;
    assert_eq!(bench.reason(&ask), Reason::DeadlineTooShort);
    ask.deadline = ms(10_000);
    assert_eq!(bench.reason(&ask), Reason::RetryAfterBeyondDeadline);
    ask.deadline = ms(600_000);
    ask.max_wait = None;
    assert_eq!(bench.reason(&ask), Reason::NoCapacityBeforeDeadline, "the pause outlasts max_delay");
    ask = Ask { tenant: "another".into(), ..retry_now() };
    assert_eq!(bench.reason(&ask), Reason::BreakerOpen);
    assert_eq!(bench.issued(), 0, "nothing of this was charged");
}

#[test]
fn the_same_request_id_gets_the_same_answer_and_is_charged_once() {
    let mut bench = Bench::fixed(10.0);
    let ask = Ask { request_id: Some("c1.i1.42".into()), ..retry_now() };
    let first = bench.decide(&ask);
    assert_eq!(first.verdict, Verdict::Granted);
    bench.pass(ms(1500));
    assert_eq!(bench.decide(&ask), first);
    assert_eq!(bench.issued(), 1);

    let other_tenant = Ask { tenant: "another".into(), ..ask };
    assert_ne!(bench.decide(&other_tenant), first, "ids belong to their tenant");
    assert_eq!(bench.issued(), 2);
}

#[test]
fn a_repeat_of_an_ask_that_waits_waits_with_it() {
    let mut bench = Bench::cold(|draft| draft.retry.per_s = Some(1.0));
    bench.decide(&retry_now());
    let ask = Ask { request_id: Some("a".into()), ..retry() };
    let id = bench.wait(&ask);
    assert_eq!(bench.wait(&ask), id);
    bench.pass(ms(1000));
    let (_, decision) = bench.released.get(&id).cloned().unwrap();
    assert_eq!(bench.ask(&ask), Asked::Decided(decision));
    assert_eq!(bench.issued(), 2);
}

#[test]
fn a_cancelled_ask_costs_nothing_and_a_repeat_is_a_new_ask() {
    let mut bench = Bench::cold(|draft| draft.retry.per_s = Some(1.0));
    bench.decide(&retry_now());
    let ask = Ask { request_id: Some("a".into()), ..retry() };
    let id = bench.wait(&ask);
    bench.dependency.cancel(bench.now, id);
    bench.dependency.cancel(bench.now, id);
    assert_ne!(bench.wait(&ask), id);
    bench.pass(ms(5000));
    assert_eq!(bench.released(id), None);
    assert_eq!(bench.issued(), 2);
}

#[test]
fn an_unused_token_comes_back_once() {
    let mut bench = Bench::fixed(1.0);
    let token = bench.decide(&retry_now()).grant.unwrap().token;
    assert_eq!(bench.reason(&retry_now()), Reason::BudgetExhausted);
    assert!(bench.dependency.return_token(bench.now, token));
    assert!(!bench.dependency.return_token(bench.now, token));
    assert!(!bench.dependency.return_token(bench.now, TokenId::from_number(u64::MAX)));
    assert_eq!(bench.reason(&retry_now()), Reason::WithinBudget);
    assert_eq!(bench.reason(&retry_now()), Reason::BudgetExhausted);
}

#[test]
fn a_token_that_expired_does_not_come_back() {
    let mut bench = Bench::fixed(10.0);
    let grant = bench.decide(&retry_now()).grant.unwrap();
    bench.pass(grant.ttl);
    assert!(!bench.dependency.return_token(bench.now, grant.token));
}

#[test]
fn a_price_that_the_pool_can_never_hold_is_a_fault_not_a_denial() {
    let mut bench = Bench::fixed(10.0);
    let fault = AskFault::CostAboveBurst { burst: MicroTokens::from_tokens(10) };
    assert_eq!(bench.dependency.ask(bench.now, &Ask { cost: 11, ..retry() }), Err(fault));
    assert_eq!(
        bench.reason(&Ask { cost: 10, ..retry_now() }),
        Reason::WithinBudget,
        "the whole burst at once"
    );
    let without = Ask { failure: None, ..retry() };
    assert_eq!(bench.dependency.ask(bench.now, &without), Err(AskFault::FailureMissing));
    assert_eq!(bench.issued(), 10);
}

#[test]
fn an_open_breaker_refuses_and_half_open_hands_out_its_probes() {
    let mut bench = Bench::fixed(100.0);
    bench.trip();
    let refused = bench.decide(&retry());
    assert_eq!(refused.reason, Reason::BreakerOpen);
    assert_eq!(refused.breaker.state, BreakerState::Open);
    assert_eq!(bench.reason(&Ask { kind: Kind::First, failure: None, ..retry() }), Reason::BreakerOpen);
    assert_eq!(refused.retry_after, None, "it stays open for longer than the operation can wait");
    let patient = bench.decide(&Ask { deadline: Span::from_secs(60), ..retry() });
    bench.pass(patient.retry_after.unwrap());

    let first = Ask { kind: Kind::First, attempt: 1, failure: None, ..retry() };
    let probe = bench.decide(&first);
    assert_eq!(probe.reason, Reason::Probe);
    assert_eq!(bench.issued(), 0, "a first attempt does not draw on the retry pool, not even as a probe");
    assert_eq!(bench.reason(&retry()), Reason::Probe);
    assert_eq!(bench.issued(), 1);
    assert_eq!(bench.reason(&first), Reason::Probe);
    assert_eq!(bench.reason(&first), Reason::BreakerHalfOpen);
    assert!(bench.dependency.return_token(bench.now, probe.grant.unwrap().token));
    assert_eq!(bench.reason(&first), Reason::Probe, "an unused probe is handed out again");
}

#[test]
fn a_probe_is_taken_after_all_other_gates() {
    let mut bench = Bench::cold(|draft| {
        draft.retry.per_s = Some(0.0);
        draft.breaker.probes = Some(1);
    });
    bench.trip();
    bench.pass(Span::from_secs(33));
    assert_eq!(bench.reason(&retry()), Reason::BudgetExhausted, "no token, so no probe is taken either");
    assert_eq!(bench.reason(&Ask { kind: Kind::First, failure: None, ..retry() }), Reason::Probe);
}

#[test]
fn a_new_pool_holds_one_second_of_its_floor() {
    let tokens = |edit: fn(&mut crate::PolicyDraft)| {
        Bench::cold(edit).dependency.snapshot(Moment::ORIGIN).pool.tokens.as_tokens()
    };
    assert_eq!(tokens(|draft| draft.retry.per_s = Some(50.0)), 1.0);
    assert_eq!(tokens(|draft| draft.retry.floor_per_s = Some(5.0)), 5.0);
    assert_eq!(tokens(|draft| draft.retry.per_s = Some(0.0)), 0.0);
}

#[test]
fn a_changed_policy_keeps_the_balance_and_clamps_it() {
    let mut bench = Bench::fixed(10.0);
    let policy = |per_s| {
        let mut draft = crate::PolicyDraft::default();
        draft.retry.per_s = Some(per_s);
        std::sync::Arc::new(crate::Policy::new(&draft).unwrap())
    };
    let tokens = |bench: &mut Bench| bench.dependency.snapshot(bench.now).pool.tokens.as_tokens();
    bench.dependency.configure(bench.now, policy(3.0));
    assert_eq!(tokens(&mut bench), 3.0);
    for _ in 0..1000 {
        bench.dependency.configure(bench.now, policy(100.0));
    }
    assert_eq!(tokens(&mut bench), 3.0, "a larger burst refills nothing, however often it is reloaded");
}

#[test]
fn time_that_runs_back_changes_nothing() {
    let mut bench = Bench::fixed(1.0);
    assert_eq!(bench.reason(&retry_now()), Reason::WithinBudget);
    for moment in [Moment::ORIGIN, bench.now, Moment::from_millis(5)] {
        let asked = bench.dependency.ask(moment, &retry_now()).unwrap();
        assert!(matches!(asked, Asked::Decided(decision) if decision.reason == Reason::BudgetExhausted));
    }
}

#[test]
fn every_decision_is_counted_once_by_kind_and_by_tenant() {
    let mut bench = Bench::fixed(20.0);
    for _ in 0..5 {
        bench.decide(&retry_now());
    }
    bench.decide(&Ask { tenant: "b".into(), kind: Kind::First, failure: None, ..retry_now() });
    let snapshot = bench.dependency.snapshot(bench.now);
    let counts: Vec<_> = snapshot.decided.iter().map(|c| (c.kind, c.reason, c.count)).collect();
    assert_eq!(
        counts,
        [
            (Kind::Retry, Reason::WithinBudget, 4),
            (Kind::Retry, Reason::BudgetExhausted, 1),
            (Kind::First, Reason::WithinBudget, 1),
        ]
    );
    let tenants: Vec<_> = snapshot.tenants.iter().map(|t| (&*t.name, t.granted, t.shed)).collect();
    assert_eq!(tenants, [("b", 1, 0), ("checkout", 4, 1)]);
}

#[test]
fn a_repeat_of_an_ask_whose_token_came_back_is_a_new_ask() {
    let mut bench = Bench::dry(1.0);
    bench.pass(ms(1000));
    let ask = Ask { request_id: Some("a".into()), ..retry_now() };
    let token = bench.decide(&ask).grant.unwrap().token;
    assert!(bench.dependency.return_token(bench.now, token));
    let again = bench.decide(&ask);
    assert_eq!(again.reason, Reason::WithinBudget);
    assert_ne!(again.grant.unwrap().token, token, "a dead token is no answer");
    assert_eq!(bench.reason(&retry_now()), Reason::BudgetExhausted, "and it was charged");
}

#[test]
fn a_hedge_that_finds_nothing_is_not_told_to_come_again() {
    let mut bench = Bench::fixed(100.0);
    let refused = bench.decide(&Ask { kind: Kind::Hedge, failure: None, ..retry() });
    assert_eq!((refused.reason, refused.retry_after), (Reason::BudgetExhausted, None));
}
