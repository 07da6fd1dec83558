//! First attempts: who may start how many per second.
//!
//! Clients never ask per first attempt. Each sync states the wanted rate; the answer is a leased one: weighted
//! max-min between tenants, then max-min between a tenant's clients. Shares are worked out once a second, so a
//! sync costs a look-up, and a lease never takes what others still hold: the leases that are out never exceed
//! the limit.

use std::collections::{BTreeMap, HashMap};

use crate::tenants::TenantKey;
use crate::units::scale;
use crate::{MicroTokens, MicrosPerSecond, Moment, Span};

/// How long a lease lasts: five syncs, of which four may be lost.
pub(crate) const TTL: Span = Span::from_secs(5);
/// How long after its start a server honours what clients say they hold: one lease.
pub const LEARNS_FOR: Span = TTL;
/// What a client that gets all that it wants may save up beside a second of its rate. A client of one operation per second
/// that could save up nothing would shed a seventh of them although nobody is short: the gaps between operations are
/// random, and only a fleet's add up to an even rate.
const ROOM: MicroTokens = MicroTokens::from_tokens(10);
/// Most clients with a lease; one more gets none, which its own safe rate covers.
const MOST: usize = 20_000;

/// The leases of one dependency.
#[derive(Clone, Debug)]
pub(crate) struct Allocations {
    claims: HashMap<Box<str>, Claim>,
    /// What no living lease covers any more is still counted until the next reckoning: never too little.
    leased: MicrosPerSecond,
    levels: HashMap<TenantKey, MicrosPerSecond>,
    /// What each client gets on top of its demand while nobody is short.
    spare: MicrosPerSecond,
    reckoned: Option<Moment>,
    learning_until: Moment,
}

/// What one client wants, and holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    pub(crate) tenant: TenantKey,
    pub(crate) weight: u32,
    pub(crate) wants: MicrosPerSecond,
    /// As the client says; only believed while learning.
    pub(crate) has: MicrosPerSecond,
    /// Nothing on top of what it wants: its rate is being held down.
    pub(crate) strict: bool,
    leased: MicrosPerSecond,
    until: Moment,
}

impl Claim {
    pub(crate) const fn new(
        tenant: TenantKey,
        weight: u32,
        wants: MicrosPerSecond,
        has: MicrosPerSecond,
        strict: bool,
    ) -> Self {
        Self { tenant, weight, wants, has, strict, leased: MicrosPerSecond::ZERO, until: Moment::ORIGIN }
    }
}

/// A leased rate of first attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstLease {
    /// The rate.
    pub rate: MicrosPerSecond,
    /// First attempts that may start at once after a quiet while.
    pub burst: MicroTokens,
    /// How long the lease lasts.
    pub ttl: Span,
    /// The rate to fall back to once it has ended without a server.
    pub safe: MicrosPerSecond,
    /// How long that rate holds; [`None`] until a server is back.
    pub safe_for: Option<Span>,
}

/// What all clients together fall back to without a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fallback {
    pub(crate) limit: MicrosPerSecond,
    /// [`None`] until a server is back.
    pub(crate) lasts: Option<Span>,
}

/// A rate that no capacity stands behind holds no longer than clients believe in a breaker of a silent server.
const BELIEVED_FOR: Span = Span::from_secs(30);

impl Fallback {
    /// The capacity; or, where none is known, what was usual before the dependency got into trouble, for a while.
    pub(crate) fn new(capacity: Option<MicrosPerSecond>, usual: MicrosPerSecond) -> Self {
        match capacity {
            Some(limit) => Self { limit, lasts: None },
            None => Self { limit: usual, lasts: Some(BELIEVED_FOR) },
        }
    }
}

impl Allocations {
    /// For one ttl after its start a server honours what clients say they hold: it does not know yet who else
    /// holds what.
    pub(crate) fn new(now: Moment) -> Self {
        Self {
            claims: HashMap::new(),
            leased: MicrosPerSecond::ZERO,
            levels: HashMap::new(),
            spare: MicrosPerSecond::ZERO,
            reckoned: None,
            learning_until: now.after(LEARNS_FOR),
        }
    }

    pub(crate) fn is_learning(&self, now: Moment) -> bool {
        now < self.learning_until
    }

    /// What is leased, and by how many leases.
    pub(crate) fn live(&self, now: Moment) -> (MicrosPerSecond, u64) {
        let live = |claim: &&Claim| claim.until > now && claim.leased > MicrosPerSecond::ZERO;
        self.claims.values().filter(live).fold((MicrosPerSecond::ZERO, 0), |(rate, count), claim| {
            (rate.saturating_add(claim.leased), count + 1)
        })
    }

    /// First attempts are not limited any more.
    pub(crate) fn clear(&mut self) {
        self.claims.clear();
        self.leased = MicrosPerSecond::ZERO;
        self.reckoned = None;
    }

