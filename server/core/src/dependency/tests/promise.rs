//! The budget promise of a fleet, over random histories of lost, late, repeated and reordered reports, crashes
//! and clock jumps, with a control that breaks it.
//!
//! For every interval: issued <= B + rho x F + r x t, with F the distinct first attempts that succeeded. A
//! success is paid out over the second after the one in which it was reported, or over up to eight if the report
//! covers that long, so F counts from nine seconds before the interval. The allowed excess is nothing.

use proptest::prelude::*;

use super::bench::{Bench, retry};
use crate::{Ask, Asked, Moment, Priority, Report, Span, Totals, Verdict};

const RATIO_PPM: u64 = 100_000;
const FLOOR_PER_S: u64 = 2;
/// One second of the largest rate that the histories below can reach.
const BURST: u64 = 40;
const LAG: Span = Span::from_secs(9);

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A client starts first attempts, of which some succeed.
    Work {
        client: usize,
        started: u64,
        succeeded: u64,
    },
    /// Its report arrives so many times, or never.
    Report {
        client: usize,
        copies: usize,
    },
    /// An old report arrives again.
    Replay {
        pick: usize,
    },
    /// The client is gone; another takes its place.
    Crash {
        client: usize,
    },
    Ask {
        client: usize,
        copies: usize,
        patient: bool,
    },
    Pass {
        ms: u64,
    },
    /// A clock that runs back for a moment.
    JumpBack {
        ms: u64,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    const CLIENTS: usize = 4;
    let step = prop_oneof![
        4 => (0..CLIENTS, 0..60_u64, 0..=100_u64).prop_map(|(client, started, percent)| {
            Step::Work { client, started, succeeded: started * percent / 100 }
        }),
        4 => (0..CLIENTS, 0..4_usize).prop_map(|(client, copies)| Step::Report { client, copies }),
        1 => any::<usize>().prop_map(|pick| Step::Replay { pick }),
        1 => (0..CLIENTS).prop_map(|client| Step::Crash { client }),
        6 => (0..CLIENTS, 1..40_usize, any::<bool>())
            .prop_map(|(client, copies, patient)| Step::Ask { client, copies, patient }),
        6 => (0..1500_u64).prop_map(|ms| Step::Pass { ms }),
        1 => (0..5000_u64).prop_map(|ms| Step::JumpBack { ms }),
    ];
    prop::collection::vec(step, 1..200)
}

#[derive(Clone, Debug, Default)]
struct Client {
    incarnation: u32,
    totals: Totals,
}

/// Who decides: the dependency, or a build without the limit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Limit {
    Enforced,
    Removed,
}

struct History {
    bench: Bench,
    limit: Limit,
    clients: Vec<Client>,
    reports: Vec<Report>,
    /// Distinct successes, by the moment at which they were first reported.
    deposits: Vec<(Moment, u64)>,
    known: std::collections::BTreeMap<Box<str>, u64>,
    issued: Vec<Moment>,
}

impl History {
    fn new(limit: Limit) -> Self {
        let bench = Bench::cold(|draft| {
            draft.retry.ratio = Some(RATIO_PPM as f64 / 1e6);
            draft.retry.floor_per_s = Some(FLOOR_PER_S as f64);
            draft.retry.burst = Some(BURST as f64);
        });
        Self {
            bench,
            limit,
            clients: vec![Client::default(); 4],
            reports: Vec::new(),
            deposits: Vec::new(),
            known: Default::default(),
            issued: Vec::new(),
        }
    }

