//! How attempts end, as each side sees it.

use std::time::Duration;

/// How the dependency answered an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// 200.
    Success,
    /// 503 for its own failure share.
    Failure,
    /// 503 because its queue was full.
    QueueFull,
    /// 200 with a wrong answer.
    Wrong,
    /// 429.
    Limited {
        /// The Retry-After.
        retry_after_s: u64,
    },
    /// Not at all: the caller had hung up. The work was done.
    Abandoned,
}

/// How an attempt ended as the client sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// 200.
    Success,
    /// 200 with an answer that the caller can see is wrong.
    Wrong,
    /// 503.
    Unavailable,
    /// 429, with the Retry-After.
    RateLimited(Option<Duration>),
    /// No answer in time.
    Timeout,
    /// The connection broke, or the answer is none that the dependency gives.
    Broken,
}

impl Outcome {
    /// Whether another attempt may end better.
    #[must_use]
    pub const fn is_retryable(self) -> bool {
        !matches!(self, Self::Success | Self::Wrong)
    }
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
