//! The recorder that the fleet and the dependency share.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::{ATTEMPT_BUCKETS, Answer, Outcome, Refusal, Second};

#[derive(Debug, Default)]
struct Records {
    seconds: Vec<Second>,
    reasons: BTreeMap<String, u64>,
    arrivals: Vec<Duration>,
    retries: Vec<Vec<u64>>,
}

/// Counts what happens, by the second.
#[derive(Debug)]
pub struct Recorder {
    started: Instant,
    records: Mutex<Records>,
}

impl Default for Recorder {
    fn default() -> Self {
        Self::starting_after(Duration::ZERO)
    }
}

impl Recorder {
    /// A recorder whose time starts after `delay`, so that the fleet can be set up before.
    #[must_use]
    pub fn starting_after(delay: Duration) -> Self {
        Self { started: Instant::now() + delay, records: Mutex::default() }
    }

    /// When its time starts.
    #[must_use]
    pub const fn started(&self) -> Instant {
        self.started
    }

    /// Time since then; zero before.
    #[must_use]
    pub fn now(&self) -> Duration {
        Instant::now().saturating_duration_since(self.started)
    }

    /// What was counted so far, one entry for each second since the start.
    #[must_use]
    pub fn seconds(&self) -> Vec<Second> {
        self.records.lock().seconds.clone()
    }

    /// When attempts arrived at the dependency, in order.
    #[must_use]
    pub fn arrivals(&self) -> Vec<Duration> {
        self.records.lock().arrivals.clone()
    }

    /// Retries sent, by tenant and second.
    #[must_use]
    pub fn retries_by_tenant(&self) -> Vec<Vec<u64>> {
        self.records.lock().retries.clone()
    }

    /// Why retries were delayed, refused or expired: reason and count.
    #[must_use]
    pub fn reasons(&self) -> BTreeMap<String, u64> {
        self.records.lock().reasons.clone()
    }

    /// An operation starts.
    pub fn offered(&self) {
        self.count(|second| second.offered += 1);
    }

    /// An attempt arrived at the dependency.
    pub fn arrived(&self, attempt: u32) {
        let number = usize::try_from(attempt).unwrap_or(usize::MAX);
        let bucket = number.saturating_sub(1).min(ATTEMPT_BUCKETS - 1);
        let now = self.now();
        let mut records = self.records.lock();
        records.arrivals.push(now);
        let second = slot(&mut records.seconds, index(now));
        if let Some(count) = second.by_attempt.get_mut(bucket) {
            *count += 1;
        }
    }

    /// A tenant sends a retry. Tenants are numbered from 0.
    pub fn retried(&self, tenant: usize) {
        let second = index(self.now());
        let mut records = self.records.lock();
        *slot(slot(&mut records.retries, tenant), second) += 1;
    }

    /// The dependency is done with an attempt.
    pub fn answered(&self, answer: Answer) {
        self.count(|second| match answer {
            Answer::Failure => second.failed_by_cause += 1,
            Answer::QueueFull => second.queue_full += 1,
            Answer::Abandoned => second.abandoned += 1,
            Answer::Success | Answer::Wrong | Answer::Limited { .. } => {}
        });
    }

    /// An attempt ended; `last` if the policy allows no further one.
    pub fn attempted(&self, attempt: u32, outcome: Outcome, last: bool) {
        let success = outcome == Outcome::Success;
        self.count(|second| {
            match outcome {
                Outcome::Success => second.ok += 1,
                Outcome::Unavailable => second.unavailable += 1,
                Outcome::RateLimited(_) => second.rate_limited += 1,
                Outcome::Timeout => second.timeouts += 1,
                Outcome::Wrong => second.wrong += 1,
                Outcome::Broken => second.broken += 1,
            }
            second.first_ok += u64::from(attempt == 1 && success);
            second.affected += u64::from(attempt == 1 && !success);
            second.wanted += u64::from(outcome.is_retryable() && !last);
        });
    }

