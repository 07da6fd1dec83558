//! The delay queue: weighted and fair between tenants, urgent first inside a tenant, bounded by deadlines.
//!
//! Start-time fair queueing (Goyal, Vin, Cheng, 1996): every tenant has a virtual time that advances by
//! cost / weight when it is served, and the tenant with the least is served next. One that comes back from
//! idleness starts at the present virtual time, so idleness earns no credit, and a share that its owner does
//! not use goes to whoever waits, at once. Inside a tenant: priority, then the window that closes first.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use crate::answers::AnswerKey;
use crate::ask::Window;
use crate::tenants::TenantKey;
use crate::{AskId, Kind, MicroTokens, Moment, Priority};

/// An ask that waits.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    pub(crate) tenant: TenantKey,
    pub(crate) weight: u32,
    pub(crate) kind: Kind,
    pub(crate) attempt: u32,
    pub(crate) priority: Priority,
    pub(crate) price: MicroTokens,
    pub(crate) window: Window,
    pub(crate) asked_at: Moment,
    pub(crate) answer_key: Option<AnswerKey>,
}

/// All asks of one dependency that wait.
#[derive(Clone, Debug, Default)]
pub(crate) struct FairQueue {
    asks: HashMap<AskId, Waiting>,
    next_id: u64,
    /// Not eligible yet, by the moment at which they will be.
    early: BTreeSet<(Moment, AskId)>,
    /// Everything, by the moment at which its window closes.
    closing: BTreeSet<(Moment, AskId)>,
    lanes: HashMap<TenantKey, Lane>,
    /// Lanes with eligible asks, by their virtual time.
    order: BTreeSet<(u128, TenantKey)>,
    virtual_time: u128,
    latest_finish: u128,
    eligible_weight: u64,
    cost: Costs,
}

/// One tenant's part of the queue.
#[derive(Clone, Debug, Default)]
struct Lane {
    virtual_time: u128,
    weight: u32,
    /// Eligible asks by priority, then by the moment at which their window closes.
    eligible: BTreeMap<Priority, VecDeque<(Moment, AskId)>>,
    eligible_count: usize,
    cost: Costs,
}

/// What the asks of a lane, or of all lanes, will take from the pool.
#[derive(Clone, Copy, Debug, Default)]
struct Costs {
    waiting: MicroTokens,
    eligible: MicroTokens,
}

/// What a newcomer would find in front of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ahead {
    /// Tokens that all tenants together are owed before it, if it is served last.
    pub(crate) of_all: MicroTokens,
    /// Tokens that its own tenant is owed before it.
    pub(crate) of_tenant: MicroTokens,
    /// Its tenant's weight among the tenants that wait.
    pub(crate) weight: u64,
    /// The weight of all of them.
    pub(crate) total_weight: u64,
}

/// Lanes beyond which those that owe nothing are forgotten before a busy period ends.
const MOST_LANES: usize = 20_000;

/// Scales cost / weight so that no weight rounds a cost to nothing.
const VIRTUAL_SCALE: u128 = 1_000_000;

impl FairQueue {
    pub(crate) fn len(&self) -> usize {
        self.asks.len()
    }

    /// Tokens that all waiting asks will take.
    pub(crate) const fn waiting_cost(&self) -> MicroTokens {
        self.cost.waiting
    }

    /// Whether any ask could be served if there were tokens.
    pub(crate) fn has_eligible(&self) -> bool {
        !self.order.is_empty()
    }

    /// Whether any ask of `tenant` waits.
    pub(crate) fn waits(&self, tenant: TenantKey) -> bool {
        self.lanes.get(&tenant).is_some_and(|lane| lane.cost.waiting > MicroTokens::ZERO)
    }

    /// How many asks of each tenant wait.
    pub(crate) fn waiting_by_tenant(&self) -> HashMap<TenantKey, u64> {
        self.asks.values().fold(HashMap::new(), |mut counts, ask| {
            *counts.entry(ask.tenant).or_default() += 1;
            counts
        })
    }

    pub(crate) fn push(&mut self, now: Moment, ask: Waiting) -> AskId {
        let id = AskId(self.next_id);
        self.next_id += 1;
        self.closing.insert((ask.window.closes, id));
        self.cost.waiting = self.cost.waiting.saturating_add(ask.price);
        if self.lanes.len() >= MOST_LANES {
            let present = self.virtual_time;
            self.lanes.retain(|_, lane| lane.cost.waiting > MicroTokens::ZERO || lane.virtual_time > present);
        }
        let lane = self.lanes.entry(ask.tenant).or_default();
        lane.cost.waiting = lane.cost.waiting.saturating_add(ask.price);
        let opens = ask.window.opens;
        self.asks.insert(id, ask);
        if opens > now {
            self.early.insert((opens, id));
        } else {
            self.make_eligible(id);
        }
        id
    }

