use damper_core::BoundBy;

use super::*;

fn policy(edit: impl FnOnce(&mut PolicyDraft)) -> Arc<Policy> {
    let mut draft = PolicyDraft::default();
    edit(&mut draft);
    Arc::new(Policy::new(&draft).unwrap())
}

fn settings(dependencies: &[(&str, f64)]) -> Settings {
    let named = dependencies
        .iter()
        .map(|(name, per_s)| ((*name).to_owned(), policy(|draft| draft.retry.per_s = Some(*per_s))));
    Settings { dependencies: named.collect(), ..Settings::default() }
}

fn now() -> Ask {
    Ask { max_wait: Some(Span::ZERO), ..retry() }
}

fn grants(engine: &MemoryEngine, dependency: &str) -> usize {
    let granted = |_: &u32| match engine.ask(dependency, &now()).unwrap() {
        Asking::Decided(decided) => decided.decision.verdict == Verdict::Granted,
        Asking::Waiting(_) => panic!("waits"),
    };
    (0..100).filter(granted).count()
}

fn rate(engine: &MemoryEngine, dependency: &str) -> f64 {
    engine.snapshot(dependency).unwrap().pool.rate.as_per_s()
}

#[tokio::test(start_paused = true)]
async fn settings_that_stay_the_same_change_nothing_and_tell_nobody() {
    let file = || settings(&[(PAYMENTS, 10.0)]);
    let engine = MemoryEngine::new(file());
    assert_eq!((grants(&engine, PAYMENTS), grants(&engine, "other")), (1, 1));
    let ticket = wait(&engine, &retry());
    let mut changes = engine.changes();
    for _ in 0..1000 {
        assert!(engine.adopt(file()).is_empty());
        assert_eq!(grants(&engine, PAYMENTS) + grants(&engine, "other"), 0, "no free tokens");
    }
    assert!(changes.try_recv().is_err());
    assert_eq!(ticket.await.unwrap().decision.waited.as_millis(), 100, "it kept its place");
}

#[tokio::test(start_paused = true)]
async fn a_changed_policy_is_live_at_once_for_its_dependency_alone() {
    let engine = MemoryEngine::new(settings(&[("a", 1.0), ("b", 1.0), ("gone", 7.0)]));
    grants(&engine, "made");
    for name in ["a", "b", "gone"] {
        assert_eq!(grants(&engine, name), 1);
    }
    let mut changes = engine.changes();
    let changed = engine.adopt(settings(&[("a", 1.0), ("b", 5.0), ("new", 3.0)]));
    assert_eq!(changed, ["b".into(), "gone".into(), "new".into()]);
    assert_eq!(["a", "b", "new"].map(|name| rate(&engine, name)), [1.0, 5.0, 3.0]);
    let gone = engine.snapshot("gone").unwrap().pool;
    assert_eq!((gone.bound_by, gone.rate.as_per_s()), (BoundBy::Floor, 1.0), "back to the defaults");
    for name in ["a", "b", "gone"] {
        assert_eq!(grants(&engine, name), 0, "{name} was not refilled");
    }
    let told: Vec<Arc<str>> = std::iter::from_fn(|| changes.try_recv().ok())
        .map(|change| Arc::clone(change.dependency()))
        .collect();
    assert_eq!(told, ["b".into(), "gone".into(), "new".into()]);
}

#[tokio::test(start_paused = true)]
async fn changed_defaults_reach_what_is_not_configured() {
    let engine = MemoryEngine::new(settings(&[(PAYMENTS, 10.0)]));
    grants(&engine, "made");
    let defaults = policy(|draft| draft.retry.per_s = Some(0.5));
    let refusing = Settings { defaults, unknown: Unknown::Refuse, ..settings(&[(PAYMENTS, 10.0)]) };
    assert_eq!(engine.adopt(refusing), ["made".into()]);
    assert_eq!((rate(&engine, "made"), rate(&engine, PAYMENTS)), (0.5, 10.0));
    assert_eq!(engine.ask("late", &retry()).unwrap_err(), EngineError::UnknownDependency);
}

