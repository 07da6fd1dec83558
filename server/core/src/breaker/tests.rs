use super::*;
use crate::{BreakerDraft, Policy, PolicyDraft};

const PROBE_TTL: Span = Span::from_secs(5);

struct Bench {
    breaker: Breaker,
    now: Moment,
    next_token: u64,
}

impl Bench {
    fn new(edit: impl FnOnce(&mut BreakerDraft)) -> Self {
        let mut draft = PolicyDraft::default();
        edit(&mut draft.breaker);
        let policy = Policy::new(&draft).unwrap();
        let breaker = Breaker::new(Moment::ORIGIN, policy.breaker, Jitter::new(1));
        Self { breaker, now: Moment::ORIGIN, next_token: 0 }
    }

    /// A report of a client that has seen the present version.
    fn report(&mut self, success: u64, class: Class, failed: u64) -> BreakerState {
        self.report_as_of(self.breaker.version, success, class, failed)
    }

    fn report_as_of(
        &mut self,
        breaker_version: u64,
        success: u64,
        class: Class,
        failed: u64,
    ) -> BreakerState {
        let mut difference = Totals { success, ..Totals::default() };
        difference.failures[class.index()] = failed;
        let report = Report { breaker_version, ..Report::default() };
        self.breaker.report(self.now, TenantKey::NOBODY, &report, &difference);
        self.breaker.state()
    }

    fn settle(&mut self, token: TokenId, success: bool) -> BreakerState {
        let report = Report {
            breaker_version: self.breaker.version,
            probes: Some(vec![(token, success)]),
            ..Report::default()
        };
        self.breaker.report(self.now, TenantKey::NOBODY, &report, &Totals::default());
        self.breaker.state()
    }

    fn pass(&mut self, span: Span) -> BreakerState {
        self.now = self.now.after(span);
        self.breaker.advance(self.now);
        self.breaker.state()
    }

    fn trip(&mut self) {
        assert_eq!(self.report(0, Class::Transient, 100), BreakerState::Open);
    }

    fn half_open(&mut self) {
        self.trip();
        assert_eq!(self.pass(self.breaker.open_until.since(self.now)), BreakerState::HalfOpen);
    }

    fn probe(&mut self) -> Option<TokenId> {
        self.breaker.has_probe().then(|| {
            self.next_token += 1;
            let token = TokenId::from_number(self.next_token);
            self.breaker.lease_probe(self.now, TenantKey::NOBODY, token);
            token
        })
    }
}

#[test]
fn it_opens_at_the_share_and_not_below_the_volume() {
    let mut bench = Bench::new(|_| {});
    assert_eq!(bench.report(0, Class::Transient, 19), BreakerState::Closed, "below the volume");
    assert_eq!(bench.report(6, Class::Transient, 4), BreakerState::Closed, "23 of 29 is below 0.8");
    assert_eq!(bench.report(0, Class::Fatal, 1), BreakerState::Open, "24 of 30 is 0.8");
}

#[test]
fn refusals_of_the_request_say_nothing_about_the_service() {
    for class in [Class::Invalid, Class::Permission, Class::RateLimited, Class::Semantic] {
        let mut bench = Bench::new(|_| {});
        assert_eq!(bench.report(0, class, 1000), BreakerState::Closed, "{class:?}");
    }
}

#[test]
fn old_failures_leave_the_window() {
    let mut bench = Bench::new(|_| {});
    bench.report(0, Class::Transient, 19);
    bench.pass(Span::from_secs(10));
    assert_eq!(bench.report(0, Class::Transient, 19), BreakerState::Closed);
}

#[test]
fn failures_in_a_row_open_it_and_only_a_success_ends_the_row() {
    let mut bench = Bench::new(|draft| draft.consecutive = Some(5));
    bench.report(0, Class::Transient, 4);
    bench.report(0, Class::Invalid, 3);
    bench.report(1, Class::Transient, 0);
    assert_eq!(bench.report(0, Class::Transient, 4), BreakerState::Closed);
    assert_eq!(bench.report(0, Class::Transient, 1), BreakerState::Open);
}

#[test]
fn it_stays_open_for_its_time_and_doubles_up_to_the_longest() {
    let mut bench = Bench::new(|draft| {
        draft.open_for_ms = Some(1000);
        draft.open_for_max_ms = Some(3000);
    });
    let mut spans = Vec::new();
    bench.trip();
    for _ in 0..4 {
        let span = bench.breaker.open_for(bench.now);
        spans.push(span.as_millis());
        assert_eq!(bench.pass(span.saturating_sub(Span::from_nanos(1))), BreakerState::Open);
        assert_eq!(bench.pass(Span::from_nanos(1)), BreakerState::HalfOpen);
        let probe = bench.probe().unwrap();
        assert_eq!(bench.settle(probe, false), BreakerState::Open);
    }
    assert!((1000..=1100).contains(&spans[0]), "{spans:?}");
    assert!((2000..=2200).contains(&spans[1]), "{spans:?}");
    assert_eq!(spans[2..], [3000, 3000]);
}

