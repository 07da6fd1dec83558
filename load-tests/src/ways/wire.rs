//! An attempt on its way to the dependency: sent, timed and recorded in the same way for all ways of retrying.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use reqwest::{StatusCode, header};
use tokio::time::Instant;

use crate::flaky::{ATTEMPT_HEADER, Desk, OPERATION_HEADER, WRONG};
use crate::measure::{Answer, Outcome, Recorder};

/// One logical operation.
#[derive(Debug)]
pub struct Operation {
    number: u64,
    started: Duration,
    deadline: Instant,
    attempts: AtomicU32,
    first_ok: OnceLock<bool>,
}

impl Operation {
    /// The operation of that number, which starts at `started` after the recorder's start, with so much time from
    /// now on.
    #[must_use]
    pub fn new(number: u64, started: Duration, time: Duration) -> Self {
        Self {
            number,
            started,
            deadline: Instant::now() + time,
            attempts: AtomicU32::new(0),
            first_ok: OnceLock::new(),
        }
    }

    /// Its number, the same in all ways.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// When it started.
    #[must_use]
    pub const fn started(&self) -> Duration {
        self.started
    }

    /// Time left for everything.
    #[must_use]
    pub fn time_left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// The number of its next attempt, from 1, whichever layer makes it.
    pub fn next_attempt(&self) -> u32 {
        self.attempts.fetch_add(1, Relaxed).saturating_add(1)
    }

    /// How its first attempt ended, if it sent one.
    #[must_use]
    pub fn first_ok(&self) -> Option<bool> {
        self.first_ok.get().copied()
    }
}

/// One client's way to the dependency.
#[derive(Clone, Debug)]
pub struct Wire {
    road: Road,
    recorder: Arc<Recorder>,
    tenant: usize,
    attempt_timeout: Duration,
    max_attempts: u32,
}

/// What attempts travel on.
#[derive(Clone, Debug)]
pub enum Road {
    /// Connections of the client's own to this address.
    Http(reqwest::Client, String),
    /// A call within the process.
    Direct(Arc<Desk>),
}

impl Road {
    /// Connections to `url`.
    ///
    /// # Errors
    /// The HTTP client cannot be built.
    pub fn http(url: String) -> Result<Self, reqwest::Error> {
        // The HTTP client's own resending would be a retry that nobody counts.
        let http = reqwest::Client::builder().no_proxy().tcp_nodelay(true).retry(reqwest::retry::never());
        Ok(Self::Http(http.build()?, url))
    }

    async fn send(&self, operation: u64, number: u32) -> Outcome {
        match self {
            Self::Http(http, url) => send(http, url, operation, number).await,
            Self::Direct(desk) => match desk.take(operation, number).await {
                Answer::Success => Outcome::Success,
                Answer::Wrong => Outcome::Wrong,
                Answer::Failure | Answer::QueueFull => Outcome::Unavailable,
                Answer::Limited { retry_after_s } => {
                    Outcome::RateLimited(Some(Duration::from_secs(retry_after_s)))
                }
                Answer::Abandoned => Outcome::Broken,
            },
        }
    }
}

impl Wire {
    /// A way that belongs to the tenant of that number. `max_attempts` is what the client's policy allows.
    #[must_use]
    pub const fn new(
        road: Road,
        recorder: Arc<Recorder>,
        tenant: usize,
        attempt_timeout: Duration,
        max_attempts: u32,
    ) -> Self {
        Self { road, recorder, tenant, attempt_timeout, max_attempts }
    }

    /// Where everything is counted.
    #[must_use]
    pub const fn recorder(&self) -> &Arc<Recorder> {
        &self.recorder
    }

    /// Attempts that the policy allows.
    #[must_use]
    pub const fn max_attempts(&self) -> u32 {
        self.max_attempts
    }

    /// Sends one attempt, records how it ended, and says so.
    pub async fn attempt(&self, operation: &Operation, number: u32) -> Outcome {
        if number > 1 {
            self.recorder.retried(self.tenant);
        }
        let time = self.attempt_timeout.min(operation.time_left());
        let outcome = tokio::time::timeout(time, self.road.send(operation.number, number)).await;
        let outcome = outcome.unwrap_or(Outcome::Timeout);
        if number == 1 {
            let _ = operation.first_ok.set(outcome == Outcome::Success);
        }
        self.recorder.attempted(number, outcome, number >= self.max_attempts);
        outcome
    }
}

async fn send(http: &reqwest::Client, url: &str, operation: u64, number: u32) -> Outcome {
    let request = http.post(url).header(OPERATION_HEADER, operation).header(ATTEMPT_HEADER, number);
    let Ok(response) = request.send().await else { return Outcome::Broken };
    let status = response.status();
    let retry_after = response.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
    let retry_after = retry_after.and_then(|text| text.parse().ok()).map(Duration::from_secs);
    let Ok(body) = response.bytes().await else { return Outcome::Broken };
    match status {
        StatusCode::OK if body == WRONG => Outcome::Wrong,
        StatusCode::OK => Outcome::Success,
        StatusCode::SERVICE_UNAVAILABLE => Outcome::Unavailable,
        StatusCode::TOO_MANY_REQUESTS => Outcome::RateLimited(retry_after),
        _ => Outcome::Broken,
    }
}
