//! One breaker for the whole fleet: closed, open, half-open.
//!
//! Decided on merged reports. Transient and fatal failures count; a 4xx says nothing about whether the service
//! is up; only genuine successes reset (requirement R7). Half-open hands out at most `probes` leases for the
//! whole fleet, and each lease expires, so that a lost result never wedges it. Every transition raises the
//! version, and results that belong to an older version are counted and ignored.

use std::collections::VecDeque;

use crate::jitter::Jitter;
use crate::policy::BreakerPolicy;
use crate::ring::{Countable, Ring};
use crate::tenants::TenantKey;
use crate::units::{PPM, scale};
use crate::{
    BreakerCause, BreakerState, BreakerVersion, BreakerView, Class, Moment, OnOpen, Ppm, Report, Span,
    TokenId, Totals,
};

const RING_SLOTS: usize = 10;

/// The largest version that is taken from a peer's word. Beyond any that is reached by transitions, and far
/// enough from the end of the integer that the version can always rise.
const LARGEST_ADOPTED: u64 = 1 << 40;

/// The state machine.
#[derive(Clone, Debug)]
#[cfg_attr(damper_model, derive(PartialEq, Eq, Hash))]
pub(crate) struct Breaker {
    policy: BreakerPolicy,
    state: BreakerState,
    version: u64,
    cause: BreakerCause,
    since: Moment,
    open_until: Moment,
    /// When it last closed after having been open.
    closed_at: Option<Moment>,
    /// Openings since it was last closed for good.
    openings: u32,
    forced: Option<Force>,
    counts: Ring<Counts>,
    failures_in_a_row: u64,
    probes: VecDeque<Probe>,
    probe_successes: u32,
    stale_results: u64,
    jitter: Jitter,
}

/// What an operator can force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Force {
    /// Open until released.
    Open,
    /// Closed until released.
    Closed,
}

#[derive(Clone, Copy, Debug, Default)]
#[cfg_attr(damper_model, derive(PartialEq, Eq, Hash))]
struct Counts {
    started: u64,
    slow: u64,
    succeeded: u64,
    failed: u64,
}

impl Countable for Counts {
    fn add(&mut self, other: &Self) {
        self.started = self.started.saturating_add(other.started);
        self.slow = self.slow.saturating_add(other.slow);
        self.succeeded = self.succeeded.saturating_add(other.succeeded);
        self.failed = self.failed.saturating_add(other.failed);
    }
}

#[derive(Clone, Copy, Debug)]
#[cfg_attr(damper_model, derive(PartialEq, Eq, Hash))]
struct Probe {
    token: TokenId,
    tenant: TenantKey,
    expires: Moment,
}

impl Breaker {
    pub(crate) fn new(now: Moment, policy: BreakerPolicy, jitter: Jitter) -> Self {
        Self {
            policy,
            state: BreakerState::Closed,
            version: 1,
            cause: BreakerCause::Fresh,
            since: now,
            open_until: now,
            closed_at: None,
            openings: 0,
            forced: None,
            counts: Ring::new(now, policy.window, RING_SLOTS),
            failures_in_a_row: 0,
            probes: VecDeque::new(),
            probe_successes: 0,
            stale_results: 0,
            jitter,
        }
    }

    /// The same, with another version than 1 to start from.
    pub(crate) fn counting_from(self, version: u64) -> Self {
        Self { version, ..self }
    }

    pub(crate) const fn state(&self) -> BreakerState {
        self.state
    }

    pub(crate) const fn version(&self) -> BreakerVersion {
        BreakerVersion { state: self.state, version: self.version }
    }

    /// Why it is in its state.
    pub(crate) const fn cause(&self) -> BreakerCause {
        self.cause
    }

    /// Attempts whose results came under an older version and were ignored.
    pub(crate) const fn stale_results(&self) -> u64 {
        self.stale_results
    }

    pub(crate) fn view(&self, now: Moment) -> BreakerView {
        BreakerView {
            state: self.state,
            version: self.version,
            since: self.since,
            open_for: self.open_for(now),
            probes_out: u32::try_from(self.probes.len()).unwrap_or(u32::MAX),
        }
    }