#[tokio::test(start_paused = true)]
async fn a_policy_by_hand_is_made_changed_or_there_already() {
    let engine = MemoryEngine::new(Settings { most_dependencies: 1, ..Settings::default() });
    let slow = policy(|draft| draft.retry.per_s = Some(0.5));
    assert_eq!(engine.configure("a", &slow), Ok(Configured::Made));
    assert_eq!(engine.configure("a", &slow), Ok(Configured::Unchanged));
    assert_eq!(engine.configure("a", &Arc::default()), Ok(Configured::Changed));
    assert_eq!(engine.configure("b", &slow), Err(EngineError::TooManyDependencies));
    assert!(engine.forget("a"));
    assert_eq!(engine.configure("b", &slow), Ok(Configured::Made), "there is room again");
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_a_dependency_that_is_forgotten_is_answered() {
    let engine = fixed(10.0);
    decide(&engine, &retry());
    let asks = ["a", "a", "b"].map(|id| Ask { request_id: Some(id.into()), ..retry() });
    let tickets = asks.map(|ask| wait(&engine, &ask));
    let entry = Arc::downgrade(&engine.known(PAYMENTS).unwrap());
    let mut changes = engine.changes();
    let started = Instant::now();
    assert!(engine.forget(PAYMENTS));
    for ticket in tickets {
        let decided = timeout(Duration::from_secs(1), ticket).await.expect("answered").unwrap();
        assert_eq!(decided.decision.reason, Reason::NoCapacityBeforeDeadline);
        assert_eq!((decided.decision.verdict, decided.token), (Verdict::Shed, None));
    }
    assert_eq!(started.elapsed(), Duration::ZERO);
    assert!(matches!(changes.try_recv(), Ok(Change::Dependency { dependency }) if &*dependency == PAYMENTS));
    assert!(changes.try_recv().is_err(), "watchers are told once");
    settle().await;
    assert_eq!(entry.strong_count(), 0, "nothing holds it any more");
    assert!(!engine.forget(PAYMENTS));
    assert!(engine.snapshot(PAYMENTS).is_none() && engine.names().is_empty());
}

#[tokio::test(start_paused = true)]
async fn tokens_stay_valid_for_their_own_dependency_and_for_no_other() {
    let engine = fixed(10.0);
    let [first, gone, last] =
        ["first", "gone", "last"].map(|name| match engine.ask(name, &retry()).unwrap() {
            Asking::Decided(decided) => decided.token.unwrap(),
            Asking::Waiting(_) => panic!("waits"),
        });
    assert!(engine.forget("gone"));
    assert_eq!(grants(&engine, "gone"), 1, "no more than a fresh start");
    assert_eq!(grants(&engine, "new"), 1);
    assert!(!engine.return_token(&gone));
    assert!(engine.return_token(&first) && engine.return_token(&last));
    let returned = |name| engine.snapshot(name).unwrap().pool.returned.as_tokens();
    assert_eq!(["first", "last", "gone", "new"].map(returned), [1.0, 1.0, 0.0, 0.0]);
}

#[tokio::test(start_paused = true)]
async fn whoever_holds_a_forgotten_dependency_meets_its_successor() {
    let engine = fixed(10.0);
    decide(&engine, &retry());
    let held = engine.known(PAYMENTS).unwrap();
    let holders = Arc::strong_count(&held);
    let mut guarded = held.guarded.lock();
    let asking = std::thread::spawn({
        let (engine, runtime) = (engine.clone(), tokio::runtime::Handle::current());
        move || {
            let _inside = runtime.enter();
            decide(&engine, &now())
        }
    });
    while Arc::strong_count(&held) == holders {
        std::thread::yield_now();
    }
    // It has looked the name up and waits for the lock, as when another thread forgets the dependency.
    engine.0.table.write().remove(PAYMENTS);
    guarded.gone = true;
    drop(guarded);
    assert_eq!(asking.join().unwrap().decision.reason, Reason::WithinBudget, "of a new pool");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_name_that_comes_and_goes_leaves_nobody_without_an_answer() {
    let engine = fixed(1.0);
    let asking = (0..4).map(|_| {
        let engine = engine.clone();
        tokio::spawn(async move {
            for _ in 0..200 {
                match engine.ask(PAYMENTS, &retry()).unwrap() {
                    Asking::Decided(_) => {}
                    Asking::Waiting(ticket) => drop(ticket.await.unwrap()),
                }
            }
        })
    });
    let asking: Vec<_> = asking.collect();
    let started = Instant::now();
    while !asking.iter().all(tokio::task::JoinHandle::is_finished) && started.elapsed().as_secs() < 30 {
        let _ = engine.forget(PAYMENTS);
        tokio::task::yield_now().await;
    }
    for task in asking {
        timeout(Duration::from_secs(60), task).await.expect("someone waits for what is gone").unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn the_breaker_of_a_name_never_counts_back_however_often_it_is_forgotten() {
    let per_tenant = |draft: &mut PolicyDraft| draft.breaker.scope = Some(damper_core::Scope::Tenant);
    for defaults in [policy(|_| {}), policy(per_tenant)] {
        let engine = MemoryEngine::new(Settings { defaults, ..Settings::default() });
        let mut seen = 0;
        for round in 0..5 {
            decide(&engine, &Ask { tenant: "checkout".into(), ..now() });
            let breaker = |engine: &MemoryEngine| engine.watched(PAYMENTS, Some("checkout")).unwrap().breaker;
            let new = breaker(&engine);
            assert!(new.version > seen && new.state == BreakerState::Closed, "{round}: {new:?} after {seen}");
            for force in [Force::Open, Force::Closed, Force::Open].into_iter().take(round) {
                assert!(engine.force_breaker(PAYMENTS, Some(force)));
            }
            seen = breaker(&engine).version;
            assert_eq!(seen, new.version + round.min(3) as u64);
            assert!(engine.forget(PAYMENTS));
            let told = engine.unused().breaker;
            assert!(told.version > seen && told.state == BreakerState::Closed, "{told:?}");
        }
    }
}

/// Time may turn a breaker half-open in the very moment in which its dependency is forgotten.
#[tokio::test(start_paused = true)]
async fn what_the_last_moment_brings_is_outdated_too() {
    let engine = fixed(10.0);
    let opened = sync(&engine, failures(100)).breaker;
    assert_eq!(opened.state, BreakerState::Open);
    // The clock alone: nobody tends the dependency before it is forgotten.
    let mut later = std::pin::pin!(tokio::time::advance(Duration::from_secs(40)));
    std::future::poll_fn(|context| {
        let _ = later.as_mut().poll(context);
        Poll::Ready(())
    })
    .await;
    assert!(engine.forget(PAYMENTS));
    assert_eq!(engine.unused().breaker.version, opened.version + 2, "it was half-open between");
}
