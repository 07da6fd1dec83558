//! What the types of a scenario cannot say about its values.

use std::collections::HashMap;

use super::{Action, Bound, Dependency, Drill, Event, Measure, Scenario, Tenant, Traffic};

/// Most clients of a fleet.
const MOST_CLIENTS: u64 = 10_000;

/// What a number of clients has to be that nobody would read.
const BESIDE_TENANTS: &str =
    "left out where tenants say how many clients they have: `clients` of each tenant";

/// The mistakes found so far, each with the key that it is about.
struct Faults(Vec<String>);

impl Faults {
    fn unless(&mut self, good: bool, key: &str, need: &str) {
        if !good {
            self.0.push(format!("`{key}` must be {need}"));
        }
    }

    fn rate(&mut self, value: f64, key: &str) {
        self.unless(value > 0.0 && value <= 100_000.0, key, "above 0 and at most 100000");
    }

    fn share(&mut self, value: f64, key: &str) {
        self.unless((0.0..=1.0).contains(&value), key, "between 0 and 1");
    }

    fn rises(&mut self, last: &mut f64, at_s: f64, key: &str, what: &str) {
        let after = at_s > *last && at_s >= 0.0;
        self.unless(after, key, &format!("0 or more, and after {what} before"));
        *last = at_s;
    }

    fn within(&mut self, value: u64, most: u64, key: &str) {
        self.unless((1..=most).contains(&value), key, &format!("between 1 and {most}"));
    }
}

/// All mistakes at once: who mends one wants to know of the others.
pub(super) fn faults(scenario: &Scenario) -> Vec<String> {
    let mut faults = Faults(Vec::new());
    faults.unless(!scenario.name.trim().is_empty(), "name", "given");
    faults.within(scenario.duration_s, 3600, "duration_s");
    traffic(&mut faults, &scenario.traffic);
    drill(&mut faults, &scenario.drill, scenario.duration_s);
    let sized = scenario.drill.clients.is_empty() || scenario.traffic.tenants.is_empty();
    faults.unless(sized, "drill.clients", BESIDE_TENANTS);
    dependency(&mut faults, &scenario.dependency);
    let local = &scenario.local;
    faults.within(local.max_attempts.into(), 100, "local.max_attempts");
    faults.unless(local.factor >= 1.0 && local.factor <= 100.0, "local.factor", "between 1 and 100");
    faults.unless(local.cap_ms >= local.base_ms, "local.cap_ms", "no less than local.base_ms");
    policy(&mut faults, scenario);
    events(&mut faults, &scenario.events);
    phases_in_time(&mut faults, scenario);
    for (way, bounds) in &scenario.expect {
        for (measure, bound) in bounds {
            let key = format!("expect.{}.{}", way.as_str(), measure.as_str());
            expectation(&mut faults, &key, *measure, bound, scenario.duration_s);
        }
    }
    faults.0
}

fn traffic(faults: &mut Faults, traffic: &Traffic) {
    faults.rate(traffic.arrival_per_s, "traffic.arrival_per_s");
    clients(faults, traffic);
    faults.within(traffic.deadline_ms, 600_000, "traffic.deadline_ms");
    faults.within(traffic.attempt_timeout_ms, 600_000, "traffic.attempt_timeout_ms");
    faults.share(traffic.poison_share, "traffic.poison_share");
    let mut last = -1.0;
    for (index, phase) in traffic.phases.iter().enumerate() {
        let key = format!("traffic.phases[{index}]");
        faults.rate(phase.arrival_per_s, &format!("{key}.arrival_per_s"));
        faults.rises(&mut last, phase.from_s, &format!("{key}.from_s"), "the phase");
    }
    for (index, tenant) in traffic.tenants.iter().enumerate() {
        let key = format!("traffic.tenants[{index}]");
        faults.unless(!tenant.name.trim().is_empty(), &format!("{key}.name"), "given");
        faults.rate(tenant.load, &format!("{key}.load"));
        faults.within(tenant.clients, MOST_CLIENTS, &format!("{key}.clients"));
        faults.within(tenant.count, MOST_CLIENTS, &format!("{key}.count"));
        faults.unless(tenant.from_s >= 0.0, &format!("{key}.from_s"), "0 or more");
    }
}

/// How many clients there are, and whose.
fn clients(faults: &mut Faults, traffic: &Traffic) {
    match (traffic.clients, traffic.tenants.is_empty()) {
        (Some(clients), true) => faults.within(clients, MOST_CLIENTS, "traffic.clients"),
        (None, true) => faults.unless(false, "traffic.clients", "given where no tenant has any"),
        (given, false) => faults.unless(given.is_none(), "traffic.clients", BESIDE_TENANTS),
    }
    let of = |tenant: &Tenant| tenant.clients.max(1).saturating_mul(tenant.count);
    let all = traffic.tenants.iter().map(of).fold(0, u64::saturating_add);
    faults.unless(all <= MOST_CLIENTS, "traffic.tenants", &format!("at most {MOST_CLIENTS} clients in all"));
    if all <= MOST_CLIENTS {
        own_names(faults, &traffic.tenants);
    }
}

/// Two tenants of one name would be one for the server, and two in the report.
fn own_names(faults: &mut Faults, tenants: &[Tenant]) {
    let mut known = HashMap::new();
    for (index, tenant) in tenants.iter().enumerate() {
        let taken = tenant.names().find_map(|name| {
            let before = known.insert(name.clone(), index)?;
            Some(format!("another than that of traffic.tenants[{before}]: both come to be `{name}`"))
        });
        faults.unless(taken.is_none(), &format!("traffic.tenants[{index}].name"), &taken.unwrap_or_default());
    }
}

