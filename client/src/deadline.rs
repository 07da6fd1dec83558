//! The deadline of an operation: it encloses all attempts and all waits.

use std::time::Duration;

use tokio::time::Instant;

use crate::clock::{Clock, Moment};

/// What an operation gets that has no deadline of its own.
const DEFAULT: Duration = Duration::from_secs(10);

/// How long an attempt may take when the caller wants no deadline at all.
const BACKSTOP: Duration = Duration::from_secs(30);

/// The least time that an attempt is worth starting with.
pub(crate) const LEAST_ATTEMPT: Duration = Duration::from_millis(1);

/// When an operation has to be over, its attempts and its waits included. Default: 10 s after the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline(Kind);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    After(Duration),
    At(std::time::Instant),
    Inherit,
    Unbounded,
}

impl Deadline {
    /// So long after the call.
    #[must_use]
    pub const fn after(duration: Duration) -> Self {
        Self(Kind::After(duration))
    }

    /// At this instant.
    #[must_use]
    pub const fn at(instant: std::time::Instant) -> Self {
        Self(Kind::At(instant))
    }

    /// That of the attempt or request that it is called in; outside of any, or where they have none, the default.
    #[must_use]
    pub const fn inherit() -> Self {
        Self(Kind::Inherit)
    }

    /// Never. Each attempt still ends after 30 s, and a dependency that asks for a pause of more than 60 s ends
    /// the operation.
    #[must_use]
    pub const fn unbounded() -> Self {
        Self(Kind::Unbounded)
    }

    /// Inside of something that ends at `outer_end`, never later than that.
    pub(crate) fn limit(self, clock: Clock, now: Moment, outer_end: Option<Instant>) -> Limit {
        let outer_end = outer_end.map(|end| clock.moment(end));
        let own = match self.0 {
            Kind::After(duration) => now.checked_add(duration),
            Kind::At(instant) => Some(clock.moment(instant.into())),
            Kind::Inherit if outer_end.is_some() => None,
            Kind::Inherit => now.checked_add(DEFAULT),
            Kind::Unbounded => None,
        };
        Limit(own.into_iter().chain(outer_end).min())
    }
}

impl Default for Deadline {
    fn default() -> Self {
        Self::after(DEFAULT)
    }
}

impl From<Duration> for Deadline {
    fn from(duration: Duration) -> Self {
        Self::after(duration)
    }
}

/// A deadline in moments; `None` has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limit(Option<Moment>);

impl Limit {
    /// The time left, if it is limited.
    pub(crate) fn left(self, now: Moment) -> Option<Duration> {
        self.0.map(|until| until.saturating_sub(now))
    }

    /// True if an attempt may start at `now`.
    pub(crate) fn leaves_an_attempt(self, now: Moment) -> bool {
        self.fits(now, Duration::ZERO)
    }

    /// True if a wait from `now` on leaves an attempt its least time.
    pub(crate) fn fits(self, now: Moment, wait: Duration) -> bool {
        self.left(now).is_none_or(|left| wait.saturating_add(LEAST_ATTEMPT) <= left)
    }

    /// When an attempt that starts at `now` has to end that may take so long. Only the connections of a stream may
    /// last for ever.
    pub(crate) fn end_of_attempt(
        self,
        now: Moment,
        timeout: Option<Duration>,
        endless: bool,
    ) -> Option<Moment> {
        match (self.0, timeout) {
            (None, None) if endless => None,
            (until, None) => until.or_else(|| Some(now.saturating_add(BACKSTOP))),
            (until, Some(timeout)) => {
                let end = now.saturating_add(timeout);
                Some(until.map_or(end, |until| until.min(end)))
            }
        }
    }

    /// True if an attempt that ends then is ended by the caller's own deadline.
    pub(crate) fn is_end(self, end: Option<Moment>) -> bool {
        self.0.is_some() && self.0 == end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_wait_fits_to_the_millisecond() {
        let limit = Limit(Some(ms(1000)));
        assert!(limit.fits(ms(0), ms(999)), "fits exactly");
        assert!(!limit.fits(ms(0), ms(1000)), "leaves no time for the attempt");
        assert!(!limit.fits(ms(0), ms(1001)), "one too long");
        assert!(!limit.fits(ms(1001), ms(0)), "past");
        assert!(!limit.fits(ms(0), Duration::MAX));
        assert!(Limit(None).fits(Duration::MAX, Duration::MAX));
    }

    #[tokio::test(start_paused = true)]
    async fn every_way_to_say_it() {
        let clock = Clock::start();
        let now = ms(250);
        assert_eq!(Deadline::after(ms(100)).limit(clock, now, None), Limit(Some(ms(350))));
        assert_eq!(Deadline::after(Duration::MAX).limit(clock, now, None), Limit(None));
        assert_eq!(Deadline::unbounded().limit(clock, now, None), Limit(None));
        let in_a_second = tokio::time::Instant::now() + ms(1000);
        assert_eq!(Deadline::at(in_a_second.into()).limit(clock, now, None), Limit(Some(ms(1000))));
        let inside = |deadline: Deadline| deadline.limit(clock, now, Some(in_a_second));
        assert_eq!(inside(Deadline::inherit()), Limit(Some(ms(1000))));
        assert_eq!(inside(Deadline::unbounded()), Limit(Some(ms(1000))));
        assert_eq!(inside(Deadline::after(ms(100))), Limit(Some(ms(350))));
        assert_eq!(inside(Deadline::after(ms(5000))), Limit(Some(ms(1000))));
        assert_eq!(Deadline::inherit().limit(clock, now, None).left(now), Some(ms(10_000)));
        assert_eq!(Deadline::default().limit(clock, now, None).left(now), Some(ms(10_000)));
    }
}
