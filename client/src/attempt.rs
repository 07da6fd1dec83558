//! What one attempt may know about itself.

use std::time::Duration;

use tokio::time::Instant;

use crate::Idempotency;

/// One attempt of an operation, as its closure sees it.
#[derive(Clone, Debug)]
pub struct Attempt {
    number: u32,
    end: Instant,
    idempotency: Idempotency,
}

impl Attempt {
    pub(crate) fn new(number: u32, end: Instant, idempotency: Idempotency) -> Self {
        Self { number, end, idempotency }
    }

    /// Its number, from 1.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The time that is left for it; it is cut off after that.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }

    /// The key by which the dependency recognises a repeat, the same for every attempt; `None` unless the
    /// operation is [`Idempotency::Keyed`].
    #[must_use]
    pub fn idempotency_key(&self) -> Option<&str> {
        match &self.idempotency {
            Idempotency::Keyed(key) => Some(key),
            _ => None,
        }
    }
}
