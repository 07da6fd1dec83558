//! The fleet: operations arrive by a plan and are carried out by the clients in turn, whatever their way of retrying.
//!
//! Arrivals do not wait for answers. A fleet whose users keep coming is what makes an overload last; one that
//! waits for its own answers slows itself down and hides it.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::{JoinError, JoinSet};
use tokio::time::{sleep_until, timeout_at};

use crate::measure::Recorder;
use crate::scenario::{Pacing, Traffic};
use crate::stop::Stop;
use crate::ways::{Caller, Operation};

/// How long after its deadline an operation may take to end before it counts as a bug.
const GRACE: Duration = Duration::from_secs(3);

/// How long an interrupted fleet waits for the answers on their way.
const INTERRUPTED_GRACE: Duration = Duration::from_millis(500);

mod dealer;

pub use dealer::{Dealer, Members};

/// The moments at which operations arrive, from the start.
#[derive(Debug)]
pub struct Arrivals {
    /// The rates and when each starts, latest first.
    to_come: Vec<(f64, f64)>,
    pacing: Pacing,
    random: fastrand::Rng,
    from_s: f64,
    gap_s: f64,
    /// Operations since `from_s`.
    count: u64,
    at_s: f64,
}

impl Arrivals {
    /// The arrivals of a fleet; `seed` fixes those that are random.
    #[must_use]
    pub fn new(traffic: &Traffic, seed: u64) -> Self {
        let to_come = traffic.phases.iter().rev().map(|phase| (phase.from_s, phase.arrival_per_s)).collect();
        Self {
            to_come,
            pacing: traffic.pacing,
            random: fastrand::Rng::with_seed(seed),
            from_s: 0.0,
            gap_s: 1.0 / traffic.arrival_per_s,
            count: 0,
            at_s: 0.0,
        }
    }

    fn step(&mut self) -> f64 {
        self.count += 1;
        match self.pacing {
            // Multiplied, not summed: an error in each gap would add up to a wrong rate.
            Pacing::Even => self.from_s + self.gap_s * (self.count - 1) as f64,
            Pacing::Poisson => self.at_s - self.gap_s * (1.0 - self.random.f64()).ln(),
        }
    }
}

impl Iterator for Arrivals {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        loop {
            self.at_s = self.step();
            match self.to_come.last().copied() {
                // An exponential gap has no memory: cutting it off at the change and drawing anew is exact.
                Some((from_s, per_s)) if from_s <= self.at_s => {
                    self.to_come.pop();
                    (self.from_s, self.at_s, self.gap_s, self.count) = (from_s, from_s, 1.0 / per_s, 0);
                }
                _ => return Duration::try_from_secs_f64(self.at_s).ok(),
            }
        }
    }
}

/// Why a fleet did not end as it should: both are bugs.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// An operation panicked.
    #[error("an operation panicked: {0}")]
    Panicked(#[from] JoinError),
    /// Operations outlived their deadline.
    #[error("{0} operations were not over {1:?} after their deadline")]
    Overdue(usize, Duration),
}

/// Lets operations arrive for `duration` after the recorder's start and waits for their ends. Returns how long
/// they arrived.
///
/// # Errors
/// A bug in the load generator or in a client.
pub async fn drive(
    traffic: &Traffic,
    seed: u64,
    duration: Duration,
    callers: &[Arc<Caller>],
    recorder: &Recorder,
    stop: &mut Stop,
) -> Result<Duration, FleetError> {
    let mut operations = JoinSet::new();
    let arrivals = Arrivals::new(traffic, seed).take_while(|at| *at < duration);
    let mut dealer = Dealer::new(traffic, seed);
    for (number, at) in (0_u64..).zip(arrivals) {
        let Some(caller) = dealer.deal(at).and_then(|client| callers.get(client)) else { continue };
        tokio::select! {
            biased;
            () = stop.requested() => break,
            () = sleep_until(recorder.started() + at) => {}
        }
        recorder.offered();
        let operation = Operation::new(number, at, traffic.deadline());
        let caller = Arc::clone(caller);
        operations.spawn(async move { caller.carry_out(&operation).await });
        while let Some(ended) = operations.try_join_next() {
            ended?;
        }
    }
    let arrived = if stop.is_requested() { recorder.now().min(duration) } else { duration };
    tokio::select! {
        ended = drain(&mut operations, traffic.deadline() + GRACE) => ended?,
        () = async { stop.requested().await; tokio::time::sleep(INTERRUPTED_GRACE).await } => {}
    }
    Ok(arrived)
}

async fn drain(operations: &mut JoinSet<()>, patience: Duration) -> Result<(), FleetError> {
    let until = tokio::time::Instant::now() + patience;
    loop {
        match timeout_at(until, operations.join_next()).await {
            Ok(Some(ended)) => ended?,
            Ok(None) => return Ok(()),
            Err(_) => return Err(FleetError::Overdue(operations.len(), GRACE)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Above, Arrival, Assignment};

    fn traffic(pacing: Pacing) -> Traffic {
        Traffic {
            arrival_per_s: 120.0,
            phases: vec![],
            pacing,
            clients: Some(1),
            assignment: Assignment::InTurn,
            tenants: vec![],
            poison_share: 0.0,
            above: Above::Nobody,
            deadline_ms: 1000,
            attempt_timeout_ms: 1000,
        }
    }

    fn within(pacing: Pacing, seed: u64, seconds: u64) -> Vec<Duration> {
        Arrivals::new(&traffic(pacing), seed).take_while(|at| *at < Duration::from_secs(seconds)).collect()
    }

    #[test]
    fn even_arrivals_are_exact_in_every_second() {
        let arrivals = within(Pacing::Even, 1, 60);
        assert_eq!(arrivals.len(), 7200);
        for second in 0..60 {
            assert_eq!(arrivals.iter().filter(|at| at.as_secs() == second).count(), 120, "second {second}");
        }
    }

    #[test]
    fn poisson_arrivals_have_their_rate_and_follow_their_seed() {
        let arrivals = within(Pacing::Poisson, 1, 100);
        assert!((11_560..12_440).contains(&arrivals.len()), "four standard deviations: {}", arrivals.len());
        assert_eq!(arrivals, within(Pacing::Poisson, 1, 100));
        assert_ne!(arrivals, within(Pacing::Poisson, 2, 100));
    }

    #[test]
    fn a_spike_has_its_rate_and_ends() {
        for pacing in [Pacing::Even, Pacing::Poisson] {
            let phase = |from_s, arrival_per_s| Arrival { from_s, arrival_per_s };
            let spiky = Traffic { phases: vec![phase(10.0, 1200.0), phase(20.0, 120.0)], ..traffic(pacing) };
            let arrivals: Vec<Duration> =
                Arrivals::new(&spiky, 1).take_while(|at| at.as_secs() < 30).collect();
            assert!(arrivals.is_sorted());
            for (from, expected) in [(0, 1200), (10, 12_000), (20, 1200)] {
                let count = arrivals.iter().filter(|at| (from..from + 10).contains(&at.as_secs())).count();
                let near = if pacing == Pacing::Even { 0 } else { 450 };
                assert!(count.abs_diff(expected) <= near, "{pacing:?} from {from}: {count}");
            }
        }
    }
}
