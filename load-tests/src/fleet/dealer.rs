//! Which client an operation falls to.

use std::time::Duration;

use crate::scenario::{Assignment, Traffic};

/// The clients of a fleet, and whose they are.
#[derive(Clone, Debug)]
pub struct Members {
    /// The tenants' names.
    pub tenants: Vec<String>,
    /// The tenant of each client, by its place among the tenants.
    pub clients: Vec<usize>,
    shares: Vec<Share>,
}

/// A tenant's part of the operations: its clients are next to each other.
#[derive(Clone, Debug)]
struct Share {
    /// The sum of the loads of all tenants up to and with this one.
    up_to: f64,
    from: Duration,
    first_client: usize,
    clients: usize,
}

impl Members {
    /// The fleet of this traffic.
    #[must_use]
    pub fn of(traffic: &Traffic) -> Self {
        let mut members = Self { tenants: Vec::new(), clients: Vec::new(), shares: Vec::new() };
        if traffic.tenants.is_empty() {
            members.join("load".to_owned(), 1.0, traffic.clients.unwrap_or(1), 0.0);
        }
        for kind in &traffic.tenants {
            kind.names().for_each(|name| members.join(name, kind.load, kind.clients, kind.from_s));
        }
        members
    }

    fn join(&mut self, name: String, load: f64, clients: u64, from_s: f64) {
        let tenant = self.tenants.len();
        let first_client = self.clients.len();
        let clients = usize::try_from(clients).unwrap_or(usize::MAX);
        let before = self.shares.last().map_or(0.0, |share| share.up_to);
        let from = Duration::try_from_secs_f64(from_s).unwrap_or(Duration::MAX);
        self.tenants.push(name);
        self.clients.extend(std::iter::repeat_n(tenant, clients));
        self.shares.push(Share { up_to: before + load, from, first_client, clients });
    }
}

/// Deals operations out to clients.
#[derive(Debug)]
pub struct Dealer {
    members: Members,
    assignment: Assignment,
    random: fastrand::Rng,
    next: usize,
}

impl Dealer {
    /// A dealer for the fleet of this traffic; `seed` fixes its draws.
    #[must_use]
    pub fn new(traffic: &Traffic, seed: u64) -> Self {
        let members = Members::of(traffic);
        let in_turn = traffic.tenants.is_empty() && traffic.assignment == Assignment::InTurn;
        let assignment = if in_turn { Assignment::InTurn } else { Assignment::Random };
        Self { members, assignment, random: fastrand::Rng::with_seed(!seed), next: 0 }
    }

    /// The client of an operation that arrives at `at`; `None` if its tenant does not send yet.
    pub fn deal(&mut self, at: Duration) -> Option<usize> {
        if self.assignment == Assignment::InTurn {
            let client = self.next;
            self.next = (client + 1) % self.members.clients.len().max(1);
            return Some(client);
        }
        let drawn = self.random.f64() * self.members.shares.last()?.up_to;
        let place = self.members.shares.partition_point(|share| share.up_to <= drawn);
        let share = self.members.shares.get(place)?;
        let client = share.first_client + self.random.usize(..share.clients.max(1));
        (share.from <= at).then_some(client)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::parse;

    fn traffic(more: &str) -> Traffic {
        let clients = if more.contains("tenants") { "" } else { "clients = 3" };
        let text = format!(
            "name = \"d\"\nabout = \"\"\nduration_s = 10\n[dependency]\nname = \"d\"\ncapacity_per_s = 1\nqueue_limit = 1\n\
             latency_ms = 1\n[traffic]\narrival_per_s = 1\n{clients}\ndeadline_ms = 1\nattempt_timeout_ms = 1\n{more}"
        );
        parse("here", &text).unwrap().traffic
    }

    fn dealt(traffic: &Traffic, at_s: u64, count: usize) -> Vec<Option<usize>> {
        let mut dealer = Dealer::new(traffic, 1);
        (0..count).map(|_| dealer.deal(Duration::from_secs(at_s))).collect()
    }

    #[test]
    fn clients_take_turns_or_are_drawn() {
        assert_eq!(dealt(&traffic(""), 0, 4), [0, 1, 2, 0].map(Some));
        let drawn = dealt(&traffic("assignment = \"random\""), 0, 3000);
        for client in 0..3 {
            let count = drawn.iter().filter(|dealt| **dealt == Some(client)).count();
            assert!((880..=1120).contains(&count), "{client}: {count}");
        }
    }

    #[test]
    fn tenants_have_their_load_and_send_from_their_moment_on() {
        let traffic = traffic(
            "tenants = [{ name = \"noisy\", load = 8, clients = 2 }, { name = \"t\", count = 2, from_s = 5 }]",
        );
        let members = Members::of(&traffic);
        assert_eq!(members.tenants, ["noisy", "t-0", "t-1"]);
        assert_eq!(members.clients, [0, 0, 1, 2]);
        let early = dealt(&traffic, 4, 1000);
        assert!(early.iter().all(|dealt| dealt.is_none_or(|client| client < 2)));
        let silent = early.iter().filter(|dealt| dealt.is_none()).count();
        assert!((150..=250).contains(&silent), "{silent}");
        let late = dealt(&traffic, 5, 1000);
        assert!(late.iter().all(Option::is_some) && late.contains(&Some(2)) && late.contains(&Some(3)));
    }
}
