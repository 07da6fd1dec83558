//! Watching what the client does, as it does it.

use std::{fmt, sync::Arc, time::Duration};

use damper_protocol::{BreakerState, Mode, Reason};

use crate::{StopReason, hook::isolated};

/// Is told what happens to attempts and retries. Every method does nothing unless overridden; they are called on
/// the caller's task unless they say otherwise, and have to be quick. A panic in one changes nothing but that the
/// observer has missed something.
///
/// For counts there is [`Dependency::totals`](crate::Dependency::totals), which costs nothing.
pub trait Observer: Send + Sync + 'static {
    /// An attempt starts; `number` counts from 1.
    fn attempt_started(&self, dependency: &str, number: u32) {
        let _ = (dependency, number);
    }

    /// The server granted a retry, or a probe, after `waited` in its delay queue.
    fn granted(&self, dependency: &str, reason: Reason, waited: Duration) {
        let _ = (dependency, reason, waited);
    }

    /// No server answered, and the emergency budget granted a retry.
    fn emergency_granted(&self, dependency: &str) {
        let _ = dependency;
    }

    /// A request of an adapter had a body that cannot be sent twice: it gets one attempt.
    fn not_replayable(&self, dependency: &str) {
        let _ = dependency;
    }

    /// A client that only observes goes on although it was refused for this reason.
    fn overruled(&self, dependency: &str, reason: StopReason) {
        let _ = (dependency, reason);
    }

    /// An operation ended without success. [`StopReason::Expired`] is an ask whose window closed.
    fn stopped(&self, dependency: &str, reason: StopReason) {
        let _ = (dependency, reason);
    }

    /// The server's breaker of a dependency is in another state than was known. Called from whichever task hears of
    /// it first, the background tasks included.
    fn breaker_changed(&self, dependency: &str, state: BreakerState) {
        let _ = (dependency, state);
    }

    /// The server works in another mode than before. Called from a background task.
    fn mode_changed(&self, mode: Mode) {
        let _ = mode;
    }

    /// An operation succeeded after so many attempts.
    fn succeeded(&self, dependency: &str, attempts: u32) {
        let _ = (dependency, attempts);
    }
}

/// Whoever is told, if anybody is.
#[derive(Clone, Default)]
pub(crate) struct Audience(pub(crate) Option<Arc<dyn Observer>>);

impl Audience {
    pub(crate) fn tell(&self, news: impl FnOnce(&dyn Observer)) {
        if let Some(observer) = &self.0 {
            isolated(|| news(&**observer));
        }
    }
}

impl fmt::Debug for Audience {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer")
    }
}