    /// Leases a rate to `client`, of `limit` for everyone. [`None`] while learning for a client that holds
    /// nothing, and for one too many; such a client is not limited by a lease.
    pub(crate) fn lease(
        &mut self,
        now: Moment,
        client: &str,
        claim: Claim,
        limit: MicrosPerSecond,
        fallback: Fallback,
    ) -> Option<FirstLease> {
        let learning = self.is_learning(now) && !claim.strict;
        let known = self.take_back(client);
        if !known && self.claims.len() >= MOST {
            return None;
        }
        let until = now.after(TTL);
        self.claims.insert(client.into(), Claim { until, ..claim });
        if learning && claim.has == MicrosPerSecond::ZERO {
            return None;
        }
        // A crowd that arrives at once is reckoned with once, not once for each.
        let settled = if known { Span::SECOND } else { Span::from_millis(100) };
        if self.reckoned.is_none_or(|last| now.since(last) >= settled) {
            self.reckon(now, limit);
        }
        let due = match (learning, known) {
            (true, _) => claim.has,
            (false, true) => self.fair(&claim).saturating_add(if claim.strict {
                MicrosPerSecond::ZERO
            } else {
                self.spare
            }),
            // More newcomers may follow, so each gets what it wants at first and nothing on top.
            (false, false) => self.fair(&claim),
        };
        let rate = due.min(limit.saturating_sub(self.leased));
        let burst = match (claim.strict, rate < claim.wants) {
            (true, _) => MicroTokens::ZERO,
            (false, true) => slice(rate),
            (false, false) => rate.in_one_second().saturating_add(ROOM),
        };
        self.claims.insert(client.into(), Claim { leased: rate, until, ..claim });
        self.leased = self.leased.saturating_add(rate);
        let clients = self.claims.len() as u64;
        Some(FirstLease {
            rate,
            burst,
            ttl: TTL,
            safe: MicrosPerSecond::from_micros(fallback.limit.as_micros() / clients.max(1)),
            safe_for: fallback.lasts,
        })
    }

    /// A lease that is about to be replaced stands in nobody's way. Whether the client is known.
    fn take_back(&mut self, client: &str) -> bool {
        let Some(claim) = self.claims.get_mut(client) else { return false };
        self.leased = self.leased.saturating_sub(claim.leased);
        claim.leased = MicrosPerSecond::ZERO;
        true
    }

    fn fair(&self, claim: &Claim) -> MicrosPerSecond {
        let level = self.levels.get(&claim.tenant).copied().unwrap_or(MicrosPerSecond::MAX);
        claim.wants.min(level)
    }

    /// Drops what has expired and works out every tenant's level anew.
    fn reckon(&mut self, now: Moment, limit: MicrosPerSecond) {
        self.reckoned = Some(now);
        // A claim of this very moment has no lease yet.
        self.claims.retain(|_, claim| claim.until >= now);
        let leases = self.claims.values().map(|claim| claim.leased);
        self.leased = leases.fold(MicrosPerSecond::ZERO, MicrosPerSecond::saturating_add);
        let mut tenants: BTreeMap<TenantKey, (u32, Vec<u64>)> = BTreeMap::new();
        for claim in self.claims.values() {
            let (weight, wants) = tenants.entry(claim.tenant).or_default();
            *weight = claim.weight;
            wants.push(claim.wants.as_micros());
        }
        let demands = tenants.values().map(|(weight, wants)| {
            (u64::from(*weight), wants.iter().fold(0_u64, |sum, wanted| sum.saturating_add(*wanted)))
        });
        let demands: Vec<(u64, u64)> = demands.collect();
        let level = weighted_level(&demands, limit.as_micros());
        let total = demands.iter().fold(0_u64, |sum, (_, demand)| sum.saturating_add(*demand));
        // The other half is there for whoever comes next.
        let spare = limit.as_micros().saturating_sub(total) / 2 / (self.claims.len() as u64).max(1);
        self.spare = MicrosPerSecond::from_micros(spare);
        self.levels = tenants
            .into_iter()
            .map(|(tenant, (weight, wants))| {
                let share = level.map_or(u64::MAX, |level| level.of(u64::from(weight)));
                let shares: Vec<(u64, u64)> = wants.into_iter().map(|wanted| (1, wanted)).collect();
                let level = weighted_level(&shares, share).map_or(u64::MAX, |level| level.of(1));
                (tenant, MicrosPerSecond::from_micros(level))
            })
            .collect();
    }
}

/// What a client may save up that gets less than it wants: a tenth of a second. After an outage it is nothing.
fn slice(rate: MicrosPerSecond) -> MicroTokens {
    MicroTokens::from_micros(rate.as_micros() / 10)
}

/// A fair level: `amount` per `weight`.
#[derive(Clone, Copy, Debug)]
struct Level {
    amount: u64,
    weight: u64,
}

impl Level {
    fn of(self, weight: u64) -> u64 {
        scale(self.amount, weight, self.weight)
    }
}

/// The weighted max-min level (Bertsekas, Gallager: Data Networks, 6.5.2): with everyone getting the lesser of
/// its demand and its weight's part of the level, `capacity` is used up and no more. [`None`] if it covers all
/// demands. Each demand is (weight, amount).
fn weighted_level(demands: &[(u64, u64)], capacity: u64) -> Option<Level> {
    let mut by_need: Vec<&(u64, u64)> = demands.iter().collect();
    by_need.sort_unstable_by(|(weight_a, a), (weight_b, b)| {
        (u128::from(*a) * u128::from(*weight_b)).cmp(&(u128::from(*b) * u128::from(*weight_a)))
    });
    let mut left = capacity;
    let mut weight_left: u64 = demands.iter().map(|(weight, _)| weight).sum();
    for (weight, demand) in by_need {
        if *demand > scale(left, *weight, weight_left) {
            return Some(Level { amount: left, weight: weight_left });
        }
        left -= demand;
        weight_left -= weight;
    }
    None
}

#[cfg(test)]
mod tests;
