//! One breaker for the fleet, or one for each tenant, and what its closing releases (C9 of the goals).

use super::bench::{Bench, ms, retry, retry_now};
use crate::{
    Ask, Asked, BreakerState, Class, Force, Kind, MicrosPerSecond, Reason, Report, Scope, Span, Totals,
    Verdict,
};

const CLIENTS: usize = 1000;

fn probe() -> Ask {
    Ask { kind: Kind::First, attempt: 1, failure: None, ..retry() }
}

/// A fleet of clients that want one first attempt per second each.
struct Fleet {
    bench: Bench,
    totals: Vec<Totals>,
    last: Option<crate::FirstLease>,
}

impl Fleet {
    fn new() -> Self {
        let bench = Bench::cold(|_| {});
        Self { bench, totals: vec![Totals::default(); CLIENTS], last: None }
    }

    /// Everyone syncs once within a second; the first-attempt rate that they hold together, if it is limited.
    fn sync(&mut self, each: Totals) -> Option<f64> {
        let mut leased = Some(0.0);
        for client in 0..CLIENTS {
            self.totals[client].add(&each);
            let view = self.bench.dependency.breaker(self.bench.now, "checkout");
            let report = Report {
                client: client.to_string().into(),
                tenant: "checkout".into(),
                wants_first: MicrosPerSecond::from_per_s(1),
                totals: self.totals[client],
                breaker_version: view.version,
                probes: Some(Vec::new()),
                ..Report::default()
            };
            let advice = self.bench.dependency.sync(self.bench.now, &report);
            leased = leased.zip(advice.first).map(|(sum, lease)| sum + lease.rate.as_per_s());
            self.last = advice.first.or(self.last);
            self.bench.pass(ms(1));
        }
        leased
    }

    fn healthy(&mut self) -> Option<f64> {
        self.sync(Totals { logical: 1, physical: 1, success: 1, ..Totals::default() })
    }

    fn failing(&mut self) -> Option<f64> {
        let mut totals = Totals { logical: 1, physical: 1, ..Totals::default() };
        totals.failures[Class::Transient.index()] = 1;
        self.sync(totals)
    }

    fn state(&mut self) -> BreakerState {
        self.bench.dependency.breaker(self.bench.now, "checkout").state
    }
}

#[test]
fn closing_releases_a_tenth_of_the_earlier_rate_and_ramps_over_ten_seconds() {
    let mut fleet = Fleet::new();
    for _ in 0..12 {
        assert_eq!(fleet.healthy(), None, "nothing limits first attempts");
    }
    while fleet.state() == BreakerState::Closed {
        fleet.failing();
    }
    let idle = Totals::default();
    while fleet.state() == BreakerState::Open {
        let held = fleet.sync(idle).unwrap();
        assert!(held <= 100.0, "{held}");
    }
    for _ in 0..5 {
        let Asked::Decided(decision) = fleet.bench.ask(&probe()) else { panic!("waits") };
        let token = decision.grant.unwrap().token;
        let report = Report {
            client: "0".into(),
            tenant: "checkout".into(),
            totals: fleet.totals[0],
            probes: Some(vec![(token, true)]),
            ..Report::default()
        };
        fleet.bench.dependency.sync(fleet.bench.now, &report);
    }
    assert_eq!(fleet.state(), BreakerState::Closed);
    let ramp: Vec<f64> = (0..10).map_while(|_| fleet.sync(idle)).collect();
    assert_eq!(ramp.len(), 10, "ten seconds: {ramp:?}");
    assert!(ramp[0] <= 100.0, "a tenth of the earlier thousand in the first second: {ramp:?}");
    assert!(ramp.windows(2).all(|pair| pair[0] <= pair[1] + 1.0), "{ramp:?}");
    assert!(ramp[9] >= 800.0, "{ramp:?}");
    let last = fleet.last.unwrap();
    let usual = last.safe.as_per_s() * CLIENTS as f64;
    assert!((900.0..=1100.0).contains(&usual), "should the server die in the ramp: {usual}");
    assert_eq!(last.safe_for, Some(Span::from_secs(30)), "and then nothing, because no capacity is known");
    assert_eq!(fleet.sync(idle), None, "then nothing limits them");
}

#[test]
fn a_thousand_clients_get_exactly_the_permitted_probes() {
    let mut bench = Bench::fixed(1000.0);
    bench.trip();
    bench.pass(Span::from_secs(33));
    let granted = |bench: &mut Bench| {
        (0..CLIENTS).filter(|_| bench.decide(&probe()).verdict == Verdict::Granted).count()
    };
    assert_eq!(granted(&mut bench), 3);
    bench.pass(ms(4999));
    assert_eq!(granted(&mut bench), 0);
    bench.pass(ms(1));
    assert_eq!(granted(&mut bench), 3, "the leases of lost probes have expired");
}