/// The server would find it out too, minutes later: when the way `damper` begins.
fn policy(faults: &mut Faults, scenario: &Scenario) {
    for (key, wrong) in crate::server::policy_faults(scenario) {
        let key = if key.is_empty() { "dependency.name".to_owned() } else { format!("damper.{key}") };
        faults.0.push(format!("`{key}` {wrong}"));
    }
}

/// What would never come to be is a mistake.
fn phases_in_time(faults: &mut Faults, scenario: &Scenario) {
    let end_s = scenario.duration_s as f64;
    let mut in_time = |from_s: f64, key: String| faults.unless(from_s < end_s, &key, "before the end");
    for (index, phase) in scenario.dependency.phases.iter().enumerate() {
        in_time(phase.from_s, format!("dependency.phases[{index}].from_s"));
    }
    for (index, phase) in scenario.traffic.phases.iter().enumerate() {
        in_time(phase.from_s, format!("traffic.phases[{index}].from_s"));
    }
    for (index, tenant) in scenario.traffic.tenants.iter().enumerate() {
        in_time(tenant.from_s, format!("traffic.tenants[{index}].from_s"));
    }
}

fn drill(faults: &mut Faults, drill: &Drill, duration_s: u64) {
    faults.within(drill.seeds, 100, "drill.seeds");
    faults.unless(!drill.ways.is_empty(), "drill.ways", "one way or more");
    faults.unless(drill.latency_ms <= 60_000, "drill.latency_ms", "at most 60000");
    faults.share(drill.loss, "drill.loss");
    for (index, clients) in drill.clients.iter().enumerate() {
        let key = format!("drill.clients[{index}]");
        faults.within(*clients, MOST_CLIENTS, &key);
        let before = drill.clients.iter().take(index).any(|before| before == clients);
        faults.unless(
            !before,
            &key,
            "a size that is not in the list before: the same seeds give the same figures",
        );
    }
    let over = drill.over_s.is_none_or(|over_s| over_s < duration_s);
    faults.unless(over, "drill.over_s", "before the end");
}

fn dependency(faults: &mut Faults, dependency: &Dependency) {
    faults.unless(!dependency.name.trim().is_empty(), "dependency.name", "given");
    faults.rate(dependency.capacity_per_s, "dependency.capacity_per_s");
    faults.within(dependency.queue_limit, 1_000_000, "dependency.queue_limit");
    faults.unless(dependency.latency_ms <= 600_000, "dependency.latency_ms", "at most 600000");
    faults.share(dependency.refusal_cost, "dependency.refusal_cost");
    if let Some(account) = &dependency.account {
        faults.rate(account.per_s, "dependency.account.per_s");
        faults.within(account.window_ms, 600_000, "dependency.account.window_ms");
    }
    faults.unless(dependency.collapse_ms <= 600_000, "dependency.collapse_ms", "at most 600000");
    let mut last = -1.0;
    for (index, phase) in dependency.phases.iter().enumerate() {
        let key = format!("dependency.phases[{index}]");
        let fails = phase.failure_share + phase.wrong_share;
        faults.share(phase.failure_share, &format!("{key}.failure_share"));
        faults.share(phase.wrong_share, &format!("{key}.wrong_share"));
        faults.unless(fails <= 1.0, &key, "such that failure_share and wrong_share are at most 1 together");
        if let Some(capacity_per_s) = phase.capacity_per_s {
            faults.rate(capacity_per_s, &format!("{key}.capacity_per_s"));
        }
        let latency = phase.latency_ms.is_none_or(|latency_ms| latency_ms <= 600_000);
        faults.unless(latency, &format!("{key}.latency_ms"), "at most 600000");
        faults.rises(&mut last, phase.from_s, &format!("{key}.from_s"), "the phase");
    }
}

fn events(faults: &mut Faults, events: &[Event]) {
    let mut last = -1.0;
    let mut running = true;
    for (index, event) in events.iter().enumerate() {
        let key = format!("events[{index}]");
        faults.rises(&mut last, event.at_s, &format!("{key}.at_s"), "the event");
        let (fits, need) = match event.action {
            Action::KillServer => (running, "`start_server`: the server is not running then"),
            Action::StartServer => (!running, "`kill_server`: the server is running then"),
        };
        faults.unless(fits, &format!("{key}.action"), need);
        running = event.action == Action::StartServer;
    }
}

fn expectation(faults: &mut Faults, key: &str, measure: Measure, bound: &Bound, duration_s: u64) {
    let limits = [bound.at_least, bound.at_most];
    let bounded =
        limits.iter().any(Option::is_some) && limits.iter().flatten().all(|limit| limit.is_finite());
    faults.unless(bounded, key, "given at_least, at_most or both, as numbers");
    let apart = bound.at_least.zip(bound.at_most).is_none_or(|(least, most)| least <= most);
    faults.unless(apart, key, "given an at_least that is not above its at_most");
    let sampled = bound.sigmas == 0.0 || (bound.sigmas > 0.0 && measure.is_share());
    faults.unless(sampled, &format!("{key}.sigmas"), "0 or more, and left out where no share is measured");
    let from_s = bound.from_s.unwrap_or(0);
    let until_s = bound.until_s.unwrap_or(duration_s);
    faults.unless(from_s < until_s && until_s <= duration_s, key, "over a part of the run: from_s < until_s");
}