    /// An operation that started at `started` has ended. `first_ok` is how its first attempt ended, if it sent one.
    pub fn ended(&self, started: Duration, first_ok: Option<bool>, success: bool) {
        if success {
            self.count_at(started, |second| second.fulfilled += 1);
        }
        self.count(|second| {
            second.succeeded += u64::from(success);
            second.recovered += u64::from(success && first_ok == Some(false));
            second.failed += u64::from(!success);
            second.unsent += u64::from(first_ok.is_none());
        });
    }

    /// A retry was delayed or refused, for that reason.
    pub fn refused(&self, refusal: Refusal, reason: &str) {
        self.count(|second| match refusal {
            Refusal::Delayed => second.delayed += 1,
            Refusal::Expired => second.expired += 1,
            Refusal::Shed => second.shed += 1,
        });
        *self.records.lock().reasons.entry(reason.to_owned()).or_default() += 1;
    }

    fn count(&self, update: impl FnOnce(&mut Second)) {
        self.count_at(self.now(), update);
    }

    fn count_at(&self, moment: Duration, update: impl FnOnce(&mut Second)) {
        update(slot(&mut self.records.lock().seconds, index(moment)));
    }
}

/// The second of a moment. A run is shorter than a day: whatever a clock does, no table grows beyond it.
fn index(moment: Duration) -> usize {
    usize::try_from(moment.as_secs().min(86_400)).unwrap_or_default()
}

/// The place at `index`, which is made if it is not there.
fn slot<T: Clone + Default>(table: &mut Vec<T>, index: usize) -> &mut T {
    if table.len() <= index {
        table.resize(index + 1, T::default());
    }
    table.get_mut(index).unwrap_or_else(|| unreachable!("it was made"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn events_land_in_their_second() {
        let recorder = Recorder::default();
        recorder.offered();
        recorder.arrived(1);
        tokio::time::advance(Duration::from_millis(1500)).await;
        recorder.arrived(2);
        recorder.arrived(99);
        let seconds = recorder.seconds();
        assert_eq!(seconds.len(), 2);
        assert_eq!((seconds[0].offered, seconds[0].physical(), seconds[0].executed()), (1, 1, 0));
        assert_eq!(seconds[1].by_attempt, [0, 1, 0, 0, 0, 0, 0, 1]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_operation_is_affected_once_and_recovers_once() {
        let recorder = Recorder::default();
        recorder.attempted(1, Outcome::Unavailable, false);
        recorder.attempted(2, Outcome::RateLimited(None), false);
        recorder.attempted(3, Outcome::Success, false);
        recorder.ended(Duration::ZERO, Some(false), true);
        recorder.attempted(1, Outcome::Success, false);
        recorder.ended(Duration::ZERO, Some(true), true);
        recorder.ended(Duration::ZERO, None, false);
        let total: Second = recorder.seconds().iter().sum();
        assert_eq!((total.affected, total.recovered, total.succeeded, total.failed), (1, 1, 2, 1));
        assert_eq!((total.first_ok, total.wanted, total.unsent), (1, 2, 1));
        assert_eq!((total.ended(), total.errors(), total.inflicted()), (4, 2, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn refusals_are_counted_by_kind_and_reason() {
        let recorder = Recorder::default();
        recorder.refused(Refusal::Shed, "queue_full");
        recorder.refused(Refusal::Shed, "queue_full");
        recorder.refused(Refusal::Expired, "expired");
        let total: Second = recorder.seconds().iter().sum();
        assert_eq!((total.delayed, total.expired, total.shed), (0, 1, 2));
        assert_eq!(recorder.reasons().get("queue_full"), Some(&2));
    }

    #[test]
    fn a_sum_forgets_no_field() {
        let second = Recorder::default();
        for attempt in 1..=8 {
            second.arrived(attempt);
        }
        let mut total = second.seconds().iter().sum::<Second>();
        let once = total;
        total += &once;
        let (once, twice) = (serde_json::to_value(once).unwrap(), serde_json::to_value(total).unwrap());
        assert_eq!(once["by_attempt"][7], 1);
        assert_eq!(twice["by_attempt"][7], 2);
        let ones = serde_json::to_string(&Second::default()).unwrap().replace('0', "1");
        let ones: BTreeMap<String, serde_json::Value> = serde_json::from_str(&ones).unwrap();
        assert_eq!(ones.len(), 22, "a new field belongs into AddAssign, and here");
    }
}
