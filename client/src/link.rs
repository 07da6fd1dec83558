//! The breaker towards damper itself: an outage of the server costs its clients microseconds, not timeouts.
//!
//! Syncs find an outage too, but only an ask tells that asks work: a server may well do the one and not the other.

use std::time::Duration;

use crate::{backoff::Backoff, clock::Moment};

/// Consecutive failures that open it.
const THRESHOLD: u32 = 5;

/// How long it stays open before one probe, unless another path finds the server.
const OPEN_FOR: Duration = Duration::from_secs(30);

/// How soon after the last probe the next may go out while other paths work and asks do not: later each time, so
/// that an outage of asks alone costs few of them, and is over for the client no later than twice its length.
const PROBE_AGAIN: Backoff = Backoff { base: Duration::from_secs(1), cap: OPEN_FOR };

/// What an ask may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leave {
    /// Go out.
    Ask,
    /// Go out once, to find out whether asks work again.
    Probe,
    /// Stay: there is no server to speak of.
    Stay,
}

/// Counts what became of requests to the server.
#[derive(Debug, Default)]
pub(crate) struct Link {
    /// Failures in a row, and how many of them were asks.
    failures: u32,
    asks: u32,
    open: Option<Open>,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    probe_at: Moment,
    /// When the last probe went out, or the breaker opened.
    since: Moment,
    probes: u32,
}

impl Link {
    /// Whether an ask may go out. While open, one may every [`OPEN_FOR`], answered or not.
    pub(crate) fn admit(&mut self, now: Moment) -> Leave {
        match &mut self.open {
            Some(open) if now < open.probe_at => Leave::Stay,
            Some(open) => {
                let probes = open.probes.saturating_add(1);
                *open = Open { probe_at: now.saturating_add(OPEN_FOR), since: now, probes };
                Leave::Probe
            }
            None => Leave::Ask,
        }
    }

    /// Whether asks are kept back now.
    pub(crate) fn is_open(&self, now: Moment) -> bool {
        self.open.is_some_and(|open| now < open.probe_at)
    }

    /// An ask was answered. True if the breaker had been open.
    pub(crate) fn answered(&mut self) -> bool {
        std::mem::take(self).open.is_some()
    }

    /// An ask was not answered. True if the breaker is open.
    pub(crate) fn failed(&mut self, now: Moment) -> bool {
        self.asks = self.asks.saturating_add(1);
        self.count(now)
    }

    /// A sync was not answered.
    pub(crate) fn missed(&mut self, now: Moment) {
        self.count(now);
    }

    fn count(&mut self, now: Moment) -> bool {
        self.failures = self.failures.saturating_add(1);
        if self.failures >= THRESHOLD && self.open.is_none() {
            // Nobody has asked yet: the first who does finds out.
            let wait = if self.asks == 0 { Duration::ZERO } else { OPEN_FOR };
            self.open = Some(Open { probe_at: now.saturating_add(wait), since: now, probes: 0 });
        }
        self.open.is_some()
    }

    /// The server answered something else than an ask: a probe is worth its while. At once if the server `is_back`.
    pub(crate) fn heard(&mut self, is_back: bool) {
        let Some(open) = &mut self.open else {
            // Syncs that work end a row of failed syncs; a row of failed asks only an ask can end.
            self.failures = self.asks;
            return;
        };
        if self.asks == 0 {
            *self = Self::default();
            return;
        }
        if is_back {
            *open = Open { probe_at: Moment::ZERO, probes: 0, ..*open };
        }
        let next = open.since.saturating_add(PROBE_AGAIN.ceiling(open.probes.saturating_add(1)));
        open.probe_at = open.probe_at.min(next);
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
        let open: Vec<bool> = (0..5).map(|_| link.failed(now)).collect();
        assert_eq!(open, [false, false, false, false, true]);
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
        assert_eq!(link.admit(s(1)), Leave::Ask);
        link.failed(s(1));
        assert_eq!(link.admit(s(1)), Leave::Stay);
    }

    #[test]
    fn one_probe_passes_every_thirty_seconds_even_if_its_result_never_comes() {
        let mut link = open_at(s(0));
        let probes = [29_999, 30_000, 30_001, 59_999, 60_000].map(|ms| link.admit(Duration::from_millis(ms)));
        assert_eq!(probes, [Leave::Stay, Leave::Probe, Leave::Stay, Leave::Stay, Leave::Probe]);
    }

    #[test]
    fn an_answered_ask_closes_it_at_once() {
        let mut link = open_at(s(0));
        assert!(link.answered());
        assert_eq!(link.admit(s(1)), Leave::Ask);
        assert!(!link.answered());
    }

    #[test]
    fn while_other_paths_work_probes_go_out_ever_more_rarely() {
        let mut link = open_at(s(0));
        let mut probes = Vec::new();
        for now in 0..100 {
            link.heard(false);
            if link.admit(s(now)) == Leave::Probe {
                probes.push(now);
                assert!(link.failed(s(now)), "still open");
            }
        }
        assert_eq!(probes, [1, 3, 7, 15, 31, 61, 91]);
    }

    #[test]
    fn a_server_that_is_back_is_probed_at_once_and_only_once() {
        let mut link = open_at(s(0));
        link.heard(true);
        assert_eq!([link.admit(s(0)), link.admit(s(0))], [Leave::Probe, Leave::Stay]);
        link.heard(false);
        assert_eq!([link.admit(s(1)), link.admit(s(2))], [Leave::Stay, Leave::Probe]);
    }

    #[test]
    fn what_syncs_opened_lets_an_ask_find_out_and_a_sync_closes_it() {
        let mut link = Link::default();
        (0..5).for_each(|_| link.missed(s(0)));
        assert_eq!([link.admit(s(0)), link.admit(s(0))], [Leave::Probe, Leave::Stay]);
        link.heard(true);
        assert_eq!(link.admit(s(0)), Leave::Ask);
    }

    #[test]
    fn syncs_neither_close_nor_uncount_what_asks_found() {
        let mut link = Link::default();
        for _ in 0..5 {
            link.heard(false);
            link.failed(s(0));
        }
        link.heard(false);
        assert_eq!(link.admit(s(0)), Leave::Stay);
    }

    #[test]
    fn a_sync_that_works_ends_the_row_of_those_that_did_not() {
        let mut link = Link::default();
        link.failed(s(0));
        for day in 1..=10 {
            link.missed(s(day * 86_400));
            link.heard(true);
        }
        assert_eq!(link.admit(s(1_000_000)), Leave::Ask);
        // The failed ask still counts.
        (0..4).for_each(|_| link.missed(s(1_000_000)));
        assert_eq!(link.admit(s(1_000_000)), Leave::Stay);
    }
}
