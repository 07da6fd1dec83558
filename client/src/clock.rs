//! The one place that reads the clock; everything else is told what time it is.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

/// A point in time, counted from the moment at which the client was built.
pub(crate) type Moment = Duration;

/// The clock that dates are counted from, and that people set. It is read once for what a message says; from there on
/// a wait is a [`Duration`] of the other clock.
#[expect(clippy::disallowed_methods, reason = "the one place that reads it")]
pub(crate) fn wall() -> SystemTime {
    SystemTime::now()
}

/// Turns the runtime's monotonic clock into [`Moment`]s.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn now(self) -> Moment {
        self.0.elapsed()
    }

    /// The moment of an instant; instants before the start count as the start.
    pub(crate) fn moment(self, instant: Instant) -> Moment {
        instant.saturating_duration_since(self.0)
    }

    /// The instant of a moment; what no clock can reach is a year away.
    pub(crate) fn instant(self, moment: Moment) -> Instant {
        let far = || self.0.checked_add(Duration::from_secs(366 * 86_400)).unwrap_or(self.0);
        self.0.checked_add(moment).unwrap_or_else(far)
    }

    pub(crate) async fn sleep_until(self, moment: Moment) {
        tokio::time::sleep_until(self.instant(moment)).await;
    }
}