    fn play(&mut self, step: Step) {
        match step {
            Step::Work { client, started, succeeded } => {
                let totals = &mut self.clients[client].totals;
                totals.logical += started;
                totals.physical += started;
                totals.success += succeeded;
            }
            Step::Report { client, copies } => {
                let Client { incarnation, totals } = self.clients[client].clone();
                let name = format!("{client}.{incarnation}").into();
                let report = Report { client: name, tenant: "t".into(), totals, ..Report::default() };
                self.reports.push(report.clone());
                (0..copies).for_each(|_| self.deliver(&report));
            }
            Step::Replay { pick } => {
                if let Some(place) = pick.checked_rem(self.reports.len()) {
                    self.deliver(&self.reports[place].clone());
                }
            }
            Step::Crash { client } => {
                let incarnation = self.clients[client].incarnation + 1;
                self.clients[client] = Client { incarnation, ..Client::default() };
            }
            Step::Ask { client, copies, patient } => (0..copies).for_each(|_| self.ask(client, patient)),
            Step::Pass { ms } => self.bench.pass(Span::from_millis(ms)),
            Step::JumpBack { ms } => {
                let earlier = Moment::from_nanos(self.bench.now.as_nanos().saturating_sub(ms * 1_000_000));
                self.bench.dependency.poll(earlier);
            }
        }
        self.collect();
    }

    fn deliver(&mut self, report: &Report) {
        let known = self.known.entry(report.client.clone()).or_default();
        let fresh = report.totals.success.saturating_sub(*known);
        *known += fresh;
        self.deposits.push((self.bench.now, fresh));
        self.bench.dependency.sync(self.bench.now, report);
    }

    fn ask(&mut self, client: usize, patient: bool) {
        let ask = Ask {
            tenant: (client % 2).to_string().into(),
            priority: Priority::ALL[client % 3],
            max_wait: (!patient).then_some(Span::ZERO),
            ..retry()
        };
        let granted = match self.bench.ask(&ask) {
            Asked::Decided(decision) => decision.verdict == Verdict::Granted,
            Asked::Waiting(_) => false,
        };
        if granted || self.limit == Limit::Removed {
            self.issued.push(self.bench.now);
        }
    }

    fn collect(&mut self) {
        for (_, (at, decision)) in std::mem::take(&mut self.bench.released) {
            if decision.verdict == Verdict::Granted && self.limit == Limit::Enforced {
                self.issued.push(at);
            }
        }
        self.issued.sort_unstable();
    }

    /// The first interval that issued more than the promise, in micro-tokens.
    fn violation(&self) -> Option<(Moment, Moment, u64, u64)> {
        for (first, start) in self.issued.iter().enumerate() {
            for (last, end) in self.issued.iter().enumerate().skip(first) {
                let issued = (last - first + 1) as u64 * 1_000_000;
                let since = Moment::from_nanos(start.as_nanos().saturating_sub(LAG.as_nanos()));
                let in_reach = self.deposits.iter().filter(|(at, _)| since <= *at && at <= end);
                let earned = in_reach.map(|(_, count)| count * RATIO_PPM).sum::<u64>();
                let floor = (end.since(*start).as_nanos() * FLOOR_PER_S).div_ceil(1000);
                let allowed = BURST * 1_000_000 + earned + floor;
                if issued > allowed {
                    return Some((*start, *end, issued, allowed));
                }
            }
        }
        None
    }
}

fn violation(limit: Limit, steps: Vec<Step>) -> Option<(Moment, Moment, u64, u64)> {
    let mut history = History::new(limit);
    steps.into_iter().for_each(|step| history.play(step));
    history.bench.pass(Span::from_secs(5));
    history.collect();
    // I2 of the goals: what clients reported is counted exactly once.
    let counted = history.bench.dependency.snapshot(history.bench.now).totals.success;
    assert_eq!(counted, history.known.values().sum::<u64>());
    history.violation()
}

proptest! {
    #[test]
    fn no_history_issues_more_than_the_promise(steps in steps()) {
        prop_assert_eq!(violation(Limit::Enforced, steps), None);
    }
}

/// The control: an oracle that cannot fail proves nothing.
#[test]
fn without_the_limit_the_same_oracle_finds_the_excess() {
    let storm = (0..20).map(|client| Step::Ask { client: client % 4, copies: 30, patient: true }).collect();
    assert!(violation(Limit::Removed, storm).is_some());
}