#[test]
fn closing_takes_the_configured_successes_and_starts_level() {
    // It closes well within the window in which it opened.
    let mut bench = Bench::new(|draft| draft.open_for_ms = Some(100));
    bench.half_open();
    for success in 1..=5 {
        let probe = bench.probe().unwrap();
        let expected = if success < 5 { BreakerState::HalfOpen } else { BreakerState::Closed };
        assert_eq!(bench.settle(probe, true), expected);
    }
    assert_eq!(bench.report(0, Class::Transient, 19), BreakerState::Closed, "the old window is gone");
    assert_eq!(bench.breaker.openings, 0, "the next opening starts from open_for again");
}

#[test]
fn never_more_probes_than_permits_and_a_dead_holder_frees_its_place() {
    let mut bench = Bench::new(|_| {});
    bench.half_open();
    for _ in 0..1000 {
        let out: Vec<TokenId> = std::iter::from_fn(|| bench.probe()).collect();
        assert_eq!(out.len(), 3);
        assert_eq!(bench.pass(PROBE_TTL.saturating_sub(Span::from_nanos(1))), BreakerState::HalfOpen);
        assert_eq!(bench.probe(), None);
        bench.pass(Span::from_nanos(1));
    }
    assert!(bench.probe().is_some());
}

#[test]
fn a_probe_that_was_not_used_is_handed_out_again() {
    let mut bench = Bench::new(|draft| draft.probes = Some(1));
    bench.half_open();
    let probe = bench.probe().unwrap();
    assert!(bench.breaker.return_probe(probe));
    assert!(!bench.breaker.return_probe(probe));
    assert!(bench.probe().is_some());
}

#[test]
fn results_of_an_older_version_are_counted_and_ignored() {
    let mut bench = Bench::new(|_| {});
    let old = bench.breaker.version;
    bench.half_open();
    let probe = bench.probe().unwrap();
    assert_eq!(bench.report_as_of(old, 50, Class::Transient, 50), BreakerState::HalfOpen);
    assert_eq!(bench.breaker.stale_results(), 100);
    assert_eq!(bench.settle(TokenId::from_number(999), false), BreakerState::HalfOpen);
    assert_eq!(bench.breaker.stale_results(), 101);
    bench.settle(probe, true);
    assert_eq!(bench.breaker.probe_successes, 1);
}

#[test]
fn totals_settle_no_more_probes_than_are_out() {
    let mut bench = Bench::new(|_| {});
    bench.half_open();
    assert_eq!(bench.report(100, Class::Transient, 0), BreakerState::HalfOpen, "no probe is out");
    bench.probe();
    bench.probe();
    assert_eq!(bench.report(100, Class::Transient, 0), BreakerState::HalfOpen);
    assert_eq!(bench.breaker.probe_successes, 2);
    bench.probe();
    assert_eq!(bench.report(0, Class::Fatal, 1), BreakerState::Open);
}

#[test]
fn every_transition_raises_the_version() {
    let mut bench = Bench::new(|_| {});
    let mut versions = vec![bench.breaker.version];
    bench.trip();
    versions.push(bench.breaker.version);
    bench.pass(bench.breaker.open_for(bench.now));
    versions.push(bench.breaker.version);
    let probe = bench.probe().unwrap();
    bench.settle(probe, false);
    versions.push(bench.breaker.version);
    bench.breaker.force(bench.now, Some(Force::Closed));
    versions.push(bench.breaker.version);
    assert!(versions.windows(2).all(|pair| pair[0] < pair[1]), "{versions:?}");
}

#[test]
fn a_forced_state_stays_until_released() {
    let mut bench = Bench::new(|_| {});
    bench.breaker.force(bench.now, Some(Force::Closed));
    assert_eq!(bench.report(0, Class::Fatal, 1000), BreakerState::Closed);
    bench.breaker.force(bench.now, Some(Force::Open));
    assert_eq!(bench.pass(Span::from_secs(86_400)), BreakerState::Open);
    bench.breaker.force(bench.now, None);
    assert_eq!(bench.breaker.state(), BreakerState::HalfOpen, "it tests before it closes");
}

#[test]
fn a_restart_does_not_close_what_clients_saw_open() {
    let mut bench = Bench::new(|_| {});
    let saw_open =
        Report { breaker_version: 9, breaker_state: Some(BreakerState::Open), ..Report::default() };
    bench.breaker.adopt(bench.now, &saw_open);
    assert_eq!(bench.breaker.state(), BreakerState::Open);
    assert!(bench.breaker.version > 9);

    let mut bench = Bench::new(|_| {});
    let saw_closed = Report { breaker_state: Some(BreakerState::Closed), ..saw_open };
    bench.breaker.adopt(bench.now, &saw_closed);
    assert_eq!((bench.breaker.state(), bench.breaker.version), (BreakerState::Closed, 9));
}

#[test]
fn an_absurd_version_is_not_taken_over() {
    let mut bench = Bench::new(|_| {});
    bench.report_as_of(u64::MAX, 0, Class::Transient, 100);
    assert_eq!(bench.breaker.version, 1);
    assert_eq!(bench.report(0, Class::Transient, 100), BreakerState::Open, "it still works");
}