    /// Moves what has become eligible by `now` into its lane.
    pub(crate) fn open_windows(&mut self, now: Moment) {
        while let Some((opens, id)) = self.early.first().copied()
            && opens <= now
        {
            self.early.pop_first();
            self.make_eligible(id);
        }
    }

    /// Takes out the next ask whose window has closed by `now`.
    pub(crate) fn pop_closed(&mut self, now: Moment) -> Option<(AskId, Waiting)> {
        let (closes, id) = self.closing.first().copied()?;
        if closes > now { None } else { self.remove(id).map(|ask| (id, ask)) }
    }

    /// The ask that is served next, and what it costs.
    pub(crate) fn head(&self) -> Option<(AskId, &Waiting)> {
        let (_, tenant) = self.order.first()?;
        let (_, id) = self.lanes.get(tenant)?.first()?;
        self.asks.get(&id).map(|ask| (id, ask))
    }

    /// Serves an eligible ask: its tenant's virtual time advances.
    pub(crate) fn serve(&mut self, id: AskId) -> Option<Waiting> {
        let ask = self.asks.get(&id)?;
        if let Some(lane) = self.lanes.get_mut(&ask.tenant) {
            let start = lane.virtual_time;
            let finish = start.saturating_add(virtual_cost(ask.price, ask.weight));
            self.virtual_time = self.virtual_time.max(start);
            self.latest_finish = self.latest_finish.max(finish);
            lane.virtual_time = finish;
            if self.order.remove(&(start, ask.tenant)) {
                self.order.insert((finish, ask.tenant));
            }
        }
        self.remove(id)
    }

    /// Takes an ask out for any other reason; it costs its tenant nothing.
    pub(crate) fn remove(&mut self, id: AskId) -> Option<Waiting> {
        let ask = self.asks.remove(&id)?;
        self.closing.remove(&(ask.window.closes, id));
        self.cost.waiting = self.cost.waiting.saturating_sub(ask.price);
        let was_early = self.early.remove(&(ask.window.opens, id));
        if let Some(lane) = self.lanes.get_mut(&ask.tenant) {
            lane.cost.waiting = lane.cost.waiting.saturating_sub(ask.price);
            if !was_early && lane.remove(ask.priority, ask.window.closes, id) {
                lane.cost.eligible = lane.cost.eligible.saturating_sub(ask.price);
                self.cost.eligible = self.cost.eligible.saturating_sub(ask.price);
                if lane.eligible_count == 0 {
                    self.order.remove(&(lane.virtual_time, ask.tenant));
                    self.eligible_weight -= u64::from(lane.weight);
                }
            }
        }
        if self.order.is_empty() {
            self.end_busy_period();
        }
        Some(ask)
    }

    /// Nobody is backlogged, so nobody is owed anything and nobody owes: all start level again. A lane must
    /// not be forgotten before, or a tenant that asks for one thing at a time would never pay its share.
    fn end_busy_period(&mut self) {
        self.virtual_time = self.virtual_time.max(self.latest_finish);
        self.lanes.retain(|_, lane| lane.cost.waiting > MicroTokens::ZERO);
    }

    /// Postpones an ask: it will be eligible at `opens`.
    pub(crate) fn postpone(&mut self, id: AskId, opens: Moment) {
        if let Some(mut ask) = self.remove(id) {
            ask.window.opens = opens;
            self.closing.insert((ask.window.closes, id));
            self.early.insert((opens, id));
            self.cost.waiting = self.cost.waiting.saturating_add(ask.price);
            let lane = self.lanes.entry(ask.tenant).or_default();
            lane.cost.waiting = lane.cost.waiting.saturating_add(ask.price);
            self.asks.insert(id, ask);
        }
    }

    /// The asks of `tenant`, or of everyone, the window that closes first first. Costs a visit of every ask.
    pub(crate) fn ids_of(&self, tenant: Option<TenantKey>) -> Vec<AskId> {
        let of_tenant =
            |id: &AskId| tenant.is_none_or(|key| self.asks.get(id).is_some_and(|ask| ask.tenant == key));
        self.closing.iter().map(|(_, id)| *id).filter(of_tenant).collect()
    }

    /// When time alone makes an ask eligible or closes a window.
    pub(crate) fn next_change(&self) -> Option<Moment> {
        let opens = self.early.first().map(|(opens, _)| *opens);
        let closes = self.closing.first().map(|(closes, _)| *closes);
        [opens, closes].into_iter().flatten().min()
    }

