//! The recorder that the fleet and the dependency share, and its unit, the second.

use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;
use tokio::time::Instant;

/// Attempts are told apart up to this number; later ones are counted as this one.
pub const ATTEMPT_BUCKETS: usize = 8;

/// How the dependency answered an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// 200.
    Success,
    /// 503 for its own failure share.
    Failure,
    /// 503 because its queue was full.
    QueueFull,
    /// 429.
    Limited,
    /// Not at all: the caller had hung up. The work was done.
    Abandoned,
}

/// How an attempt ended as the client sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// 200.
    Success,
    /// 503.
    Unavailable,
    /// 429, with the Retry-After.
    RateLimited(Option<Duration>),
    /// No answer in time.
    Timeout,
    /// The connection broke, or the answer is none that the dependency gives.
    Broken,
}

/// What became of a retry that was wanted and not sent at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It was sent, after a wait in the delay queue.
    Delayed,
    /// It waited until its window closed.
    Expired,
    /// It was refused.
    Shed,
}

/// What happened within one second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Second {
    /// Operations started.
    pub offered: u64,
    /// Attempts that arrived at the dependency, by number; the first field is first attempts.
    pub by_attempt: [u64; ATTEMPT_BUCKETS],
    /// Attempts that the dependency failed for its own failure share.
    pub failed_by_cause: u64,
    /// Attempts that it refused because its queue was full.
    pub queue_full: u64,
    /// Attempts that it worked off for a caller that had hung up.
    pub abandoned: u64,
    /// Attempts that ended with 200.
    pub ok: u64,
    /// Attempts that ended with 503.
    pub unavailable: u64,
    /// Attempts that ended with 429.
    pub rate_limited: u64,
    /// Attempts that got no answer in time.
    pub timeouts: u64,
    /// Attempts that ended in another way.
    pub broken: u64,
    /// First attempts that succeeded.
    pub first_ok: u64,
    /// First attempts that failed: the operations affected.
    pub affected: u64,
    /// Attempts that failed, could be retried, and were not the last that the policy allows.
    pub wanted: u64,
    /// Operations that succeeded.
    pub succeeded: u64,
    /// Of these, operations that succeeded after a failure.
    pub recovered: u64,
    /// Operations that failed.
    pub failed: u64,
    /// Of these, operations that sent no attempt.
    pub unsent: u64,
    /// Retries that were sent after a wait in the delay queue.
    pub delayed: u64,
    /// Retries that waited until their window closed.
    pub expired: u64,
    /// Retries that were refused.
    pub shed: u64,
}

impl Second {
    /// Attempts that arrived at the dependency.
    #[must_use]
    pub fn physical(&self) -> u64 {
        self.by_attempt.iter().sum()
    }

    /// Retries that arrived at the dependency.
    #[must_use]
    pub fn executed(&self) -> u64 {
        self.by_attempt.iter().skip(1).sum()
    }

    /// Attempts that ended.
    #[must_use]
    pub const fn ended(&self) -> u64 {
        self.ok + self.errors()
    }

    /// Attempts that ended badly.
    #[must_use]
    pub const fn errors(&self) -> u64 {
        self.unavailable + self.rate_limited + self.timeouts + self.broken
    }

    /// Attempts that ended badly for another reason than the dependency's own failure share.
    #[must_use]
    pub const fn inflicted(&self) -> u64 {
        self.queue_full + self.rate_limited + self.timeouts + self.broken
    }
}

impl AddAssign<&Second> for Second {
    fn add_assign(&mut self, other: &Self) {
        for (mine, theirs) in self.by_attempt.iter_mut().zip(other.by_attempt) {
            *mine += theirs;
        }
        self.offered += other.offered;
        self.failed_by_cause += other.failed_by_cause;
        self.queue_full += other.queue_full;
        self.abandoned += other.abandoned;
        self.ok += other.ok;
        self.unavailable += other.unavailable;
        self.rate_limited += other.rate_limited;
        self.timeouts += other.timeouts;
        self.broken += other.broken;
        self.first_ok += other.first_ok;
        self.affected += other.affected;
        self.wanted += other.wanted;
        self.succeeded += other.succeeded;
        self.recovered += other.recovered;
        self.failed += other.failed;
        self.unsent += other.unsent;
        self.delayed += other.delayed;
        self.expired += other.expired;
        self.shed += other.shed;
    }
}

impl<'a> std::iter::Sum<&'a Self> for Second {
    fn sum<I: Iterator<Item = &'a Self>>(seconds: I) -> Self {
        seconds.fold(Self::default(), |mut total, second| {
            total += second;
            total
        })
    }
}

#[derive(Debug, Default)]
struct Records {
    seconds: Vec<Second>,
    reasons: BTreeMap<String, u64>,
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
        self.count(|second| {
            if let Some(count) = second.by_attempt.get_mut(bucket) {
                *count += 1;
            }
        });
    }

    /// The dependency is done with an attempt.
    pub fn answered(&self, answer: Answer) {
        self.count(|second| match answer {
            Answer::Failure => second.failed_by_cause += 1,
            Answer::QueueFull => second.queue_full += 1,
            Answer::Abandoned => second.abandoned += 1,
            Answer::Success | Answer::Limited => {}
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
                Outcome::Broken => second.broken += 1,
            }
            second.first_ok += u64::from(attempt == 1 && success);
            second.affected += u64::from(attempt == 1 && !success);
            second.wanted += u64::from(!success && !last);
        });
    }

    /// An operation ended. `first_ok` is how its first attempt ended, if it sent one.
    pub fn ended(&self, first_ok: Option<bool>, success: bool) {
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
        let index = usize::try_from(self.now().as_secs()).unwrap_or(usize::MAX);
        let mut records = self.records.lock();
        if records.seconds.len() <= index {
            records.seconds.resize(index + 1, Second::default());
        }
        if let Some(second) = records.seconds.get_mut(index) {
            update(second);
        }
    }
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
        recorder.ended(Some(false), true);
        recorder.attempted(1, Outcome::Success, false);
        recorder.ended(Some(true), true);
        recorder.ended(None, false);
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
        assert_eq!(ones.len(), 20, "a new field belongs into AddAssign, and here");
    }
}