    /// The share of their rate that first attempts are held to: so much that with probes and chance it comes to no more
    /// than a tenth while it is not closed and in the first
    /// second after, so that nobody holds more at the moment at which it closes; then rising to all of it.
    /// [`None`] while it has no say.
    pub(crate) fn ramp(&self, now: Moment) -> Option<Ppm> {
        const START: u64 = PPM * 8 / 100;
        if self.policy.on_open == OnOpen::Retries {
            return None;
        }
        if self.state != BreakerState::Closed {
            return Some(ppm(START));
        }
        let elapsed = now.since(self.closed_at?);
        let rising = elapsed.saturating_sub(Span::SECOND).as_nanos();
        let length = self.policy.ramp.saturating_sub(Span::SECOND).as_nanos();
        (elapsed < self.policy.ramp).then(|| ppm(START + scale(PPM - START, rising, length)))
    }

    /// How long it stays open yet. One that was forced open has no end; it is then worth another look after
    /// the longest span that a breaker stays open by itself.
    fn open_for(&self, now: Moment) -> Span {
        match self.state {
            BreakerState::Open => self.open_until.from_now(now).min(self.policy.open_for_max),
            _ => Span::ZERO,
        }
    }

    /// Adopts a changed policy. The state stays; the window starts anew if its length changed.
    pub(crate) fn configure(&mut self, now: Moment, policy: BreakerPolicy) {
        if policy.window != self.policy.window {
            self.counts = Ring::new(now, policy.window, RING_SLOTS);
        }
        self.policy = policy;
    }

    /// Forces a state, or releases it: a released breaker that was open tests the dependency first.
    pub(crate) fn force(&mut self, now: Moment, force: Option<Force>) {
        self.forced = force;
        match (force, self.state) {
            (Some(Force::Open), BreakerState::Open) | (Some(Force::Closed), BreakerState::Closed) => {}
            (Some(Force::Open), _) => self.open(now, Moment::NEVER, BreakerCause::Operator),
            (Some(Force::Closed), _) => self.close(now, BreakerCause::Operator),
            (None, BreakerState::Open) => self.enter(now, BreakerState::HalfOpen, BreakerCause::Operator),
            (None, _) => {}
        }
        if force == Some(Force::Open) {
            self.open_until = Moment::NEVER;
        }
    }

    /// Does what time alone brings: open turns half-open, probe leases expire.
    pub(crate) fn advance(&mut self, now: Moment) {
        if self.state == BreakerState::Open && now >= self.open_until {
            self.enter(now, BreakerState::HalfOpen, BreakerCause::OpenTimeOver);
        }
        while self.probes.front().is_some_and(|probe| now >= probe.expires) {
            self.probes.pop_front();
        }
    }

    /// When time alone brings the next change.
    pub(crate) fn next_change(&self) -> Option<Moment> {
        (self.state == BreakerState::Open && self.open_until != Moment::NEVER).then_some(self.open_until)
    }

    /// Whether a probe could be handed out.
    pub(crate) fn has_probe(&self) -> bool {
        self.state == BreakerState::HalfOpen && self.probes.len() < self.policy.probes as usize
    }

    /// Hands out the probe that `token` stands for; its lease ends after `probe_ttl`.
    pub(crate) fn lease_probe(&mut self, now: Moment, tenant: TenantKey, token: TokenId) {
        self.probes.push_back(Probe { token, tenant, expires: now.after(self.policy.probe_ttl) });
    }

    /// Takes an unused probe back. False if it is not out.
    pub(crate) fn return_probe(&mut self, token: TokenId) -> bool {
        let place = self.probes.iter().position(|probe| probe.token == token);
        place.and_then(|place| self.probes.remove(place)).is_some()
    }

    /// Counts what a report of one of `tenant`'s clients adds.
    pub(crate) fn report(&mut self, now: Moment, tenant: TenantKey, report: &Report, difference: &Totals) {
        let succeeded = difference.success;
        let failed = difference.failed(Class::Transient).saturating_add(difference.failed(Class::Fatal));
        match &report.probes {
            Some(results) => results.iter().for_each(|(token, success)| self.settle(now, *token, *success)),
            None => self.settle_by_totals(now, tenant, report.breaker_version, succeeded, failed),
        }
        if report.breaker_version != 0 && report.breaker_version != self.version {
            self.stale_results = self.stale_results.saturating_add(succeeded.saturating_add(failed));
        } else if self.state == BreakerState::Closed {
            let Totals { physical: started, slow, .. } = *difference;
            self.count(now, Counts { started, slow, succeeded, failed });
        }
    }