    /// What a newcomer with this window would find in front of it. Asks that are not eligible before it are
    /// not in front of it.
    pub(crate) fn ahead(&self, ask: &Waiting) -> Ahead {
        let before = self.early.range(..=(ask.window.opens, AskId(u64::MAX)));
        let early = before.filter_map(|(_, id)| self.asks.get(id));
        let early_cost = early.fold(MicroTokens::ZERO, |sum, early| sum.saturating_add(early.price));
        let lane = self.lanes.get(&ask.tenant);
        let waits = lane.is_some_and(|lane| lane.eligible_count > 0);
        Ahead {
            of_all: self.cost.eligible.saturating_add(early_cost),
            of_tenant: lane.map_or(MicroTokens::ZERO, |lane| lane.ahead_of(ask)),
            weight: u64::from(ask.weight),
            total_weight: self.eligible_weight + if waits { 0 } else { u64::from(ask.weight) },
        }
    }

    /// The ask that makes room for `newcomer` in a full queue: the last one of its own tenant's lowest
    /// priority, if that is lower; else the last one of the tenant that is furthest above its share, if that
    /// is above the newcomer's. An idle share is lent at once, and this is how it is reclaimed at once.
    pub(crate) fn victim(&self, newcomer: &Waiting) -> Option<AskId> {
        let own = self.lanes.get(&newcomer.tenant);
        let lower = own.and_then(Lane::last).filter(|(priority, _)| *priority > newcomer.priority);
        lower.map(|(_, id)| id).or_else(|| self.last_of_greediest(newcomer))
    }

    fn last_of_greediest(&self, newcomer: &Waiting) -> Option<AskId> {
        let held = |lane: &Lane| virtual_cost(lane.cost.waiting, lane.weight);
        let (_, greediest) =
            self.order.iter().max_by_key(|(_, tenant)| self.lanes.get(tenant).map_or(0, held))?;
        let lane = self.lanes.get(greediest)?;
        let mine = self.lanes.get(&newcomer.tenant).map_or(MicroTokens::ZERO, |lane| lane.cost.waiting);
        let would_hold = virtual_cost(mine.saturating_add(newcomer.price), newcomer.weight);
        (held(lane) > would_hold).then(|| lane.last().map(|(_, id)| id)).flatten()
    }

    fn make_eligible(&mut self, id: AskId) {
        let Some(ask) = self.asks.get(&id) else { return };
        let lane = self.lanes.entry(ask.tenant).or_default();
        if lane.eligible_count == 0 {
            lane.weight = ask.weight;
            lane.virtual_time = lane.virtual_time.max(self.virtual_time);
            self.eligible_weight += u64::from(lane.weight);
            self.order.insert((lane.virtual_time, ask.tenant));
        }
        lane.insert(ask.priority, ask.window.closes, id);
        lane.cost.eligible = lane.cost.eligible.saturating_add(ask.price);
        self.cost.eligible = self.cost.eligible.saturating_add(ask.price);
    }
}

impl Lane {
    fn insert(&mut self, priority: Priority, closes: Moment, id: AskId) {
        let asks = self.eligible.entry(priority).or_default();
        let place = asks.partition_point(|entry| *entry < (closes, id));
        asks.insert(place, (closes, id));
        self.eligible_count += 1;
    }

    fn remove(&mut self, priority: Priority, closes: Moment, id: AskId) -> bool {
        let Some(asks) = self.eligible.get_mut(&priority) else { return false };
        let Ok(place) = asks.binary_search(&(closes, id)) else { return false };
        asks.remove(place);
        self.eligible_count -= 1;
        true
    }

    fn first(&self) -> Option<(Moment, AskId)> {
        self.eligible.values().find_map(|asks| asks.front().copied())
    }

    fn last(&self) -> Option<(Priority, AskId)> {
        self.eligible.iter().rev().find_map(|(priority, asks)| asks.back().map(|(_, id)| (*priority, *id)))
    }

    /// Tokens owed to this lane's eligible asks that would be served before `newcomer`, estimated from their
    /// number and the lane's mean price.
    fn ahead_of(&self, newcomer: &Waiting) -> MicroTokens {
        let more_urgent = self.eligible.range(..newcomer.priority).map(|(_, asks)| asks.len());
        let same = self.eligible.get(&newcomer.priority);
        let sooner =
            same.map_or(0, |asks| asks.partition_point(|(closes, _)| *closes <= newcomer.window.closes));
        let count = (more_urgent.sum::<usize>() + sooner) as u64;
        let total = self.cost.eligible.as_micros();
        MicroTokens::from_micros(crate::units::scale(total, count, self.eligible_count as u64))
    }
}

fn virtual_cost(price: MicroTokens, weight: u32) -> u128 {
    u128::from(price.as_micros()) * VIRTUAL_SCALE / u128::from(weight.max(1))
}

#[cfg(test)]
mod tests;
