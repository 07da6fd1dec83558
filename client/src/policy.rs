//! What the caller says about one operation: how often, how long, and whether a repeat does harm.

pub(crate) mod key;

pub use key::KeyError;

use std::{sync::Arc, time::Duration};

use damper_protocol::{FailureClass, RecoveryMode};
use http::{HeaderMap, Method};

use crate::backoff::Backoff;

/// How patient an operation's retries are. Choose one; the server's policy may allow fewer attempts, never more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    attempts: u32,
    base_ms: u32,
    cap_ms: u32,
    endless: bool,
}

/// Rate limits are retried slowly whatever the profile.
const RATE_LIMITED_BASE_MS: u32 = 1000;

impl Profile {
    const fn new(attempts: u32, base_ms: u32, cap_ms: u32) -> Self {
        Self { attempts, base_ms, cap_ms, endless: false }
    }

    /// Four attempts, waits of up to 250 ms, doubling up to 5 s. The default.
    #[must_use]
    pub const fn standard() -> Self {
        Self::new(4, 250, 5000)
    }

    /// Two attempts, waits of up to 250 ms: somebody is looking at the screen.
    #[must_use]
    pub const fn interactive() -> Self {
        Self::new(2, 250, 250)
    }

    /// Five attempts, waits of up to 200 ms, doubling up to 30 s: work that can be done later.
    #[must_use]
    pub const fn background() -> Self {
        Self::new(5, 200, 30_000)
    }

    /// For connections that are meant to last: as many attempts as wanted, waits of up to 1 s, doubling up to 30 s
    /// and short again once a connection has [brought something](crate::Attempt::progressed). Refusals are waited
    /// out in the same way. Ten connections in a row that bring nothing are a fault
    /// ([`StopReason::NoProgress`](crate::StopReason::NoProgress)). The operation ends when its attempt returns a
    /// value; it has no deadline unless it is given one, and how long a connection lasts is not taken for the
    /// dependency's latency. Declare it [`Idempotency::Safe`], or a connection that breaks is not made again.
    #[must_use]
    pub const fn stream() -> Self {
        Self { endless: true, ..Self::new(u32::MAX, 1000, 30_000) }
    }

    /// One attempt.
    #[must_use]
    pub const fn never() -> Self {
        Self::new(1, 0, 0)
    }

    /// The same with so many attempts, the first included; 0 counts as 1.
    #[must_use]
    pub const fn with_attempts(self, attempts: u32) -> Self {
        Self { attempts: if attempts == 0 { 1 } else { attempts }, endless: false, ..self }
    }

    /// Attempts of one operation, the first included.
    #[must_use]
    pub const fn attempts(&self) -> u32 {
        self.attempts
    }

    pub(crate) const fn is_endless(&self) -> bool {
        self.endless
    }

    /// The waits that belong to a class of failures.
    pub(crate) fn backoff(self, class: FailureClass) -> Backoff {
        let least_ms = if class == FailureClass::RateLimited { RATE_LIMITED_BASE_MS } else { 0 };
        let duration = |ms: u32| Duration::from_millis(u64::from(ms));
        Backoff { base: duration(self.base_ms.max(least_ms)), cap: duration(self.cap_ms) }
    }
}

impl Default for Profile {
    fn default() -> Self {
        Self::standard()
    }
}

/// Whether an operation may be repeated when nobody knows what became of its last attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Idempotency {
    /// A repeat does harm: another attempt is made only if the last one provably had no effect. The default.
    #[default]
    Unsafe,
    /// It changes nothing: a read.
    Safe,
    /// Doing it twice is the same as doing it once.
    Idempotent,
    /// The dependency recognises a repeat by this key, which every attempt of the operation has to carry: the adapters
    /// set it, and [`Attempt::inject_key`](crate::Attempt::inject_key) does in calls written by hand. Derive it from
    /// what identifies the operation, in printable ASCII; a new operation needs a new key.
    Keyed(Arc<str>),
}

impl Idempotency {
    /// [`Idempotency::Keyed`] with this key.
    #[must_use]
    pub fn keyed(key: impl Into<Arc<str>>) -> Self {
        Self::Keyed(key.into())
    }

    /// What an HTTP request says about itself: GET, HEAD, OPTIONS and TRACE are safe, PUT and DELETE idempotent;
    /// anything else is keyed if it has an `Idempotency-Key`, quoted or not, and unsafe if it has none.
    #[must_use]
    pub fn of_request(method: &Method, headers: &HeaderMap) -> Self {
        match *method {
            Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE => Self::Safe,
            Method::PUT | Method::DELETE => Self::Idempotent,
            _ => headers.get(key::HEADER).and_then(key::read).map_or(Self::Unsafe, Self::keyed),
        }
    }

    /// True if it may be repeated whatever became of the last attempt.
    pub(crate) fn allows_repeat(&self) -> bool {
        !matches!(self, Self::Unsafe)
    }

    /// True if an attempt can leave something behind.
    pub(crate) fn has_effect(&self) -> bool {
        !matches!(self, Self::Safe)
    }

    pub(crate) fn recovery_mode(&self) -> Option<RecoveryMode> {
        matches!(self, Self::Keyed(_)).then_some(RecoveryMode::ProviderIdempotent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b44_a_method_says_whether_a_repeat_does_harm() {
        let of = |method: &str, key: Option<&str>| {
            let key = key.map(|key| ("idempotency-key".parse().unwrap(), key.parse().unwrap()));
            Idempotency::of_request(&method.parse().unwrap(), &key.into_iter().collect())
        };
        for method in ["GET", "HEAD", "OPTIONS", "TRACE"] {
            assert_eq!(of(method, Some("k")), Idempotency::Safe, "{method}");
        }
        for method in ["PUT", "DELETE"] {
            assert_eq!(of(method, None), Idempotency::Idempotent, "{method}");
        }
        for method in ["POST", "PATCH", "CONNECT", "BREW"] {
            assert_eq!(of(method, None), Idempotency::Unsafe, "{method}");
            assert_eq!(of(method, Some("")), Idempotency::Unsafe, "{method}");
            assert_eq!(of(method, Some("\"k\"")), Idempotency::keyed("k"), "{method}");
        }
    }
}
