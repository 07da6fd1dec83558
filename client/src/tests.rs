//! Whole operations against a scripted server, under paused time.

mod breakers;
mod deadlines;
mod effects;
mod fleets;
mod leases;
mod lives;
pub(crate) mod logs;
mod nesting;
mod opinions;
mod outages;
mod panics;
mod queries;
mod reconnects;
mod retries;
mod rules;
mod spans;
mod streams;
mod syncs;
mod watch;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use damper_protocol::{
    BreakerState, BreakerVersion, BreakerView, Decision, Dispatch, FailMode, FailureClass, OnOpen,
    PolicyView, Reason, SyncedDependency, Totals,
};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::{
    CallError, Damper, Deadline, Dependency, Failure, Idempotency, Observer, Operation, StopReason,
    core::Switch,
    fake::{Fake, Step, answer, granted},
    transport::{Fault, Transport},
};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn client(fake: &Arc<Fake>) -> Damper {
    Damper::builder("").build_over(Arc::clone(fake) as Arc<dyn Transport>, Switch::On)
}

fn transient() -> Failure {
    Failure::new(FailureClass::Transient)
}

fn safe(dependency: &Dependency) -> Operation {
    dependency.operation("test").idempotency(Idempotency::Safe)
}

/// Fails with these one after the other, then succeeds.
async fn call(operation: Operation, failures: Vec<Failure>) -> Result<u32, CallError<Failure>> {
    let failures = Mutex::new(failures.into_iter());
    operation
        .call(|attempt| {
            let next = failures.lock().next();
            async move { next.map_or(Ok(attempt.number()), Err) }
        })
        .await
}

/// Lets the background tasks have their first sync.
async fn synced(damper: &Damper) {
    safe(&damper.dependency("d")).call(|_| async { Ok::<_, Failure>(()) }).await.unwrap();
    while damper.health().since_sync.is_none() {
        tokio::time::sleep(ms(1)).await;
    }
}

fn told(change: impl FnOnce(&mut SyncedDependency)) -> SyncedDependency {
    let mut told = SyncedDependency::default();
    change(&mut told);
    told
}
