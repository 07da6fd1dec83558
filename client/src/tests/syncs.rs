//! The periodic exchange: its pace, and what counts as delivered.

use super::*;

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
