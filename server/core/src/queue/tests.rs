use proptest::prelude::*;

use super::*;
use crate::tenants::Tenants;

struct Bench {
    queue: FairQueue,
    tenants: Tenants,
}

impl Bench {
    fn new() -> Self {
        Self { queue: FairQueue::default(), tenants: Tenants::default() }
    }

    fn ask(&mut self, tenant: &str, weight: u32) -> Waiting {
        Waiting {
            tenant: self.tenants.key(Moment::ORIGIN, tenant, |_| false),
            weight,
            kind: Kind::Retry,
            attempt: 2,
            priority: Priority::Normal,
            price: MicroTokens::ONE,
            window: Window { opens: Moment::ORIGIN, closes: Moment::from_millis(1000) },
            asked_at: Moment::ORIGIN,
            answer_key: None,
        }
    }

    fn push(&mut self, tenant: &str, weight: u32) -> AskId {
        let ask = self.ask(tenant, weight);
        self.queue.push(Moment::ORIGIN, ask)
    }

    fn serve(&mut self) -> Option<(AskId, Waiting)> {
        let (id, _) = self.queue.head()?;
        self.queue.serve(id).map(|ask| (id, ask))
    }

    fn name(&mut self, ask: &Waiting) -> Option<Box<str>> {
        self.tenants.get_mut(ask.tenant).map(|tenant| tenant.name.clone())
    }

    fn served_names(&mut self, count: usize) -> Vec<Box<str>> {
        (0..count)
            .filter_map(|_| {
                let (_, ask) = self.serve()?;
                self.name(&ask)
            })
            .collect()
    }
}

#[test]
fn backlogged_tenants_are_served_by_their_weights() {
    let mut bench = Bench::new();
    for _ in 0..40 {
        bench.push("heavy", 3);
        bench.push("light", 1);
    }
    let served = bench.served_names(40);
    assert_eq!(served.iter().filter(|name| &***name == "heavy").count(), 30);
}

#[test]
fn a_tenant_that_was_idle_has_neither_credit_nor_debt() {
    let mut bench = Bench::new();
    for _ in 0..20 {
        bench.push("busy", 1);
    }
    bench.served_names(10);
    for _ in 0..10 {
        bench.push("back", 1);
    }
    let served = bench.served_names(10);
    let of_back = served.iter().filter(|name| &***name == "back").count();
    assert!((5..=6).contains(&of_back), "an equal share from its return on, not a catch-up: {served:?}");
}

#[test]
fn one_ask_at_a_time_pays_its_share_too() {
    let mut bench = Bench::new();
    for _ in 0..20 {
        bench.push("deep", 1);
    }
    bench.push("shallow", 1);
    let mut of_shallow = 0;
    for _ in 0..20 {
        let (_, ask) = bench.serve().unwrap();
        if &*bench.tenants.get_mut(ask.tenant).unwrap().name == "shallow" {
            of_shallow += 1;
            bench.push("shallow", 1);
        }
    }
    assert!((9..=11).contains(&of_shallow), "{of_shallow}");
}

#[test]
fn inside_a_tenant_priority_comes_before_the_deadline() {
    let mut bench = Bench::new();
    let mut ids = Vec::new();
    for (priority, closes_ms) in
        [(Priority::Bulk, 10), (Priority::Normal, 300), (Priority::Normal, 200), (Priority::Critical, 900)]
    {
        let mut ask = bench.ask("a", 1);
        ask.priority = priority;
        ask.window.closes = Moment::from_millis(closes_ms);
        ids.push(bench.queue.push(Moment::ORIGIN, ask));
    }
    let order: Vec<AskId> = std::iter::from_fn(|| bench.serve().map(|(id, _)| id)).collect();
    assert_eq!(order, [ids[3], ids[2], ids[1], ids[0]]);
}

#[test]
fn priorities_never_outrank_another_tenant() {
    let mut bench = Bench::new();
    for _ in 0..10 {
        let mut ask = bench.ask("loud", 1);
        ask.priority = Priority::Critical;
        bench.queue.push(Moment::ORIGIN, ask);
        let mut ask = bench.ask("quiet", 1);
        ask.priority = Priority::Bulk;
        bench.queue.push(Moment::ORIGIN, ask);
    }
    let served = bench.served_names(10);
    assert_eq!(served.iter().filter(|name| &***name == "quiet").count(), 5);
}

#[test]
fn an_ask_is_served_only_within_its_window() {
    let mut bench = Bench::new();
    let mut ask = bench.ask("a", 1);
    ask.window = Window { opens: Moment::from_millis(100), closes: Moment::from_millis(200) };
    let id = bench.queue.push(Moment::ORIGIN, ask);
    assert!(bench.queue.head().is_none());
    assert_eq!(bench.queue.next_change(), Some(Moment::from_millis(100)));
    bench.queue.open_windows(Moment::from_millis(100));
    assert_eq!(bench.queue.head().map(|(id, _)| id), Some(id));
    assert_eq!(bench.queue.next_change(), Some(Moment::from_millis(200)));
    assert!(bench.queue.pop_closed(Moment::from_millis(199)).is_none());
    assert!(bench.queue.pop_closed(Moment::from_millis(200)).is_some());
    assert_eq!(bench.queue.len(), 0);
}

