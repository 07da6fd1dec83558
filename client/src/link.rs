//! The breaker towards damper itself: an outage of the server costs its clients microseconds, not timeouts.

use std::time::Duration;

use crate::clock::Moment;

/// Consecutive failures that open it.
const THRESHOLD: u32 = 5;

/// How long it stays open before one probe.
const OPEN_FOR: Duration = Duration::from_secs(30);

/// Counts what became of requests to the server.
#[derive(Debug, Default)]
pub(crate) struct Link {
    failures: u32,
    open_until: Option<Moment>,
}

impl Link {
    /// Whether a request may go out. While open, one may every [`OPEN_FOR`], answered or not.
    pub(crate) fn admit(&mut self, now: Moment) -> bool {
        match self.open_until {
            Some(until) if now < until => false,
            Some(_) => {
                self.open_until = Some(now.saturating_add(OPEN_FOR));
                true
            }
            None => true,
        }
    }

    /// The server answered, on whatever path. True if it had been away.
    pub(crate) fn answered(&mut self) -> bool {
        let was_open = self.open_until.is_some();
        *self = Self::default();
        was_open
    }

    /// The server did not answer. True if that opened the breaker.
    pub(crate) fn failed(&mut self, now: Moment) -> bool {
        self.failures = self.failures.saturating_add(1);
        if self.failures < THRESHOLD {
            return false;
        }
        let opened = self.open_until.is_none();
        if opened {
            self.open_until = Some(now.saturating_add(OPEN_FOR));
        }
        opened
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Moment {
        Duration::from_secs(seconds)
    }

    fn open_at(now: Moment) -> Link {
        let mut link = Link::default();
        let opened: Vec<bool> = (0..5).map(|_| link.failed(now)).collect();
        assert_eq!(opened, [false, false, false, false, true]);
        link
    }

    #[test]
    fn five_failures_in_a_row_open_it() {
        let mut link = Link::default();
        for _ in 0..4 {
            link.failed(s(1));
        }
        link.answered();
        for _ in 0..4 {
            link.failed(s(1));
        }
        assert!(link.admit(s(1)));
        link.failed(s(1));
        assert!(!link.admit(s(1)));
    }

    #[test]
    fn one_probe_passes_every_thirty_seconds_even_if_its_result_never_comes() {
        let mut link = open_at(s(0));
        assert!(!link.admit(Duration::from_millis(29_999)));
        assert!(link.admit(s(30)));
        assert!(!link.admit(s(30)) && !link.admit(s(59)));
        assert!(link.admit(s(60)));
    }

    #[test]
    fn any_answer_closes_it_at_once() {
        let mut link = open_at(s(0));
        assert!(link.answered());
        assert!(link.admit(s(1)) && !link.answered());
    }
}
