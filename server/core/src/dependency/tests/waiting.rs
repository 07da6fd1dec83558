//! The delay queue: who waits, for how long, and with which end.

use super::bench::{Bench, failure, ms, retry, retry_now};
use crate::{Ask, Class, Failure, Priority, Reason, Span};

#[test]
fn a_retry_waits_for_its_token() {
    let mut bench = Bench::dry(10.0);
    let ids = [(); 3].map(|()| bench.wait(&retry()));
    bench.pass(ms(250));
    assert_eq!(ids.map(|id| bench.released(id)), [Some(Reason::AfterDelay), Some(Reason::AfterDelay), None]);
    bench.pass(ms(50));
    let (at, decision) = &bench.released[&ids[2]];
    assert_eq!((at.since(bench.now), decision.waited), (Span::ZERO, ms(300)));
}

#[test]
fn the_backoff_is_spent_in_the_queue_and_the_token_is_debited_at_its_end() {
    let mut bench = Bench::fixed(10.0);
    let id = bench.wait(&Ask { earliest: ms(120), ..retry() });
    assert_eq!(bench.issued(), 0);
    bench.pass(ms(119));
    assert_eq!(bench.released(id), None);
    bench.pass(ms(1));
    assert_eq!(bench.released(id), Some(Reason::AfterDelay));
    assert_eq!(bench.issued(), 1);
}

#[test]
fn one_that_cannot_be_served_in_time_is_shed_at_once() {
    let mut bench = Bench::dry(10.0);
    let ask = Ask { deadline: ms(99), ..retry() };
    let refused = bench.decide(&ask);
    assert_eq!((refused.reason, refused.retry_after), (Reason::NoCapacityBeforeDeadline, None));
    let patient = Ask { deadline: ms(500), max_wait: Some(ms(99)), ..retry() };
    let refused = bench.decide(&patient);
    assert_eq!((refused.reason, refused.retry_after), (Reason::NoCapacityBeforeDeadline, Some(ms(100))));
    bench.wait(&Ask { deadline: ms(101), ..retry() });
}

#[test]
fn an_attempt_needs_its_time_after_the_wait() {
    let mut bench = Bench::dry(10.0);
    assert_eq!(
        bench.reason(&Ask { deadline: ms(200), expected: ms(100), ..retry() }),
        Reason::NoCapacityBeforeDeadline
    );
    bench.wait(&Ask { deadline: ms(201), expected: ms(100), ..retry() });
}

#[test]
fn one_whose_window_closes_while_it_waits_expires() {
    let mut bench = Bench::dry(10.0);
    let late = bench.wait(&Ask { deadline: ms(150), ..retry() });
    // One that came later and cannot wait as long takes the next token.
    let sooner = bench.wait(&Ask { deadline: ms(140), ..retry() });
    bench.pass(ms(200));
    assert_eq!(bench.released(sooner), Some(Reason::AfterDelay));
    assert_eq!(bench.released(late), Some(Reason::Expired));
}

#[test]
fn the_queue_holds_what_the_pool_brings_within_max_delay() {
    let mut bench = Bench::dry(10.0);
    let patient = Ask { max_wait: Some(Span::from_secs(9)), ..retry() };
    for _ in 0..20 {
        bench.wait(&patient);
    }
    let refused = bench.decide(&patient);
    assert_eq!(refused.reason, Reason::QueueFull);
    assert_eq!(refused.retry_after, Some(ms(2100)));
    assert!((ms(125)..=ms(375)).contains(&refused.suppress), "{:?}", refused.suppress);
    let report = crate::Report { client: "a".into(), tenant: "a".into(), ..crate::Report::default() };
    let suppress = bench.dependency.sync(bench.now, &report).suppress;
    assert!((ms(125)..=ms(375)).contains(&suppress), "syncs say so too: {suppress:?}");
}

#[test]
fn a_more_urgent_ask_takes_the_place_of_a_less_urgent_one_of_its_tenant() {
    let mut bench = Bench::dry(10.0);
    let bulk = Ask { priority: Priority::Bulk, max_wait: Some(Span::from_secs(9)), ..retry() };
    let ids: Vec<_> = (0..20).map(|_| bench.wait(&bulk)).collect();
    let critical = bench.wait(&Ask { priority: Priority::Critical, ..bulk.clone() });
    assert_eq!(bench.released(ids[19]), Some(Reason::Preempted));
    assert_eq!(bench.reason(&bulk), Reason::QueueFull);
    bench.pass(ms(100));
    assert_eq!(bench.released(critical), Some(Reason::AfterDelay));
}

