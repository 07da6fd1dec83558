//! C7: a real server that goes away in every way, and comes back.

use std::{sync::Arc, time::Instant};

use damper_client::{CallError, Dependency, Observer, Reason, StopReason};
use tokio::time::Duration;

use super::*;
use crate::{
    peer::{Manner, Peer},
    process::Process,
};

const SERVER: &str = "[dependencies.open]\nmax_attempts = 3\n[dependencies.open.retry]\nper_s = 100000\n\
    burst = 100000\n[dependencies.open.breaker]\nmin_volume = 1000000\n\
    [dependencies.closed]\nfail_mode = \"closed\"\n[dependencies.closed.retry]\nper_s = 100000\nburst = 100000\n\
    [dependencies.closed.breaker]\nmin_volume = 1000000\n";

/// How the server goes.
#[derive(Clone, Copy, Debug)]
enum Outage {
    /// Nobody listens.
    Killed,
    /// It is there, and asleep.
    Stopped,
    /// Something else has its address.
    Replaced(Manner),
}

/// Counts the grants of the server.
struct Grants(Arc<std::sync::atomic::AtomicU64>);

impl Observer for Grants {
    fn granted(&self, _: &str, _: Reason, _: Duration) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}

async fn succeeds(dependency: &Dependency) {
    dependency.operation("get").call(|_| async { Ok::<_, Failure>(()) }).await.unwrap();
}

/// Fails at first.
async fn stumbles(dependency: &Dependency) -> Result<(), CallError<Failure>> {
    let operation =
        dependency.operation("get").idempotency(Idempotency::Safe).profile(Profile::interactive());
    let attempt = |attempt: damper_client::Attempt| async move {
        if attempt.number() == 1 { Err(Failure::new(FailureClass::Transient)) } else { Ok(()) }
    };
    operation.deadline(Deadline::after(Duration::from_secs(60))).call(attempt).await
}

/// Operations go on while there is no server; returns the peer's count of asks after the breaker has opened.
async fn endure(damper: &Damper, open: &Dependency, closed: &Dependency, outage: Outage) {
    let (before, start) = (open.totals(), Instant::now());
    let mut last = None;
    for _ in 0..200 {
        succeeds(open).await;
        if let Err(error) = stumbles(open).await {
            assert_eq!(error.reason, StopReason::EmergencyExhausted, "{outage:?}");
        }
        let error = stumbles(closed).await.unwrap_err();
        assert!(
            matches!(error.reason, StopReason::FailClosed | StopReason::CircuitOpen),
            "{outage:?}: {error}"
        );
        assert_eq!(error.attempts, 1);
        last = Some(error.reason);
        if last == Some(StopReason::CircuitOpen) {
            break;
        }
    }
    assert_eq!(
        last,
        Some(StopReason::CircuitOpen),
        "{outage:?}: the breaker towards the server has not opened"
    );
    eventually(async || damper.health().server == Reachability::Down).await;
    let totals = open.totals();
    let (retries, emergency) = (totals.physical - totals.logical, totals.emergency - before.emergency);
    assert_eq!(retries - (before.physical - before.logical), emergency, "{outage:?}");
    let most = start.elapsed().as_secs() + 2;
    assert!(emergency <= most, "{outage:?}: {emergency} emergency retries");
    assert_eq!(
        totals.success - before.success,
        totals.logical - before.logical - (totals.shed - before.shed)
    );
    assert_eq!(closed.totals().emergency, 0);
}

/// An open breaker towards the server costs no request; one probe in 30 s is none to speak of.
async fn costs_nothing(open: &Dependency, closed: &Dependency, peer: Option<&Peer>) {
    let (before, start) = (peer.map_or(0, Peer::asks), Instant::now());
    for _ in 0..50 {
        let _ = stumbles(open).await;
        let _ = stumbles(closed).await;
    }
    let asks = peer.map_or(0, Peer::asks) - before;
    let probes = 2 * (1 + start.elapsed().as_secs() / 30);
    assert!(asks <= probes, "{asks} asks of 100 operations");
}

async fn goes_and_comes_back(outage: Outage) {
    let grants = Arc::default();
    let mut server = Process::start(SERVER);
    let builder = Damper::builder(server.url()).client_id("c").observer(Grants(Arc::clone(&grants)));
    // On a busy machine 20 ms are no outage.
    let damper = builder.answer_within(Duration::from_millis(200)).build().unwrap();
    let (open, closed) = (damper.dependency("open"), damper.dependency("closed"));
    succeeds(&open).await;
    succeeds(&closed).await;
    eventually(async || damper.health().server == Reachability::Up && damper.health().watching).await;
    eventually(async || stumbles(&closed).await.is_ok()).await;

    let peer = match outage {
        Outage::Stopped => {
            server.stop();
            None
        }
        Outage::Killed => {
            server.kill();
            None
        }
        Outage::Replaced(manner) => {
            server.kill();
            Some(Peer::start(server.address(), manner).await)
        }
    };
    endure(&damper, &open, &closed, outage).await;
    costs_nothing(&open, &closed, peer.as_ref()).await;
    drop(peer);
    match outage {
        Outage::Stopped => server.go_on(),
        Outage::Killed | Outage::Replaced(_) => server.start_again(),
    }
    let (start, granted) = (Instant::now(), grants.load(std::sync::atomic::Ordering::Relaxed));
    eventually(async || stumbles(&closed).await.is_ok()).await;
    println!(
        "{outage:?}: the server's first grant came {:.2} s after its start",
        start.elapsed().as_secs_f64()
    );
    assert!(grants.load(std::sync::atomic::Ordering::Relaxed) > granted);
    eventually(async || damper.health().server == Reachability::Up).await;
    damper.flush().await.unwrap();
}

#[tokio::test]
async fn c7_killed() {
    goes_and_comes_back(Outage::Killed).await;
}

#[tokio::test]
async fn c7_stopped() {
    goes_and_comes_back(Outage::Stopped).await;
}

#[tokio::test]
async fn c7_replaced_by_one_that_never_answers() {
    goes_and_comes_back(Outage::Replaced(Manner::Hangs)).await;
}

#[tokio::test]
async fn c7_replaced_by_one_that_drips() {
    goes_and_comes_back(Outage::Replaced(Manner::Drips)).await;
}

#[tokio::test]
async fn c7_replaced_by_one_that_talks_garbage() {
    goes_and_comes_back(Outage::Replaced(Manner::Babbles)).await;
}

#[tokio::test]
async fn c7_replaced_by_one_that_answers_503() {
    goes_and_comes_back(Outage::Replaced(Manner::Declines)).await;
}
