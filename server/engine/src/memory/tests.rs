use std::time::Duration;

use damper_core::{
    BreakerState, Class, Dispatch, Failure, Kind, PolicyDraft, Priority, Reason, Totals, Verdict,
};
use tokio::time::{sleep, timeout};

use damper_core::Force;

use super::*;
use crate::Unknown;

mod settings;

const PAYMENTS: &str = "payments";

fn engine(edit: impl FnOnce(&mut PolicyDraft)) -> MemoryEngine {
    let mut draft = PolicyDraft::default();
    edit(&mut draft);
    let policy = Arc::new(Policy::new(&draft).unwrap());
    MemoryEngine::new(Settings { defaults: policy, ..Settings::default() })
}

fn fixed(per_s: f64) -> MemoryEngine {
    engine(|draft| draft.retry.per_s = Some(per_s))
}

fn retry() -> Ask {
    Ask {
        request_id: None,
        tenant: "checkout".into(),
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
        deadline: Span::from_secs(10),
        earliest: Span::ZERO,
        expected: Span::ZERO,
        max_wait: None,
    }
}

fn decide(engine: &MemoryEngine, ask: &Ask) -> Decided {
    match engine.ask(PAYMENTS, ask).unwrap() {
        Asking::Decided(decided) => decided,
        Asking::Waiting(_) => panic!("waits"),
    }
}

fn wait(engine: &MemoryEngine, ask: &Ask) -> Ticket {
    match engine.ask(PAYMENTS, ask).unwrap() {
        Asking::Waiting(ticket) => ticket,
        Asking::Decided(decided) => panic!("decided: {decided:?}"),
    }
}

fn waiting(engine: &MemoryEngine) -> u64 {
    engine.snapshot(PAYMENTS).unwrap().waiting
}

fn failures(count: u64) -> Report {
    let mut totals = Totals::default();
    totals.failures[Class::Transient.index()] = count;
    Report { client: count.to_string().into(), tenant: "checkout".into(), totals, ..Report::default() }
}

fn sync(engine: &MemoryEngine, report: Report) -> Advice {
    engine.sync(PAYMENTS, report, None::<std::iter::Empty<(&str, bool)>>).unwrap()
}

