use proptest::prelude::*;

use super::*;
use crate::tenants::Tenants;

struct Bench {
    allocations: Allocations,
    tenants: Tenants,
    now: Moment,
    limit: MicrosPerSecond,
}

impl Bench {
    /// Past the learning phase.
    fn new(limit: u64) -> Self {
        let mut bench = Self::learning(limit);
        bench.now = bench.now.after(TTL);
        bench
    }

    fn learning(limit: u64) -> Self {
        Self {
            allocations: Allocations::new(Moment::ORIGIN),
            tenants: Tenants::default(),
            now: Moment::ORIGIN,
            limit: per_s(limit),
        }
    }

    fn sync(&mut self, tenant: &str, client: &str, weight: u32, wants: u64, has: u64) -> Option<f64> {
        self.lease(tenant, client, weight, wants, has).map(MicrosPerSecond::as_per_s)
    }

    fn lease(
        &mut self,
        tenant: &str,
        client: &str,
        weight: u32,
        wants: u64,
        has: u64,
    ) -> Option<MicrosPerSecond> {
        let key = self.tenants.key(self.now, tenant, |_| false);
        let claim = Claim::new(key, weight, per_s(wants), per_s(has), false);
        let lease = self.allocations.lease(
            self.now,
            client,
            claim,
            self.limit,
            Fallback::new(Some(self.limit), MicrosPerSecond::ZERO),
        );
        lease.map(|lease| lease.rate)
    }

    /// Lets everyone sync once a second; what they hold in the end.
    fn settle(&mut self, clients: &[(&str, &str, u32, u64)]) -> Vec<f64> {
        let mut held = Vec::new();
        for _ in 0..4 {
            self.now = self.now.after(Span::SECOND);
            held = clients
                .iter()
                .map(|(tenant, client, weight, wants)| {
                    self.sync(tenant, client, *weight, *wants, 0).expect("a lease")
                })
                .collect();
        }
        held
    }
}

fn per_s(rate: u64) -> MicrosPerSecond {
    MicrosPerSecond::from_per_s(rate)
}

#[test]
fn who_wants_less_than_its_share_gets_it_and_the_rest_share_the_rest() {
    let mut bench = Bench::new(100);
    let held = bench.settle(&[("a", "1", 1, 10), ("b", "2", 1, 80), ("c", "3", 1, 80)]);
    assert_eq!(held, [10.0, 45.0, 45.0]);
}

#[test]
fn tenants_share_by_weight_and_clients_of_a_tenant_alike() {
    let mut bench = Bench::new(80);
    let held = bench.settle(&[
        ("heavy", "1", 3, 90),
        ("heavy", "2", 3, 90),
        ("light", "3", 1, 90),
        ("light", "4", 1, 5),
    ]);
    assert_eq!(held, [30.0, 30.0, 15.0, 5.0]);
}

#[test]
fn while_nobody_is_short_everyone_has_room_to_grow() {
    let mut bench = Bench::new(100);
    let held = bench.settle(&[("a", "1", 1, 10), ("b", "2", 1, 10)]);
    assert_eq!(held, [30.0, 30.0], "half of the spare 80 is handed out, half is kept for newcomers");
}

#[test]
fn a_newcomer_finds_room_at_once_and_its_share_within_two_syncs() {
    let mut bench = Bench::new(100);
    bench.settle(&[("a", "1", 1, 200)]);
    let first = bench.sync("b", "2", 1, 200, 0).unwrap();
    bench.now = bench.now.after(Span::SECOND);
    let old = bench.sync("a", "1", 1, 200, 100).unwrap();
    let second = bench.sync("b", "2", 1, 200, 0).unwrap();
    assert_eq!((first, old, second), (0.0, 50.0, 50.0));
}

#[test]
fn a_crowd_that_fits_is_served_from_its_first_lease_on() {
    let mut bench = Bench::learning(48);
    let names: Vec<String> = (0..41).map(|client| client.to_string()).collect();
    for name in &names {
        assert_eq!(bench.sync("t", name, 1, 1, 0), None, "nobody holds anything yet");
    }
    bench.now = bench.now.after(TTL);
    for _ in 0..3 {
        for name in &names {
            let held = bench.sync("t", name, 1, 1, 0).unwrap();
            assert!(held >= 1.0, "client {name} holds {held}");
            bench.now = bench.now.after(Span::from_millis(20));
        }
    }
    // The same without a learning phase before it.
    let mut bench = Bench::new(48);
    assert!(names.iter().all(|name| bench.sync("t", name, 1, 1, 0).unwrap() >= 1.0));
}

#[test]
fn a_lease_that_ran_out_is_free_again() {
    let mut bench = Bench::new(100);
    bench.settle(&[("a", "gone", 1, 100)]);
    bench.now = bench.now.after(TTL).after(Span::SECOND);
    assert_eq!(bench.sync("b", "2", 1, 100, 0), Some(100.0));
}

#[test]
fn a_young_server_honours_what_clients_hold_up_to_the_limit() {
    let mut bench = Bench::learning(100);
    assert_eq!(bench.sync("a", "1", 1, 10, 70), Some(70.0));
    assert_eq!(bench.sync("a", "2", 1, 90, 70), Some(30.0), "what is left of the limit");
    assert_eq!(bench.sync("a", "new", 1, 50, 0), None, "no lease yet, so nothing holds it down");
    bench.now = bench.now.after(TTL);
    assert!(bench.sync("a", "new", 1, 50, 0).is_some());
}

proptest! {
    /// Whoever comes and goes, the leases that are out never exceed the limit.
    #[test]
    fn leases_never_exceed_the_limit(
        limit in 1..1000_u64,
        syncs in prop::collection::vec((0..8_u8, 1..4_u32, 0..500_u64, 0..500_u64, 0..2500_u64), 1..120),
    ) {
        let mut bench = Bench::learning(limit);
        let mut leases: HashMap<u8, (u64, Moment)> = HashMap::new();
        for (client, weight, wants, has, gap_ms) in syncs {
            bench.now = bench.now.after(Span::from_millis(gap_ms));
            let tenant = (client % 3).to_string();
            let rate = bench.lease(&tenant, &client.to_string(), weight, wants, has);
            leases.insert(client, (rate.map_or(0, MicrosPerSecond::as_micros), bench.now.after(TTL)));
            let living = leases.values().filter(|(_, until)| *until > bench.now);
            let total: u64 = living.map(|(rate, _)| rate).sum();
            prop_assert!(total <= limit * 1_000_000, "{} of {}", total, limit);
        }
    }

    /// Max-min: nobody gets more than it wants, what is left over was wanted by nobody, and whoever got less
    /// than it wants got at least its weight's part of the level.
    #[test]
    fn the_level_is_max_min(demands in prop::collection::vec((1..5_u64, 0..1000_u64), 1..20), capacity in 0..5000_u64) {
        let level = weighted_level(&demands, capacity);
        let wanted: u64 = demands.iter().map(|(_, demand)| demand).sum();
        let gets = |(weight, demand): &(u64, u64)| level.map_or(*demand, |level| level.of(*weight).min(*demand));
        let given: u64 = demands.iter().map(gets).sum();
        prop_assert!(given <= capacity.min(wanted));
        prop_assert!(given + demands.len() as u64 >= capacity.min(wanted), "rounding alone is lost: {}", given);
        prop_assert_eq!(level.is_none(), wanted <= capacity);
    }
}