#[test]
fn room_is_made_by_the_own_lowest_priority_then_by_the_greediest_tenant() {
    let mut bench = Bench::new();
    let greedy: Vec<AskId> = (0..5).map(|_| bench.push("greedy", 1)).collect();
    let newcomer = bench.ask("modest", 1);
    assert_eq!(bench.queue.victim(&newcomer), greedy.last().copied());
    let another = bench.ask("greedy", 1);
    assert_eq!(bench.queue.victim(&another), None, "the greediest does not push itself out");

    let mut bulk = bench.ask("modest", 1);
    bulk.priority = Priority::Bulk;
    let bulk = bench.queue.push(Moment::ORIGIN, bulk);
    assert_eq!(bench.queue.victim(&newcomer), Some(bulk));
}

#[test]
fn a_newcomer_sees_what_is_in_front_of_it() {
    let mut bench = Bench::new();
    for _ in 0..4 {
        bench.push("a", 3);
    }
    bench.push("b", 1);
    let mut later = bench.ask("a", 3);
    later.window.opens = Moment::from_millis(50);
    bench.queue.push(Moment::ORIGIN, later);

    let mut urgent = bench.ask("b", 1);
    urgent.priority = Priority::Critical;
    let ahead = bench.queue.ahead(&urgent);
    assert_eq!((ahead.of_tenant, ahead.of_all), (MicroTokens::ZERO, MicroTokens::from_tokens(5)));
    assert_eq!((ahead.weight, ahead.total_weight), (1, 4));

    let mut patient = bench.ask("c", 4);
    patient.window.opens = Moment::from_millis(60);
    let ahead = bench.queue.ahead(&patient);
    assert_eq!(ahead.of_all, MicroTokens::from_tokens(6), "the one that opens before it counts");
    assert_eq!((ahead.weight, ahead.total_weight), (4, 8));
}

#[derive(Clone, Debug)]
enum Step {
    Push { tenant: u8, weight: u32, priority: usize, opens_ms: u64, lasts_ms: u64, price: u64 },
    Serve,
    Remove(u64),
    Postpone(u64, u64),
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let push = (0..5_u8, 1..4_u32, 0..3_usize, 0..50_u64, 1..100_u64, 1..5_u64).prop_map(
        |(tenant, weight, priority, opens_ms, lasts_ms, price)| Step::Push {
            tenant,
            weight,
            priority,
            opens_ms,
            lasts_ms,
            price,
        },
    );
    let step = prop_oneof![
        4 => push,
        2 => Just(Step::Serve),
        1 => (0..80_u64).prop_map(Step::Remove),
        1 => (0..80_u64, 0..80_u64).prop_map(|(id, ms)| Step::Postpone(id, ms)),
        1 => (0..30_u64).prop_map(Step::Pass),
    ];
    prop::collection::vec(step, 1..120)
}

proptest! {
    /// Whatever happens, the sums, the order and the indices say the same as the asks themselves.
    #[test]
    fn every_index_agrees_with_the_asks(steps in steps()) {
        let mut bench = Bench::new();
        let mut now = 0;
        for step in steps {
            match step {
                Step::Push { tenant, weight, priority, opens_ms, lasts_ms, price } => {
                    let mut ask = bench.ask(&tenant.to_string(), weight);
                    ask.priority = Priority::ALL[priority];
                    ask.price = MicroTokens::from_tokens(price);
                    let opens = Moment::from_millis(now + opens_ms);
                    ask.window = Window { opens, closes: Moment::from_millis(now + opens_ms + lasts_ms) };
                    bench.queue.push(Moment::from_millis(now), ask);
                }
                Step::Serve => { bench.serve(); }
                Step::Remove(id) => { bench.queue.remove(AskId(id)); }
                Step::Postpone(id, ms) => bench.queue.postpone(AskId(id), Moment::from_millis(now + 1 + ms)),
                Step::Pass(ms) => {
                    now += ms;
                    while bench.queue.pop_closed(Moment::from_millis(now)).is_some() {}
                    bench.queue.open_windows(Moment::from_millis(now));
                }
            }
            bench.queue.assert_consistent();
        }
        for id in bench.queue.ids_of(None) {
            bench.queue.remove(id);
        }
        bench.queue.assert_consistent();
        prop_assert_eq!(bench.queue.waiting_cost(), MicroTokens::ZERO);
        prop_assert_eq!(bench.queue.eligible_weight, 0);
        prop_assert!(bench.queue.lanes.is_empty());
    }
}

impl FairQueue {
    fn assert_consistent(&self) {
        assert_eq!(self.closing.len(), self.asks.len());
        let eligible: usize = self.lanes.values().map(|lane| lane.eligible_count).sum();
        assert_eq!(eligible + self.early.len(), self.asks.len());
        let sum = |asks: &mut dyn Iterator<Item = &Waiting>| {
            asks.fold(MicroTokens::ZERO, |sum, ask| sum.saturating_add(ask.price))
        };
        assert_eq!(self.cost.waiting, sum(&mut self.asks.values()));
        let early = sum(&mut self.early.iter().map(|(_, id)| &self.asks[id]));
        assert_eq!(self.cost.eligible, self.cost.waiting.saturating_sub(early));
        let ordered: Vec<TenantKey> = self.order.iter().map(|(_, tenant)| *tenant).collect();
        let backlogged = self.lanes.iter().filter(|(_, lane)| lane.eligible_count > 0);
        assert_eq!(ordered.len(), backlogged.clone().count());
        assert!(backlogged.clone().all(|(tenant, lane)| self.order.contains(&(lane.virtual_time, *tenant))));
        assert_eq!(self.eligible_weight, backlogged.map(|(_, lane)| u64::from(lane.weight)).sum::<u64>());
    }
}