#[test]
fn a_tenants_own_breaker_leaves_the_others_alone() {
    let mut bench = Bench::new(|draft| {
        draft.retry.per_s = Some(1000.0);
        draft.breaker.scope = Some(Scope::Tenant);
    });
    bench.trip();
    assert_eq!(bench.reason(&retry_now()), Reason::BreakerOpen);
    let other = Ask { tenant: "another".into(), ..retry_now() };
    assert_eq!(bench.reason(&other), Reason::WithinBudget);
    assert_eq!(bench.dependency.snapshot(bench.now).breaker.state, BreakerState::Open, "the worst one");
    let transitions = bench.dependency.take_transitions();
    assert_eq!(transitions.len(), 1);
    assert_eq!(transitions[0].tenant.as_deref(), Some("checkout"));
    bench.pass(Span::from_secs(33));
    assert_eq!(bench.reason(&probe()), Reason::Probe, "time alone turns it half-open");
    bench.dependency.force_breaker(bench.now, Some(Force::Closed));
    assert_eq!(bench.reason(&retry_now()), Reason::WithinBudget);
}

#[test]
fn a_tenants_opening_breaker_answers_its_own_asks_alone() {
    let mut bench = Bench::cold(|draft| {
        draft.retry.per_s = Some(10.0);
        draft.breaker.scope = Some(Scope::Tenant);
    });
    bench.decide(&retry_now());
    let own = bench.wait(&retry());
    let other = bench.wait(&Ask { tenant: "another".into(), ..retry() });
    bench.trip();
    assert_eq!((bench.released(own), bench.released(other)), (Some(Reason::BreakerOpen), None));
}

#[test]
fn slow_attempts_open_it_whether_they_have_ended_or_not() {
    let slow = |slow, policy: Option<u64>| {
        let mut bench = Bench::new(|draft| draft.breaker.slow_call_ms = policy);
        bench.report(Totals { logical: 100, physical: 100, slow, ..Totals::default() });
        bench.dependency.breaker(bench.now, "checkout").state
    };
    assert_eq!(slow(79, Some(500)), BreakerState::Closed);
    assert_eq!(slow(80, Some(500)), BreakerState::Open);
    assert_eq!(slow(100, None), BreakerState::Closed, "without a policy nothing is slow");
}

#[test]
fn transitions_come_out_in_their_order() {
    let mut bench = Bench::fixed(10.0);
    bench.trip();
    bench.pass(Span::from_secs(33));
    bench.dependency.force_breaker(bench.now, Some(Force::Closed));
    let told: Vec<_> =
        bench.dependency.take_transitions().iter().map(|t| (t.breaker.state, t.breaker.version)).collect();
    assert_eq!(told, [(BreakerState::Open, 2), (BreakerState::HalfOpen, 3), (BreakerState::Closed, 4)]);
    assert!(bench.dependency.take_transitions().is_empty());
}

#[test]
fn where_only_retries_are_stopped_first_attempts_are_not_ramped() {
    let mut bench = Bench::new(|draft| draft.breaker.on_open = Some(crate::OnOpen::Retries));
    bench.trip();
    let report = Report { client: "a".into(), tenant: "checkout".into(), ..Report::default() };
    assert_eq!(bench.dependency.sync(bench.now, &report).first, None);
}

#[test]
fn nobody_can_have_seen_a_version_that_an_older_server_did_not_give_out() {
    let mut bench = Bench::cold(|_| {});
    bench.pass(Span::from_secs(6));
    let claim = Report {
        client: "liar".into(),
        tenant: "checkout".into(),
        breaker_version: 2,
        breaker_state: Some(BreakerState::Open),
        ..Report::default()
    };
    let view = bench.dependency.sync(bench.now, &claim).breaker;
    assert_eq!((view.state, view.version), (BreakerState::Closed, 1));
}

#[test]
fn totals_settle_the_probes_of_their_own_tenant_alone() {
    let mut bench = Bench::fixed(10.0);
    bench.trip();
    bench.pass(Span::from_secs(33));
    assert_eq!(bench.reason(&probe()), Reason::Probe);
    let mut totals = Totals { success: 100, ..Totals::default() };
    totals.failures[Class::Transient.index()] = 100;
    let version = bench.dependency.breaker(bench.now, "checkout").version;
    let stranger = Report {
        client: "stranger".into(),
        tenant: "stranger".into(),
        totals,
        breaker_version: version,
        ..Report::default()
    };
    assert_eq!(bench.dependency.sync(bench.now, &stranger).breaker.state, BreakerState::HalfOpen);
    let own = Report { client: "own".into(), tenant: "checkout".into(), ..stranger };
    assert_eq!(bench.dependency.sync(bench.now, &own).breaker.state, BreakerState::Open);
}