    /// A client that saw this breaker open under another server life must not find it closed after a restart. To
    /// be heard only while this life is young: later, nobody can have seen a version that it did not give out.
    pub(crate) fn adopt(&mut self, now: Moment, report: &Report) {
        let ahead = self.version < report.breaker_version && report.breaker_version <= LARGEST_ADOPTED;
        if !ahead || self.forced.is_some() {
            return;
        }
        self.version = report.breaker_version;
        self.cause = BreakerCause::ClientMemory;
        if report.breaker_state.is_some_and(|state| state != BreakerState::Closed)
            && self.state == BreakerState::Closed
        {
            self.open(now, now.after(self.policy.open_for), BreakerCause::ClientMemory);
        }
    }

    fn count(&mut self, now: Moment, counts: Counts) {
        self.counts.add(now, &counts);
        self.failures_in_a_row =
            if counts.succeeded > 0 { 0 } else { self.failures_in_a_row.saturating_add(counts.failed) };
        if self.forced.is_none()
            && let Some(cause) = self.failure(now)
        {
            self.trip(now, cause);
        }
    }

    /// What speaks for opening it.
    fn failure(&mut self, now: Moment) -> Option<BreakerCause> {
        let BreakerPolicy { failure_share, min_volume, consecutive, slow_call, slow_share, .. } = self.policy;
        let Counts { started, slow, succeeded, failed } = self.counts.sum(now);
        let ended = succeeded.saturating_add(failed);
        if consecutive.is_some_and(|limit| self.failures_in_a_row >= limit) {
            Some(BreakerCause::ConsecutiveFailures)
        } else if ended >= min_volume && failure_share.reached_by(failed, ended) {
            Some(BreakerCause::FailureShare)
        } else if slow_call.is_some() && started >= min_volume && slow_share.reached_by(slow, started) {
            Some(BreakerCause::SlowShare)
        } else {
            None
        }
    }

    /// Settles one probe by its own result. A token that is not out here belongs to an older version.
    fn settle(&mut self, now: Moment, token: TokenId, success: bool) {
        if !self.return_probe(token) {
            self.stale_results = self.stale_results.saturating_add(1);
        } else if success {
            self.succeed(now, 1);
        } else {
            self.trip(now, BreakerCause::ProbeFailed);
        }
    }

    /// Settles the probes of a tenant whose client reports no results by what its totals add. More results than
    /// probes out must be attempts from before, so only as many count.
    fn settle_by_totals(
        &mut self,
        now: Moment,
        tenant: TenantKey,
        version: u64,
        succeeded: u64,
        failed: u64,
    ) {
        let own = self.probes.iter().filter(|probe| probe.tenant == tenant).count();
        if self.state != BreakerState::HalfOpen || version != self.version || own == 0 {
            return;
        }
        if failed > 0 {
            return self.trip(now, BreakerCause::ProbeFailed);
        }
        let settled = usize::try_from(succeeded).unwrap_or(usize::MAX).min(own);
        let mut left = settled;
        self.probes.retain(|probe| {
            let settles = probe.tenant == tenant && left > 0;
            left -= usize::from(settles);
            !settles
        });
        self.succeed(now, u32::try_from(settled).unwrap_or(u32::MAX));
    }

    fn succeed(&mut self, now: Moment, results: u32) {
        self.probe_successes = self.probe_successes.saturating_add(results);
        if self.probe_successes >= self.policy.close_after {
            self.close(now, BreakerCause::ProbesSucceeded);
        }
    }

    fn trip(&mut self, now: Moment, cause: BreakerCause) {
        let doubled = self.policy.open_for.scaled(1_u64 << self.openings.min(32), 1);
        let span = self.jitter.up_by_a_tenth(doubled.min(self.policy.open_for_max));
        self.openings = self.openings.saturating_add(1);
        self.open(now, now.after(span.min(self.policy.open_for_max)), cause);
    }

    fn open(&mut self, now: Moment, until: Moment, cause: BreakerCause) {
        self.open_until = until;
        self.enter(now, BreakerState::Open, cause);
    }

    fn close(&mut self, now: Moment, cause: BreakerCause) {
        self.openings = 0;
        self.closed_at = Some(now);
        self.enter(now, BreakerState::Closed, cause);
    }

    /// Nothing that was learnt in one state may decide the next one.
    fn enter(&mut self, now: Moment, state: BreakerState, cause: BreakerCause) {
        self.state = state;
        self.cause = cause;
        self.version = self.version.saturating_add(1);
        self.since = now;
        self.counts.clear();
        self.failures_in_a_row = 0;
        self.probes.clear();
        self.probe_successes = 0;
    }
}

fn ppm(parts: u64) -> Ppm {
    Ppm::new(u32::try_from(parts).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests;
