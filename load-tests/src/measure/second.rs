//! The unit of measurement.

use std::ops::AddAssign;

use serde::Serialize;

/// Attempts are told apart up to this number; later ones are counted as this one.
pub const ATTEMPT_BUCKETS: usize = 8;

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
    /// Attempts that ended with a wrong answer.
    pub wrong: u64,
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
    /// Operations that started in this second and succeeded, whenever they did.
    pub fulfilled: u64,
    /// Of the failed ones, operations that sent no attempt.
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
        self.unavailable + self.rate_limited + self.timeouts + self.wrong + self.broken
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
        self.wrong += other.wrong;
        self.broken += other.broken;
        self.first_ok += other.first_ok;
        self.affected += other.affected;
        self.wanted += other.wanted;
        self.succeeded += other.succeeded;
        self.recovered += other.recovered;
        self.failed += other.failed;
        self.fulfilled += other.fulfilled;
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
