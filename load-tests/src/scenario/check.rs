//! What the types of a scenario cannot say about its values.

use super::{Action, Bound, Dependency, Event, Measure, Scenario};

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

    fn within(&mut self, value: u64, most: u64, key: &str) {
        self.unless((1..=most).contains(&value), key, &format!("between 1 and {most}"));
    }
}

/// All mistakes at once: who mends one wants to know of the others.
pub(super) fn faults(scenario: &Scenario) -> Vec<String> {
    let mut faults = Faults(Vec::new());
    faults.unless(!scenario.name.trim().is_empty(), "name", "given");
    faults.within(scenario.duration_s, 3600, "duration_s");
    let traffic = &scenario.traffic;
    faults.rate(traffic.arrival_per_s, "traffic.arrival_per_s");
    faults.within(traffic.clients, 10_000, "traffic.clients");
    faults.within(traffic.deadline_ms, 600_000, "traffic.deadline_ms");
    faults.within(traffic.attempt_timeout_ms, 600_000, "traffic.attempt_timeout_ms");
    dependency(&mut faults, &scenario.dependency);
    let local = &scenario.local;
    faults.within(local.max_attempts.into(), 100, "local.max_attempts");
    faults.unless(local.factor >= 1.0 && local.factor <= 100.0, "local.factor", "between 1 and 100");
    faults.unless(local.cap_ms >= local.base_ms, "local.cap_ms", "no less than local.base_ms");
    events(&mut faults, &scenario.events);
    for (way, bounds) in &scenario.expect {
        for (measure, bound) in bounds {
            let key = format!("expect.{}.{}", way.as_str(), measure.as_str());
            expectation(&mut faults, &key, *measure, bound, scenario.duration_s);
        }
    }
    faults.0
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
    let mut last = -1.0;
    for (index, phase) in dependency.phases.iter().enumerate() {
        let key = format!("dependency.phases[{index}]");
        faults.share(phase.failure_share, &format!("{key}.failure_share"));
        let after = phase.from_s > last && phase.from_s >= 0.0;
        faults.unless(after, &format!("{key}.from_s"), "0 or more, and after the phase before");
        last = phase.from_s;
    }
}

fn events(faults: &mut Faults, events: &[Event]) {
    let mut last = -1.0;
    let mut running = true;
    for (index, event) in events.iter().enumerate() {
        let key = format!("events[{index}]");
        let after = event.at_s > last && event.at_s >= 0.0;
        faults.unless(after, &format!("{key}.at_s"), "0 or more, and after the event before");
        let (fits, need) = match event.action {
            Action::KillServer => (running, "`start_server`: the server is not running then"),
            Action::StartServer => (!running, "`kill_server`: the server is running then"),
        };
        faults.unless(fits, &format!("{key}.action"), need);
        running = event.action == Action::StartServer;
        last = event.at_s;
    }
}

fn expectation(faults: &mut Faults, key: &str, measure: Measure, bound: &Bound, duration_s: u64) {
    let bounded = bound.at_least.is_some() || bound.at_most.is_some();
    faults.unless(bounded, key, "given at_least, at_most or both");
    let sampled = bound.sigmas == 0.0 || (bound.sigmas > 0.0 && measure.is_share());
    faults.unless(sampled, &format!("{key}.sigmas"), "0 or more, and left out where no share is measured");
    let from_s = bound.from_s.unwrap_or(0);
    let until_s = bound.until_s.unwrap_or(duration_s);
    faults.unless(from_s < until_s && until_s <= duration_s, key, "over a part of the run: from_s < until_s");
}
