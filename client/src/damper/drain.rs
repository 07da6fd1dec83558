//! The end of a client: what is in flight is waited for, and what it brings is delivered.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use crate::{
    core::{Core, Switch},
    transport::Fault,
};

/// How soon to look again at first; each wait is twice the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(20);

/// How soon to look again at the latest.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// How soon to report again to a server that rejects reports: a mistake in the set-up, which no haste mends.
const REJECTED: Duration = Duration::from_secs(1);

/// Delivers until nothing is in flight and the server has confirmed all there is, or `limit` is over.
pub(super) async fn drain(core: &Core, limit: Duration) {
    let _ = timeout(limit, settle(core, limit)).await;
}

async fn settle(core: &Core, limit: Duration) {
    let start = Instant::now();
    let mut pause = FIRST_PAUSE;
    let mut refused_for = deliver(core).await;
    while !is_settled(core) {
        let left = limit.saturating_sub(start.elapsed());
        // More often towards the end, so that what comes late is delivered too.
        sleep(pause.min(left / 2).max(FIRST_PAUSE).max(refused_for)).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
        if core.delivery().1 > 0 {
            refused_for = deliver(core).await;
        }
    }
}

/// Returns for how long the server must be left alone.
async fn deliver(core: &Core) -> Duration {
    if core.switch == Switch::Inert {
        return Duration::ZERO;
    }
    match core.sync().await {
        Err(Fault::Busy(pause)) => pause.max(REJECTED),
        Err(Fault::Rejected(_)) => REJECTED,
        _ => Duration::ZERO,
    }
}

fn is_settled(core: &Core) -> bool {
    in_flight(core) == 0 && core.delivery().1 == 0
}

/// Attempts that have started and not ended.
pub(super) fn in_flight(core: &Core) -> u64 {
    core.all_dependencies().iter().map(|dependency| dependency.counts.in_flight()).sum()
}
