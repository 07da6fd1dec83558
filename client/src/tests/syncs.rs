//! The periodic exchange: its pace, and what counts as delivered.

use tracing::Level;

use super::{logs::Logs, *};

/// The waits between the syncs of so long, in which each has this fault.
async fn waits(fault: Fault, span: Duration) -> Vec<Duration> {
    let fake = Fake::new(|_| Step::at_once(Ok(granted())));
    *fake.sync_fault.lock() = Some(fault);
    let damper = client(&fake);
    call(safe(&damper.dependency("d")), vec![]).await.unwrap();
    tokio::time::sleep(span).await;
    let at = fake.synced_at.lock().clone();
    at.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

#[tokio::test(start_paused = true)]
async fn syncs_are_never_faster_for_an_error_than_the_server_allows() {
    let hour = Duration::from_secs(3600);
    for (fault, least_ms, most_ms) in [
        (Fault::Busy(ms(7000)), 7000, 7702),
        (Fault::Busy(ms(0)), 1000, 1102),
        (Fault::Busy(hour), 60_000, 61_002),
        (Fault::Unavailable(ms(1000)), 1000, 1502),
        (Fault::Unavailable(hour), 1000, 1502),
        (Fault::Unavailable(ms(0)), 500, 1002),
        (Fault::Unreachable, 500, 1002),
        (Fault::NoAnswer, 500, 1002),
        (Fault::Rejected(413), 1000, 1002),
    ] {
        let waits = waits(fault, Duration::from_secs(600)).await;
        assert!(waits.len() >= 9, "{fault:?}");
        assert!(waits.iter().all(|wait| (ms(least_ms)..=ms(most_ms)).contains(wait)), "{fault:?}: {waits:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn syncs_that_are_rejected_back_off() {
    for status in [401, 403, 404, 422] {
        let waits = waits(Fault::Rejected(status), Duration::from_secs(3600)).await;
        // An hour of waits that are uniform up to 30 s, after a few shorter ones.
        assert!((180..=320).contains(&waits.len()), "{status}: {}", waits.len());
        assert!(waits.iter().all(|wait| *wait >= ms(1000)), "{status}: {waits:?}");
        assert!(waits[..3].iter().all(|wait| *wait <= ms(4002)), "{status}: {waits:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_result_of_a_probe_does_not_hurry_a_server_that_limits_syncs() {
    let fake = Fake::new(|_| Step::at_once(Ok(answer(Decision::Granted, Reason::Probe))));
    let damper = client(&fake);
    synced(&damper).await;
    *fake.sync_fault.lock() = Some(Fault::Busy(ms(30_000)));
    tokio::time::sleep(ms(2000)).await;
    let syncs = fake.syncs.lock().len();
    for _ in 0..10 {
        call(safe(&damper.dependency("d")), vec![transient()]).await.unwrap();
        tokio::time::sleep(ms(1000)).await;
    }
    assert_eq!(fake.syncs.lock().len(), syncs, "a probe's result waits too");
}

#[tokio::test(start_paused = true)]
async fn what_the_server_keeps_no_record_of_is_not_delivered() {
    let (logs, _guard) = Logs::of_this_thread();
    let fake = Fake::new(|_| Step::at_once(Ok(granted())));
    *fake.refused.lock() = vec!["one too many".to_owned()];
    let damper = client(&fake);
    for name in ["d", "one too many"] {
        call(safe(&damper.dependency(name)), vec![]).await.unwrap();
    }
    for _ in 0..3 {
        damper.flush().await.unwrap_err();
        tokio::time::sleep(ms(1000)).await;
    }
    let acked = |name: &str| {
        let sync = fake.syncs.lock().last().cloned().unwrap();
        sync.dependencies[name].acked.as_ref().map(|acked| acked.logical)
    };
    assert_eq!((acked("d"), acked("one too many")), (Some(1), None));
    assert_eq!(damper.health().server, crate::Reachability::Up);
    let said: Vec<_> = logs.take().into_iter().map(|(level, _)| level).collect();
    assert_eq!(said, [Level::WARN], "said once");

    fake.refused.lock().clear();
    damper.flush().await.unwrap();
    damper.flush().await.unwrap();
    assert_eq!((acked("d"), acked("one too many")), (Some(1), Some(1)));
    assert_eq!(logs.take().len(), 1);

    *fake.refused.lock() = vec!["d".to_owned()];
    call(safe(&damper.dependency("d")), vec![]).await.unwrap();
    let report = damper.shutdown(ms(1000)).await;
    assert_eq!((report.delivered, report.undelivered), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn results_of_probes_wait_for_a_server_that_takes_them() {
    let fake = Fake::new(|_| Step::at_once(Ok(answer(Decision::Granted, Reason::Probe))));
    *fake.refused.lock() = vec!["d".to_owned()];
    let damper = client(&fake);
    call(safe(&damper.dependency("d")), vec![transient()]).await.unwrap();
    let sent = async || {
        let _ = damper.flush().await;
        fake.syncs.lock().last().unwrap().dependencies["d"].probes.clone().unwrap().len()
    };
    assert_eq!((sent().await, sent().await), (1, 1));
    fake.refused.lock().clear();
    assert_eq!((sent().await, sent().await), (1, 0));
}

/// One that was lost must not cut off all that follow.
#[tokio::test(start_paused = true)]
async fn a_server_whose_syncs_are_slow_is_found_again() {
    for slow_ms in [1500, 4900] {
        let fake = Fake::new(|_| Step::at_once(Ok(granted())));
        let damper = client(&fake);
        synced(&damper).await;
        *fake.sync_takes.lock() = Duration::from_secs(3600);
        tokio::time::sleep(ms(20_000)).await;
        assert_eq!(damper.health().server, crate::Reachability::Down, "{slow_ms}");
        *fake.sync_takes.lock() = ms(slow_ms);
        call(safe(&damper.dependency("d")), vec![]).await.unwrap();
        tokio::time::sleep(ms(20_000)).await;
        assert_eq!(damper.health().server, crate::Reachability::Up, "{slow_ms}");
        assert_eq!(damper.dependency("d").pair.handle.core.delivery(), (1, 0), "{slow_ms}");
    }
}

#[tokio::test(start_paused = true)]
async fn most_syncs_are_short_while_the_server_hangs() {
    let fake = Fake::new(|_| Step::at_once(Ok(granted())));
    *fake.sync_takes.lock() = Duration::from_secs(3600);
    let damper = client(&fake);
    call(safe(&damper.dependency("d")), vec![]).await.unwrap();
    tokio::time::sleep(ms(60_000)).await;
    let at = fake.synced_at.lock().clone();
    let waits: Vec<_> = at.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let long: Vec<_> = waits.iter().take(8).map(|wait| *wait >= ms(5000)).collect();
    assert_eq!(long, [true, false, true, false, false, true, false, false], "{waits:?}");
}
