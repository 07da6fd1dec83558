//! What each client has reported, so that every count is counted once.
//!
//! Reports carry cumulative totals. The server takes the maximum and adds the difference, so lost, repeated
//! and reordered reports cost nothing. A client without a record is measured from what it knows to be counted.

use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;

use crate::allocation::TTL as LEASE_TTL;
use crate::{MicrosPerSecond, Moment, Report, Span, Totals};

/// Most clients with a record; beyond it the one that has been silent longest makes room.
const MOST: usize = 20_000;
/// A client that was silent for so long may lose its record.
const KEPT_FOR: Span = Span::from_secs(600);
/// A client that was silent for so long is not counted as living.
const LIVING: Span = Span::from_secs(60);
/// How often the silent are looked for.
const SWEEP_EVERY: Span = Span::from_secs(10);

/// The last known totals of every client.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    clients: HashMap<Arc<str>, Record>,
    /// Every client once, by when it last reported or some time before: a report leaves its client's place alone, and
    /// pays for the one move that it brings when somebody has to make room. So a newcomer to a full table costs
    /// O(log n), spread over the reports since the last one, and a report of a known client costs nothing here.
    by_silence: BinaryHeap<Reverse<(Moment, Arc<str>)>>,
    most: usize,
    living: u64,
    swept: Moment,
}

/// What one report adds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Difference {
    pub(crate) totals: Totals,
    /// The time in which it happened; [`None`] if nobody here knows, because the client has reported to another
    /// life of this server. What happened in an outage of the server is history, not a signal.
    pub(crate) covers: Option<Span>,
}

#[derive(Clone, Copy, Debug)]
struct Record {
    totals: Totals,
    wants_first: MicrosPerSecond,
    seen: Moment,
}

impl Record {
    fn lives(&self, now: Moment) -> bool {
        now.since(self.seen) < LIVING
    }
}

impl Ledger {
    pub(crate) fn new(now: Moment) -> Self {
        Self::of(MOST, now)
    }

    fn of(most: usize, now: Moment) -> Self {
        Self { clients: HashMap::new(), by_silence: BinaryHeap::new(), most, living: 0, swept: now }
    }

    /// What the report adds to everything counted before.
    pub(crate) fn difference(&mut self, now: Moment, report: &Report) -> Difference {
        self.advance(now);
        if let Some(record) = self.clients.get_mut(&*report.client) {
            let totals = report.totals.above(&record.totals);
            let covers = Some(now.since(record.seen));
            self.living += u64::from(!record.lives(now));
            let (known, wants_first) = (report.totals.max(&record.totals), report.wants_first);
            *record = Record { totals: known, wants_first, seen: now };
            return Difference { totals, covers };
        }
        if self.clients.len() >= self.most {
            self.drop_most_silent();
        }
        let totals = report.totals.max(&report.acked);
        let record = Record { totals, wants_first: report.wants_first, seen: now };
        let client: Arc<str> = report.client.as_ref().into();
        self.by_silence.push(Reverse((now, Arc::clone(&client))));
        self.clients.insert(client, record);
        self.living += 1;
        let is_new = report.acked == Totals::default();
        Difference { totals: totals.above(&report.acked), covers: is_new.then_some(Span::SECOND) }
    }

    /// Clients that reported within the last minute, give or take ten seconds.
    pub(crate) const fn living(&self) -> u64 {
        self.living
    }

    pub(crate) fn advance(&mut self, now: Moment) {
        if now.since(self.swept) < SWEEP_EVERY {
            return;
        }
        self.swept = now;
        self.clients.retain(|_, record| now.since(record.seen) < KEPT_FOR);
        self.by_silence.retain(|Reverse((_, client))| self.clients.contains_key(client));
        self.living = self.clients.values().filter(|record| record.lives(now)).count() as u64;
    }

    /// The longest time since any client that was heard of within the last minute reported.
    pub(crate) fn longest_silence(&self, now: Moment) -> Option<Span> {
        let living = self.clients.values().filter(|record| record.lives(now));
        living.map(|record| now.since(record.seen)).max()
    }

    /// First attempts per second that clients wanted last, as long as what they got for it may last.
    pub(crate) fn wanted(&self, now: Moment) -> MicrosPerSecond {
        let recent = self.clients.values().filter(|record| now.since(record.seen) < LEASE_TTL);
        recent.fold(MicrosPerSecond::ZERO, |sum, record| sum.saturating_add(record.wants_first))
    }

