//! An attempt on the wire: sent, timed and recorded in the same way for all ways.

use std::sync::Arc;
use std::sync::OnceLock;
use std::time::Duration;

use reqwest::{StatusCode, header};
use tokio::time::Instant;

use crate::flaky::{ATTEMPT_HEADER, OPERATION_HEADER};
use crate::measure::{Outcome, Recorder};

/// One logical operation.
#[derive(Debug)]
pub struct Operation {
    number: u64,
    deadline: Instant,
    first_ok: OnceLock<bool>,
}

impl Operation {
    /// The operation of that number, with so much time from now on.
    #[must_use]
    pub fn new(number: u64, time: Duration) -> Self {
        Self { number, deadline: Instant::now() + time, first_ok: OnceLock::new() }
    }

    /// Its number, the same in all ways.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// Time left for everything.
    #[must_use]
    pub fn time_left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// How its first attempt ended, if it sent one.
    #[must_use]
    pub fn first_ok(&self) -> Option<bool> {
        self.first_ok.get().copied()
    }
}

/// One client's way to the dependency: its own connections.
#[derive(Clone, Debug)]
pub struct Wire {
    http: reqwest::Client,
    url: String,
    recorder: Arc<Recorder>,
    attempt_timeout: Duration,
    max_attempts: u32,
}

impl Wire {
    /// A way to `url`, with connections of its own. `max_attempts` is what the client's policy allows.
    ///
    /// # Errors
    /// The HTTP client cannot be built.
    pub fn new(
        url: String,
        recorder: Arc<Recorder>,
        attempt_timeout: Duration,
        max_attempts: u32,
    ) -> Result<Self, reqwest::Error> {
        // The HTTP client's own resending would be a retry that nobody counts.
        let http = reqwest::Client::builder().no_proxy().tcp_nodelay(true).retry(reqwest::retry::never());
        Ok(Self { http: http.build()?, url, recorder, attempt_timeout, max_attempts })
    }

    /// Where everything is counted.
    #[must_use]
    pub fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// Attempts that the policy allows.
    #[must_use]
    pub const fn max_attempts(&self) -> u32 {
        self.max_attempts
    }

    /// Sends one attempt, records how it ended, and says so.
    pub async fn attempt(&self, operation: &Operation, number: u32) -> Outcome {
        let time = self.attempt_timeout.min(operation.time_left());
        let outcome = tokio::time::timeout(time, self.send(operation, number)).await;
        let outcome = outcome.unwrap_or(Outcome::Timeout);
        if number == 1 {
            let _ = operation.first_ok.set(outcome == Outcome::Success);
        }
        self.recorder.attempted(number, outcome, number >= self.max_attempts);
        outcome
    }

    async fn send(&self, operation: &Operation, number: u32) -> Outcome {
        let request = self
            .http
            .post(&self.url)
            .header(OPERATION_HEADER, operation.number)
            .header(ATTEMPT_HEADER, number);
        let Ok(response) = request.send().await else { return Outcome::Broken };
        let status = response.status();
        let retry_after = response.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
        let retry_after = retry_after.and_then(|text| text.parse().ok()).map(Duration::from_secs);
        if response.bytes().await.is_err() {
            return Outcome::Broken;
        }
        match status {
            StatusCode::OK => Outcome::Success,
            StatusCode::SERVICE_UNAVAILABLE => Outcome::Unavailable,
            StatusCode::TOO_MANY_REQUESTS => Outcome::RateLimited(retry_after),
            _ => Outcome::Broken,
        }
    }
}