/// Runs the timers that are due without letting time pass.
async fn settle() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_ticket_resolves_when_its_token_comes() {
    let engine = fixed(10.0);
    assert_eq!(decide(&engine, &retry()).decision.reason, Reason::WithinBudget);
    let started = Instant::now();
    let decided = wait(&engine, &retry()).await.unwrap();
    assert_eq!(decided.decision.reason, Reason::AfterDelay);
    assert!(decided.token.is_some());
    let waited = started.elapsed();
    assert!((100..=101).contains(&waited.as_millis()), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_dropped_ticket_leaves_the_queue_and_costs_nothing() {
    let engine = fixed(10.0);
    decide(&engine, &retry());
    let ticket = wait(&engine, &retry());
    let next = wait(&engine, &retry());
    assert_eq!(waiting(&engine), 2);
    drop(ticket);
    assert_eq!(waiting(&engine), 1);
    assert_eq!(next.await.unwrap().decision.waited.as_millis(), 100, "the next one moved up");
    assert_eq!(engine.snapshot(PAYMENTS).unwrap().pool.issued.as_tokens(), 2.0);
}

#[tokio::test(start_paused = true)]
async fn a_repeat_waits_with_the_first_and_both_get_one_answer() {
    let engine = fixed(10.0);
    decide(&engine, &retry());
    let ask = Ask { request_id: Some("a".into()), ..retry() };
    let (first, repeat) = (wait(&engine, &ask), wait(&engine, &ask));
    assert_eq!(waiting(&engine), 1);
    let third = wait(&engine, &ask);
    drop(third);
    assert_eq!(waiting(&engine), 1, "two still wait for it");
    let (first, repeat) = (first.await.unwrap(), repeat.await.unwrap());
    assert_eq!(first, repeat);
    assert_eq!(decide(&engine, &ask), first);
    assert_eq!(engine.snapshot(PAYMENTS).unwrap().pool.issued.as_tokens(), 2.0);
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_at_once_never_get_an_eleventh_token() {
    let engine = fixed(10.0);
    decide(&engine, &retry());
    sleep(Duration::from_secs(60)).await;
    let asks = (0..10_000).map(|number| {
        let engine = engine.clone();
        tokio::spawn(async move {
            let ask = Ask { tenant: (number % 7).to_string().into(), ..retry() };
            let decided = match engine.ask(PAYMENTS, &ask).unwrap() {
                Asking::Decided(decided) => decided,
                Asking::Waiting(ticket) => ticket.await.unwrap(),
            };
            (decided.decision.verdict == Verdict::Granted).then(|| engine.now())
        })
    });
    let start = engine.now();
    let mut granted = Vec::new();
    for task in asks.collect::<Vec<_>>() {
        granted.extend(task.await.unwrap());
    }
    let within = |ms: u64| granted.iter().filter(|at| at.since(start) < Span::from_millis(ms)).count();
    // The timer's resolution is a millisecond, so a token may be handed out one late but never early.
    assert_eq!(within(1), 2, "a tenth of what a full pool can spend within a second");
    assert!((18..=20).contains(&within(1000)), "the burst and a second's refill: {}", within(1000));
    // The queue held two seconds' worth beside the two that did not wait.
    assert!((21..=22).contains(&granted.len()), "{}", granted.len());
}

#[tokio::test(start_paused = true)]
async fn an_ask_with_100_ms_left_is_never_granted_after_100_ms() {
    let engine = fixed(5.0);
    decide(&engine, &retry());
    for deadline in [100, 199, 200, 201, 250] {
        let ask = Ask { deadline: Span::from_millis(deadline), ..retry() };
        let started = Instant::now();
        let decided = match engine.ask(PAYMENTS, &ask).unwrap() {
            Asking::Decided(decided) => decided,
            Asking::Waiting(ticket) => ticket.await.unwrap(),
        };
        let in_time = started.elapsed() < Duration::from_millis(deadline);
        assert!(in_time || decided.decision.verdict != Verdict::Granted, "{deadline}: {decided:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn watchers_are_told_of_breakers_and_holds_in_order() {
    let engine = fixed(10.0);
    let mut changes = engine.changes();
    decide(&engine, &retry());
    assert!(matches!(changes.recv().await.unwrap(), Change::Dependency { .. }), "it is new");
    sync(&engine, failures(100));
    let Change::Breaker { breaker: opened, .. } = changes.recv().await.unwrap() else {
        panic!("not a breaker")
    };
    assert_eq!(opened.state, BreakerState::Open);
    let told = timeout(Duration::from_secs(40), changes.recv()).await.expect("time alone turns it half-open");
    let Change::Breaker { breaker: half_open, .. } = told.unwrap() else { panic!("not a breaker") };
    assert_eq!(half_open.state, BreakerState::HalfOpen);
    assert!(half_open.version > opened.version);
}

#[tokio::test(start_paused = true)]
async fn a_probe_is_settled_by_its_token() {
    let engine = engine(|draft| {
        draft.breaker.probes = Some(1);
        draft.breaker.close_after = Some(1);
    });
    sync(&engine, failures(100));
    sleep(Duration::from_secs(40)).await;
    let first = Ask { kind: Kind::First, failure: None, ..retry() };
    let token = decide(&engine, &first).token.unwrap();
    assert_eq!(decide(&engine, &first).decision.reason, Reason::BreakerHalfOpen);
    for wrong in ["", "0-0-0", "nonsense"] {
        let report = Report { client: "x".into(), ..failures(0) };
        engine.sync(PAYMENTS, report, Some([(wrong, false)].into_iter())).unwrap();
        assert_eq!(engine.watched(PAYMENTS, None).unwrap().breaker.state, BreakerState::HalfOpen);
    }
    let report = Report { client: "x".into(), ..failures(0) };
    let advice = engine.sync(PAYMENTS, report, Some([(token.as_str(), true)].into_iter())).unwrap();
    assert_eq!(advice.breaker.state, BreakerState::Closed);
}

#[tokio::test(start_paused = true)]
async fn a_token_comes_back_to_its_own_dependency_once() {
    let engine = fixed(10.0);
    let token = decide(&engine, &retry()).token.unwrap();
    engine.ask("another", &retry()).unwrap();
    assert!(engine.return_token(&token));
    assert!(!engine.return_token(&token));
    assert_eq!(engine.snapshot(PAYMENTS).unwrap().pool.returned.as_tokens(), 1.0);
    assert_eq!(engine.snapshot("another").unwrap().pool.returned.as_tokens(), 0.0);
}

#[tokio::test]
async fn unknown_dependencies_are_made_refused_or_too_many() {
    let made = MemoryEngine::new(Settings { most_dependencies: 2, ..Settings::default() });
    assert!(made.ask("a", &retry()).is_ok());
    assert!(made.ask("b", &retry()).is_ok());
    assert_eq!(made.ask("c", &retry()).unwrap_err(), EngineError::TooManyDependencies);
    assert!(made.ask("a", &retry()).is_ok());
    assert_eq!(made.names(), ["a".into(), "b".into()]);
    assert!(made.snapshot("c").is_none());

    let known = [("a".to_owned(), Arc::default())].into();
    let refusing = Settings { dependencies: known, unknown: Unknown::Refuse, ..Settings::default() };
    let refusing = MemoryEngine::new(refusing);
    assert!(refusing.ask("a", &retry()).is_ok());
    assert_eq!(refusing.ask("b", &retry()).unwrap_err(), EngineError::UnknownDependency);
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_is_dropped_leaves_no_task_behind() {
    let engine = fixed(10.0);
    decide(&engine, &retry());
    let entry = Arc::downgrade(&engine.known(PAYMENTS).unwrap());
    settle().await;
    drop(engine);
    settle().await;
    assert_eq!(entry.strong_count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_changed_policy_and_a_forced_breaker_reach_watchers() {
    let engine = fixed(10.0);
    decide(&engine, &retry());
    let mut changes = engine.changes();
    engine.configure(PAYMENTS, &Arc::default()).unwrap();
    assert!(matches!(changes.recv().await.unwrap(), Change::Dependency { .. }));
    assert!(engine.force_breaker(PAYMENTS, Some(Force::Open)));
    assert!(matches!(changes.recv().await.unwrap(), Change::Breaker { .. }));
    assert!(!engine.force_breaker("unknown", None));
    engine.configure("new", &Arc::default()).unwrap();
    assert!(engine.snapshot("new").is_some());
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_decided_makes_no_dependency() {
    let engine = fixed(10.0);
    for ask in [Ask { cost: 99, ..retry() }, Ask { cost: 0, ..retry() }, Ask { failure: None, ..retry() }] {
        assert!(matches!(engine.ask(PAYMENTS, &ask), Err(EngineError::Ask(_))));
        assert!(matches!(engine.check(PAYMENTS, &ask), Err(EngineError::Ask(_))));
    }
    assert!(engine.check(PAYMENTS, &retry()).is_ok());
    assert!(engine.names().is_empty());
    engine.admit(PAYMENTS).unwrap();
    assert_eq!(engine.names(), [PAYMENTS.into()]);
}

#[tokio::test(start_paused = true)]
async fn in_a_full_table_the_idlest_dependency_makes_room() {
    let known = [("known".to_owned(), Arc::default())].into();
    let settings = Settings { dependencies: known, most_dependencies: 3, ..Settings::default() };
    let engine = MemoryEngine::new(settings);
    for name in ["older", "newer"] {
        engine.ask(name, &retry()).unwrap();
        sleep(Duration::from_secs(400)).await;
    }
    assert!(engine.ask("newcomer", &retry()).is_ok(), "after ten minutes of idleness");
    assert_eq!(engine.names(), ["known".into(), "newcomer".into(), "newer".into()]);
    assert_eq!(engine.ask("another", &retry()).unwrap_err(), EngineError::TooManyDependencies);
}

#[tokio::test(start_paused = true)]
async fn a_shadows_place_in_the_queue_is_served_in_its_time() {
    let engine = engine(|draft| {
        draft.retry.per_s = Some(1.0);
        draft.shadow = Some(true);
    });
    decide(&engine, &retry());
    assert_eq!(decide(&engine, &retry()).decision.would_have_been, Some(Reason::AfterDelay));
    sleep(Duration::from_secs(3)).await;
    let counts = engine.snapshot(PAYMENTS).unwrap().decided;
    assert!(counts.iter().any(|count| (count.reason, count.count) == (Reason::AfterDelay, 1)), "{counts:?}");
    assert!(!counts.iter().any(|count| count.reason == Reason::Expired), "{counts:?}");
}