#[test]
fn a_full_queue_still_has_room_for_another_tenants_share() {
    let mut bench = Bench::dry(10.0);
    let greedy = Ask { max_wait: Some(Span::from_secs(9)), tenant: "greedy".into(), ..retry() };
    let ids: Vec<_> = (0..20).map(|_| bench.wait(&greedy)).collect();
    let modest = Ask { tenant: "modest".into(), ..greedy.clone() };
    for _ in 0..9 {
        bench.wait(&modest);
    }
    let preempted = ids.iter().filter(|id| bench.released(**id) == Some(Reason::Preempted)).count();
    assert_eq!(preempted, 9);
    assert_eq!(bench.reason(&greedy), Reason::QueueFull);
}

#[test]
fn asks_that_wait_come_before_asks_that_do_not() {
    let mut bench = Bench::dry(10.0);
    let waits = bench.wait(&retry());
    bench.now = bench.now.after(ms(100));
    assert_eq!(bench.reason(&retry_now()), Reason::BudgetExhausted);
    assert_eq!(bench.released(waits), Some(Reason::AfterDelay));
}

#[test]
fn an_opening_breaker_answers_everyone_who_waits() {
    let mut bench = Bench::dry(10.0);
    let ids = [(); 5].map(|()| bench.wait(&retry()));
    bench.trip();
    assert_eq!(ids.map(|id| bench.released(id)), [Some(Reason::BreakerOpen); 5]);
}

#[test]
fn one_clients_retry_after_holds_its_whole_tenant_and_nobody_else() {
    let mut bench = Bench::fixed(100.0);
    let told = Failure { retry_after: Some(ms(1500)), ..failure(Class::RateLimited) };
    let first = bench.wait(&Ask { failure: Some(told), ..retry() });
    let sibling = bench.wait(&retry());
    assert_eq!(bench.reason(&Ask { tenant: "another".into(), ..retry() }), Reason::WithinBudget);
    assert_eq!(bench.reason(&Ask { deadline: ms(1500), ..retry() }), Reason::RetryAfterBeyondDeadline);
    let now = bench.decide(&retry_now());
    assert_eq!((now.reason, now.retry_after), (Reason::BudgetExhausted, Some(ms(1500))));
    bench.pass(ms(1499));
    assert_eq!((bench.released(first), bench.released(sibling)), (None, None));
    bench.pass(ms(1));
    let after_delay = Some(Reason::AfterDelay);
    assert_eq!((bench.released(first), bench.released(sibling)), (after_delay, after_delay));
}

#[test]
fn a_longer_hold_replaces_a_shorter_one_and_never_the_reverse() {
    let mut bench = Bench::fixed(100.0);
    for (wait, held) in [(1000, 1000), (1800, 1800), (200, 1800)] {
        let told = Failure { retry_after: Some(ms(wait)), ..failure(Class::RateLimited) };
        bench.ask(&Ask { failure: Some(told), ..retry() });
        assert_eq!(bench.dependency.snapshot(bench.now).hold, ms(held));
    }
}

#[test]
fn a_hold_is_capped_because_a_header_is_a_peers_word() {
    let mut bench = Bench::fixed(100.0);
    let told = Failure { retry_after: Some(Span::from_secs(86_400)), ..failure(Class::RateLimited) };
    assert_eq!(bench.reason(&Ask { failure: Some(told), ..retry() }), Reason::RetryAfterBeyondDeadline);
    assert_eq!(bench.dependency.snapshot(bench.now).hold, Span::from_secs(300));
}

#[test]
fn a_hold_learnt_meanwhile_moves_or_ends_the_wait() {
    let mut bench = Bench::dry(10.0);
    let short = bench.wait(&Ask { deadline: ms(900), ..retry() });
    let long = bench.wait(&retry());
    let told = Failure { retry_after: Some(ms(1200)), ..failure(Class::RateLimited) };
    bench.ask(&Ask { failure: Some(told), ..retry() });
    bench.pass(ms(1199));
    assert_eq!(bench.released(short), Some(Reason::RetryAfterBeyondDeadline));
    assert_eq!(bench.released(long), None);
    bench.pass(ms(200));
    assert_eq!(bench.released(long), Some(Reason::AfterDelay));
}

#[test]
fn a_dearer_ask_is_not_starved_by_cheap_ones() {
    let mut bench = Bench::dry(10.0);
    let dear = bench.wait(&Ask { cost: 5, tenant: "dear".into(), ..retry() });
    let cheap: Vec<_> = (0..10).map(|_| bench.wait(&Ask { tenant: "cheap".into(), ..retry() })).collect();
    bench.pass(ms(1500));
    assert_eq!(bench.released(dear), Some(Reason::AfterDelay));
    assert!(cheap.iter().all(|id| bench.released(*id) == Some(Reason::AfterDelay)));
}

#[test]
fn a_pause_after_a_failure_that_is_not_retried_holds_nobody() {
    let mut bench = Bench::fixed(100.0);
    let told = Failure { retry_after: Some(Span::from_secs(300)), ..failure(Class::Invalid) };
    assert_eq!(bench.reason(&Ask { failure: Some(told), ..retry() }), Reason::NotRetryable);
    assert_eq!(bench.dependency.snapshot(bench.now).hold, Span::ZERO);
}
