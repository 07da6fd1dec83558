//! How clients and operations begin and end.

use tracing::Level;

use super::{logs::Logs, *};

#[tokio::test(start_paused = true)]
async fn a_dropped_future_returns_its_token_and_counts_as_abandoned() {
    let fake = Fake::new(|_| Step::at_once(Ok(granted())));
    let dependency = client(&fake).dependency("d");
    let mut abandoned = 0;
    while fake.returned.lock().is_empty() && abandoned < 50 {
        // The grant comes at once and the backoff is waited out with the token in hand.
        let operation = call(safe(&dependency), vec![transient()]);
        if tokio::time::timeout(ms(1), operation).await.is_err() {
            abandoned += 1;
        }
        tokio::time::sleep(ms(1)).await;
    }
    assert_eq!(fake.returned.lock().clone(), ["token"]);
    assert_eq!(dependency.totals().abandoned, abandoned);
    assert_eq!(dependency.in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_future_dropped_in_an_attempt_is_abandoned_and_no_failure() {
    let dependency = client(&Fake::dead()).dependency("d");
    let operation = dependency.operation("slow").call(|_| std::future::pending::<Result<(), Failure>>());
    assert!(tokio::time::timeout(ms(10), operation).await.is_err());
    let totals = dependency.totals();
    assert_eq!(totals, Totals { logical: 1, physical: 1, abandoned: 1, ..Totals::default() });
    assert_eq!(dependency.in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn syncs_carry_the_last_acknowledged_totals_as_the_baseline() {
    let fake = Fake::new(|_| Step::at_once(Ok(granted())));
    let damper = client(&fake);
    let dependency = damper.dependency("d");
    let once = async || call(safe(&dependency), vec![]).await.unwrap();
    once().await;
    damper.flush().await.unwrap();
    *fake.told.lock() = None;
    once().await;
    damper.flush().await.unwrap_err();
    *fake.told.lock() = Some(SyncedDependency::default());
    *fake.epoch.lock() = "e2".to_owned();
    once().await;
    damper.flush().await.unwrap();
    damper.flush().await.unwrap();
    let syncs = fake.syncs.lock().clone();
    let seen: Vec<_> = syncs
        .iter()
        .map(|sync| {
            let report = &sync.dependencies["d"];
            let acked = report.acked.as_ref().map(|acked| acked.logical);
            (sync.epoch.as_deref(), report.totals.logical, acked)
        })
        .collect();
    let expected =
        [(None, 1, None), (Some("e1"), 2, Some(1)), (Some("e1"), 3, Some(1)), (Some("e2"), 3, Some(3))];
    let flushed: Vec<_> = seen.into_iter().collect();
    for step in expected {
        assert!(flushed.contains(&step), "{step:?} is not in {flushed:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn shutdown_delivers_stops_retries_and_can_be_repeated() {
    let fake = Fake::new(|_| Step::at_once(Ok(granted())));
    let damper = client(&fake);
    let dependency = damper.dependency("d");
    call(safe(&dependency), vec![]).await.unwrap();
    let report = damper.shutdown(ms(1000)).await;
    assert_eq!((report.delivered, report.undelivered, report.in_flight), (1, 0, 0));
    let late = call(safe(&dependency), vec![transient()]).await.unwrap_err();
    assert_eq!(late.reason, StopReason::ShutDown);
    let syncs = fake.syncs.lock().len();
    tokio::time::sleep(ms(10_000)).await;
    assert_eq!(fake.syncs.lock().len(), syncs, "no task is left");
    let report = damper.shutdown(ms(1000)).await;
    assert_eq!((report.delivered, report.undelivered), (1, 0));
    assert_eq!(fake.syncs.lock().last().unwrap().dependencies["d"].totals.logical, 2);
}

/// What loops of short attempts have in flight when the service goes is waited for, and reported.
#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_what_is_in_flight_and_delivers_it() {
    let fake = Fake::new(|_| Step::at_once(Ok(granted())));
    *fake.sync_takes.lock() = ms(1);
    let damper = client(&fake);
    let dependency = damper.dependency("d");
    synced(&damper).await;
    let loops = (4..=7).map(|takes| {
        let dependency = dependency.clone();
        tokio::spawn(async move {
            let mut made = 0;
            while made < 60 {
                let attempt = |_| async move {
                    tokio::time::sleep(ms(takes)).await;
                    Ok::<_, Failure>(())
                };
                safe(&dependency).call(attempt).await.unwrap();
                made += 1;
            }
        })
    });
    let loops: Vec<_> = loops.collect();
    tokio::time::sleep(ms(50)).await;
    let start = Instant::now();
    let report = damper.shutdown(ms(1000)).await;
    assert_eq!((report.delivered, report.undelivered, report.in_flight), (1, 0, 0));
    assert!(loops.iter().all(tokio::task::JoinHandle::is_finished), "it waited for all of them");
    assert!(start.elapsed() < ms(700), "and no longer: {:?}", start.elapsed());
    assert_eq!(fake.syncs.lock().last().unwrap().dependencies["d"].totals.success, 241);
    assert!(fake.syncs.lock().len() < 12, "{} reports", fake.syncs.lock().len());
}

#[tokio::test(start_paused = true)]
async fn at_its_limit_a_shutdown_says_what_is_left() {
    let fake = Fake::new(|_| Step::at_once(Ok(granted())));
    let damper = client(&fake);
    let dependency = damper.dependency("d");
    let slow = safe(&dependency);
    let attempt = tokio::spawn(async move {
        slow.call(|_| async {
            tokio::time::sleep(ms(1500)).await;
            Ok::<_, Failure>(())
        })
        .await
    });
    tokio::time::sleep(ms(10)).await;
    let start = Instant::now();
    let report = damper.shutdown(ms(1000)).await;
    assert_eq!((report.delivered, report.undelivered, report.in_flight), (1, 0, 1));
    assert!((ms(1000)..=ms(1001)).contains(&start.elapsed()), "{:?}", start.elapsed());
    attempt.await.unwrap().unwrap();
    let report = damper.shutdown(ms(1000)).await;
    assert_eq!((report.delivered, report.undelivered, report.in_flight), (1, 0, 0));
    assert_eq!(fake.syncs.lock().last().unwrap().dependencies["d"].totals.success, 1);
}

/// A server that is not there, or limits this client, is not hammered while a shutdown waits for it.
#[tokio::test(start_paused = true)]
async fn a_shutdown_delivers_to_a_server_that_comes_back_and_hurries_none() {
    let faults = [(Fault::Unreachable, 20), (Fault::Busy(ms(4000)), 2), (Fault::Rejected(403), 10)];
    for (fault, most) in faults {
        let fake = Fake::new(|_| Step::at_once(Ok(granted())));
        *fake.sync_fault.lock() = Some(fault);
        let damper = client(&fake);
        call(safe(&damper.dependency("d")), vec![]).await.unwrap();
        let shutdown = tokio::spawn(async move { damper.shutdown(Duration::from_secs(10)).await });
        tokio::time::sleep(ms(3000)).await;
        assert!((1..=most).contains(&fake.syncs.lock().len()), "{fault}: {}", fake.syncs.lock().len());
        *fake.sync_fault.lock() = None;
        let report = shutdown.await.unwrap();
        assert_eq!((report.delivered, report.undelivered), (1, 0), "{fault}");
    }
}

#[test]
fn outside_a_runtime_nothing_is_delivered_and_nothing_panics() {
    let fake = Fake::new(|_| Step::at_once(Ok(granted())));
    let damper = client(&fake);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        *fake.told.lock() = None;
        call(safe(&damper.dependency("d")), vec![]).await.unwrap();
    });
    drop(runtime);
    *fake.told.lock() = Some(SyncedDependency::default());
    assert_eq!(futures_util::FutureExt::now_or_never(damper.flush()), Some(Err(crate::FlushError)));
    let report = futures_util::FutureExt::now_or_never(damper.shutdown(ms(1000))).unwrap();
    assert_eq!((report.delivered, report.undelivered, report.in_flight), (0, 1, 0));
    assert_eq!(futures_util::FutureExt::now_or_never(Damper::inert().flush()), Some(Ok(())));
}

#[tokio::test(start_paused = true)]
async fn the_tasks_end_with_the_last_handle_and_deliver_what_is_left() {
    let fake = Fake::new(|_| Step::at_once(Ok(granted())));
    let damper = client(&fake);
    let dependency = damper.dependency("d");
    call(safe(&dependency), vec![]).await.unwrap();
    tokio::time::sleep(ms(10)).await;
    call(safe(&dependency), vec![]).await.unwrap();
    drop(damper);
    tokio::time::sleep(ms(10)).await;
    assert_eq!(fake.syncs.lock().len(), 1, "the dependency is a handle too");
    drop(dependency);
    tokio::time::sleep(ms(60_000)).await;
    assert_eq!(fake.syncs.lock().len(), 2);
    assert_eq!(fake.syncs.lock()[1].dependencies["d"].totals.logical, 2);
}

#[test]
fn tasks_start_again_when_their_runtime_has_gone() {
    let fake = Fake::new(|_| Step::at_once(Ok(granted())));
    let damper = client(&fake);
    for _ in 0..2 {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        runtime.unwrap().block_on(async {
            let syncs = fake.syncs.lock().len();
            call(safe(&damper.dependency("d")), vec![]).await.unwrap();
            tokio::time::sleep(ms(10)).await;
            assert!(fake.syncs.lock().len() > syncs);
        });
    }
}

#[tokio::test(start_paused = true)]
async fn the_switches_turn_retries_off() {
    for switch in [Switch::NoRetry, Switch::Inert] {
        let fake = Fake::new(|_| Step::at_once(Ok(granted())));
        let damper = Damper::builder("").build_over(Arc::clone(&fake) as Arc<dyn Transport>, switch);
        let dependency = damper.dependency("d");
        let error = call(safe(&dependency), vec![transient()]).await.unwrap_err();
        assert_eq!((error.reason, error.attempts), (StopReason::RetriesOff, 1));
        tokio::time::sleep(ms(10)).await;
        assert!(fake.asks.lock().is_empty());
        assert_eq!(fake.syncs.lock().is_empty(), switch == Switch::Inert);
        assert!(damper.health().retries_off);
    }
}

#[tokio::test(start_paused = true)]
async fn a_dependency_that_cannot_be_named_gets_one_attempt_and_is_not_reported() {
    let fake = Fake::new(|_| Step::at_once(Ok(granted())));
    let damper = client(&fake);
    let error = call(safe(&damper.dependency("a\nb")), vec![transient()]).await.unwrap_err();
    assert_eq!(error.reason, StopReason::RetriesOff);
    damper.flush().await.unwrap();
    assert!(fake.syncs.lock().iter().all(|sync| sync.dependencies.is_empty()));
}

#[test]
fn outside_a_runtime_there_is_one_attempt() {
    let dependency = client(&Fake::dead()).dependency("d");
    let call = call(safe(&dependency), vec![transient()]);
    let error = futures_util::FutureExt::now_or_never(call).unwrap().unwrap_err();
    assert_eq!((error.reason, error.attempts), (StopReason::RetriesOff, 1));
}

#[test]
fn a_call_can_be_spawned() {
    fn is_send(_: &impl Send) {}
    let dependency = Damper::inert().dependency("d");
    is_send(&dependency.operation("o").call(|_| async { Ok::<_, Failure>(()) }));
    is_send(&dependency.pair.handle);
}

/// Two operations that wait for a retry, one asleep and one for the server's decision, and one in an attempt that
/// takes ten seconds.
async fn three_under_way(dependency: &Dependency) -> [tokio::task::JoinHandle<StopReason>; 3] {
    let waiting = |failure: Failure| {
        let operation = call(safe(dependency), vec![failure]);
        tokio::spawn(
            async move { operation.await.map_or_else(|error| error.reason, |_| StopReason::Expired) },
        )
    };
    let asking = waiting(transient());
    tokio::time::sleep(ms(10)).await;
    let asleep = waiting(transient().with_retry_after(ms(5000)));
    let operation = safe(dependency);
    let running = tokio::spawn(async move {
        let attempt = operation.call(|_| async {
            tokio::time::sleep(ms(9000)).await;
            Err::<(), _>(transient())
        });
        attempt.await.unwrap_err().reason
    });
    tokio::time::sleep(ms(500)).await;
    [asleep, asking, running]
}

/// A server that grants after a second in the queue.
fn slow() -> Arc<Fake> {
    Fake::new(|_| Step { decided_after: ms(1000), ..Step::at_once(Ok(granted())) })
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_in_no_time_says_what_it_leaves_behind() {
    let fake = slow();
    *fake.sync_takes.lock() = ms(1);
    let damper = client(&fake);
    let dependency = damper.dependency("d");
    let under_way = three_under_way(&dependency).await;
    call(safe(&dependency), vec![]).await.unwrap();
    let asks = fake.asks.lock().len();
    let report = damper.shutdown(Duration::ZERO).await;
    let expected = crate::ShutdownReport { delivered: 0, undelivered: 1, abandoned: 2, in_flight: 1 };
    assert_eq!(report, expected);
    for operation in under_way {
        assert_eq!(operation.await.unwrap(), StopReason::ShutDown);
    }
    assert_eq!((fake.asks.lock().len(), fake.returned.lock().len()), (asks, 0), "the one ask was left");
    assert_eq!(dependency.totals().physical, 4, "no retry");
    let report = damper.shutdown(ms(1000)).await;
    let expected = crate::ShutdownReport { delivered: 1, undelivered: 0, abandoned: 0, in_flight: 0 };
    assert_eq!(report, expected);
}

#[tokio::test(start_paused = true)]
async fn what_was_delivered_before_a_shutdown_stays_delivered() {
    let fake = Fake::new(|_| Step::at_once(Ok(granted())));
    let damper = client(&fake);
    call(safe(&damper.dependency("d")), vec![]).await.unwrap();
    damper.flush().await.unwrap();
    *fake.sync_takes.lock() = Duration::from_secs(3600);
    let report = damper.shutdown(Duration::ZERO).await;
    assert_eq!((report.delivered, report.undelivered), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_flush_takes_five_seconds_at_most() {
    let fake = Fake::new(|_| Step::at_once(Ok(granted())));
    *fake.sync_takes.lock() = ms(4000);
    let damper = client(&fake);
    call(safe(&damper.dependency("d")), vec![]).await.unwrap();
    // The sync of the background is under way, and goes first.
    tokio::time::sleep(ms(100)).await;
    let start = Instant::now();
    damper.flush().await.unwrap_err();
    assert!(start.elapsed() <= ms(5001), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn the_kill_switch_stops_retries_that_wait_and_can_be_turned_back() {
    let fake = slow();
    let damper = client(&fake);
    let dependency = damper.dependency("d");
    let under_way = three_under_way(&dependency).await;
    damper.set_retries(false);
    assert!(damper.health().retries_off);
    let (asks, start) = (fake.asks.lock().len(), Instant::now());
    for operation in under_way {
        let in_attempt = start.elapsed() > ms(0);
        assert_eq!(operation.await.unwrap(), StopReason::RetriesOff);
        assert!(!in_attempt, "nobody waits for what does not come");
    }
    let error = call(safe(&dependency), vec![transient()]).await.unwrap_err();
    assert_eq!((error.reason, error.attempts), (StopReason::RetriesOff, 1));
    assert_eq!((fake.asks.lock().len(), fake.returned.lock().len()), (asks, 0), "nobody asks, or is granted");
    assert_eq!(dependency.totals().physical, 4, "no retry");
    damper.flush().await.unwrap();
    damper.set_retries(true);
    assert!(!damper.health().retries_off);
    assert_eq!(call(safe(&dependency), vec![transient()]).await.unwrap(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_kill_switch_turns_nothing_on_that_the_environment_turned_off() {
    let fake = Fake::new(|_| Step::at_once(Ok(granted())));
    let damper = Damper::builder("").build_over(Arc::clone(&fake) as Arc<dyn Transport>, Switch::NoRetry);
    damper.set_retries(true);
    let error = call(safe(&damper.dependency("d")), vec![transient()]).await.unwrap_err();
    assert_eq!(error.reason, StopReason::RetriesOff);
    assert!(damper.health().retries_off);
}

#[tokio::test(start_paused = true)]
async fn the_table_of_dependencies_is_bounded_with_one_line_about_more() {
    let (logs, _guard) = Logs::of_this_thread();
    let fake = Fake::new(|_| Step::at_once(Ok(granted())));
    let damper = client(&fake);
    let all: Vec<_> =
        (0..crate::MAX_DEPENDENCIES).map(|number| damper.dependency(&format!("d{number}"))).collect();
    for _ in 0..3 {
        let more = damper.dependency("one more");
        let error = call(safe(&more), vec![transient()]).await.unwrap_err();
        assert_eq!((error.reason, more.totals().physical), (StopReason::RetriesOff, 1));
    }
    damper.flush().await.unwrap();
    assert_eq!(fake.syncs.lock().last().unwrap().dependencies.len(), all.len());
    assert_eq!(call(safe(&damper.dependency("d0")), vec![transient()]).await.unwrap(), 2);
    let said: Vec<_> = logs.take().into_iter().map(|(level, _)| level).collect();
    assert_eq!(said, [Level::ERROR]);
}

#[test]
fn names_that_cannot_be_one_are_logged_once_and_not_without_end() {
    let (logs, _guard) = Logs::of_this_thread();
    let damper = Damper::inert();
    for _ in 0..3 {
        let _ = damper.dependency("a\nb");
        let _ = damper.dependency(&"x".repeat(1_000_000));
    }
    assert_eq!(logs.take().len(), 2);
    for number in 0..1000 {
        let _ = damper.dependency(&format!("\n{number}"));
    }
    assert_eq!(logs.take().len(), 99, "up to a hundred, and that there will be no more");
}

/// Being dropped because somebody else panicked is no failure.
#[tokio::test(start_paused = true)]
async fn only_a_panic_of_its_own_counts_against_an_operation() {
    let dependency = client(&Fake::dead()).dependency("d");
    for (own, fatal, abandoned) in [(false, 0, 1), (true, 1, 1)] {
        let of = dependency.clone();
        let task = tokio::spawn(async move {
            let hung = safe(&of).call(|_| async move {
                tokio::time::sleep(ms(10)).await;
                assert!(!own, "a bug of its own");
                std::future::pending::<Result<(), Failure>>().await
            });
            let beside = async {
                tokio::time::sleep(ms(20)).await;
                panic!("a bug of somebody else");
            };
            tokio::join!(hung, beside).0
        });
        assert!(task.await.is_err());
        let totals = dependency.totals();
        assert_eq!((totals.failures.fatal, totals.abandoned, dependency.in_flight()), (fatal, abandoned, 0));
    }
}

/// What it holds, it holds no longer than it runs.
#[tokio::test(start_paused = true)]
async fn nothing_of_an_attempt_outlives_its_timeout() {
    let fake = Fake::new(|_| Step::at_once(Ok(granted())));
    let dependency = client(&fake).dependency("d");
    let connection = Arc::new(());
    let held = |connection: &Arc<()>| Arc::strong_count(connection) > 1;
    let outcome = dependency.operation("charge").attempt_timeout(ms(200)).call_queried(
        |_| {
            let connection = Arc::clone(&connection);
            async move {
                let _held = connection;
                std::future::pending::<Result<(), Failure>>().await
            }
        },
        |_| {
            assert!(!held(&connection), "while somebody asks what became of it");
            std::future::ready(crate::Effect::Done(()))
        },
    );
    outcome.await.unwrap();
}

/// A service that drains: what its client knew when it was shut down gets older and never better.
#[tokio::test(start_paused = true)]
async fn a_client_that_is_shut_down_holds_no_first_attempt_up() {
    let closed = damper_protocol::FirstAttempts {
        per_s: 0.0,
        burst: 0.0,
        ttl_ms: 600_000,
        safe_per_s: 0.0,
        safe_for_ms: None,
    };
    let open = BreakerView { state: BreakerState::Open, version: 2, open_for_ms: 600_000 };
    for (first, breaker) in [(Some(closed), BreakerView::default()), (None, open), (Some(closed), open)] {
        let fake = Fake::new(|_| Step::at_once(Ok(granted())));
        let damper = client(&fake);
        synced(&damper).await;
        *fake.told.lock() = Some(told(|told| (told.first, told.breaker) = (first, breaker)));
        damper.flush().await.unwrap();
        let dependency = damper.dependency("d");
        let waits = tokio::spawn(call(safe(&dependency).deadline(ms(60_000)), vec![]));
        tokio::time::sleep(ms(100)).await;
        assert_eq!(dependency.totals().physical, 1, "held up until then");
        let start = Instant::now();
        damper.shutdown(ms(1000)).await;
        let waited = waits.await.unwrap();
        assert!(waited.is_ok() || breaker.state == BreakerState::Open, "{waited:?}");
        for _ in 0..10 {
            assert_eq!(call(safe(&dependency), vec![]).await.unwrap(), 1);
        }
        assert!(start.elapsed() <= ms(1000), "{:?}", start.elapsed());
    }
}