    /// Of several that are equally silent, the first by its id.
    fn drop_most_silent(&mut self) {
        while let Some(mut first) = self.by_silence.peek_mut() {
            let Reverse((seen, client)) = &mut *first;
            match self.clients.get(client) {
                Some(record) if record.seen > *seen => *seen = record.seen,
                _ => {
                    self.clients.remove(client);
                    PeekMut::pop(first);
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn report(logical: u64, acked: u64) -> Report {
        Report {
            client: "a".into(),
            totals: Totals { logical, ..Totals::default() },
            acked: Totals { logical: acked, ..Totals::default() },
            ..Report::default()
        }
    }

    fn added(ledger: &mut Ledger, logical: u64, acked: u64) -> u64 {
        ledger.difference(Moment::ORIGIN, &report(logical, acked)).totals.logical
    }

    #[test]
    fn lost_repeated_and_reordered_reports_count_once() {
        let mut ledger = Ledger::new(Moment::ORIGIN);
        let added: Vec<u64> = [10, 10, 30, 20, 30, 45].map(|n| added(&mut ledger, n, 0)).to_vec();
        assert_eq!(added, [10, 0, 20, 0, 0, 15]);
    }

    #[test]
    fn a_server_that_lost_its_record_counts_from_the_baseline() {
        let mut ledger = Ledger::new(Moment::ORIGIN);
        assert_eq!(added(&mut ledger, 100, 80), 20);
        assert_eq!(added(&mut ledger, 110, 80), 10, "the baseline of a known client is its record");
    }

    #[test]
    fn how_long_a_report_covers_is_known_of_known_and_of_new_clients() {
        let mut ledger = Ledger::new(Moment::ORIGIN);
        let mut covers = |seconds, acked| {
            ledger.difference(Moment::ORIGIN.after(Span::from_secs(seconds)), &report(100, acked)).covers
        };
        assert_eq!(covers(0, 80), None, "it reported to another life of the server");
        assert_eq!(covers(3, 80), Some(Span::from_secs(3)));
        let new = Ledger::new(Moment::ORIGIN).difference(Moment::ORIGIN, &report(100, 0)).covers;
        assert_eq!(new, Some(Span::SECOND));
    }

    #[test]
    fn a_baseline_above_the_totals_adds_nothing_now_or_later() {
        let mut ledger = Ledger::new(Moment::ORIGIN);
        assert_eq!(added(&mut ledger, 10, 50), 0);
        assert_eq!(added(&mut ledger, 50, 0), 0);
        assert_eq!(added(&mut ledger, 51, 0), 1);
    }

    #[test]
    fn the_living_are_those_of_the_last_minute() {
        let mut ledger = Ledger::new(Moment::ORIGIN);
        added(&mut ledger, 1, 0);
        assert_eq!(ledger.living(), 1);
        ledger.advance(Moment::ORIGIN.after(Span::from_secs(61)));
        assert_eq!(ledger.living(), 0);
        ledger.difference(Moment::ORIGIN.after(Span::from_secs(62)), &report(2, 0));
        assert_eq!(ledger.living(), 1);
    }

    #[test]
    fn the_table_is_bounded() {
        let mut ledger = Ledger::new(Moment::ORIGIN);
        for number in 0..MOST as u64 + 3 {
            let report = Report { client: number.to_string().into(), ..report(1, 0) };
            ledger.difference(Moment::from_nanos(number), &report);
        }
        assert_eq!(ledger.clients.len(), MOST);
        assert!(!ledger.clients.contains_key("0"), "the most silent one made room");
    }

    /// What a ledger remembers of whom, found by looking at everyone.
    struct Scan {
        seen: HashMap<String, Moment>,
        swept: Moment,
    }

    impl Scan {
        fn report(&mut self, now: Moment, client: &str, most: usize) {
            if now.since(self.swept) >= SWEEP_EVERY {
                self.swept = now;
                self.seen.retain(|_, seen| now.since(*seen) < KEPT_FOR);
            }
            if !self.seen.contains_key(client) && self.seen.len() >= most {
                let silent = self.seen.iter().min_by_key(|(client, seen)| (**seen, *client));
                let silent = silent.unwrap().0.clone();
                self.seen.remove(&silent);
            }
            self.seen.insert(client.to_owned(), now);
        }
    }

    proptest! {
        #[test]
        fn who_makes_room_is_whom_a_scan_would_find(
            reports in prop::collection::vec((0..12_u32, prop_oneof![8 => 0..3_u64, 1 => 0..700_u64]), 1..200),
            most in 1..8_usize,
        ) {
            let mut ledger = Ledger::of(most, Moment::ORIGIN);
            let mut scan = Scan { seen: HashMap::new(), swept: Moment::ORIGIN };
            let mut now = Moment::ORIGIN;
            for (client, seconds) in reports {
                now = now.after(Span::from_secs(seconds));
                let client = client.to_string();
                ledger.difference(now, &Report { client: client.as_str().into(), ..report(1, 0) });
                scan.report(now, &client, most);
                let known: HashMap<String, Moment> =
                    ledger.clients.iter().map(|(client, record)| (client.to_string(), record.seen)).collect();
                prop_assert_eq!(&known, &scan.seen);
                prop_assert_eq!(ledger.by_silence.len(), known.len(), "everyone has one place");
            }
        }
    }
}
