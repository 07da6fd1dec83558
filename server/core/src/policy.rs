//! A dependency's policy: validated once, immutable after.
//!
//! A [`PolicyDraft`] holds what an operator wrote, numbers as people write them; [`Policy::new`] turns it into
//! exact amounts, or names every mistake at once. An invalid policy cannot be built.

use std::collections::BTreeMap;

use crate::units::{MICROS_PER_TOKEN, PPM};
use crate::{
    Class, FailMode, Failure, FailureReason, MicroTokens, MicrosPerSecond, OnOpen, Ppm, RetryOwner, Scope,
    Span,
};

mod check;

use check::Check;

/// What an operator wrote. [`None`] means: the default. Rates are numbers per second, durations milliseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PolicyDraft {
    /// Attempts per second that the dependency sustains. Default: unknown.
    pub capacity_per_s: Option<f64>,
    /// Attempts of one operation, the first included. Default 4.
    pub max_attempts: Option<u32>,
    /// Longest wait in the delay queue. Default 2000.
    pub max_delay_ms: Option<u64>,
    /// How long a granted token may wait for its attempt to start. Default 2000.
    pub token_ttl_ms: Option<u64>,
    /// What clients do about retries while no server answers. Default open.
    pub fail_mode: Option<FailMode>,
    /// Which of several nested layers owns the retries. Default the outermost.
    pub retry_owner: Option<RetryOwner>,
    /// Decisions are made and counted, and everything is granted. Default false.
    pub shadow: Option<bool>,
    /// Most attempts per operation of any one tenant, over ten seconds, at least 1. Default: none.
    pub amplification_cap: Option<f64>,
    /// The retry pool.
    pub retry: RetryDraft,
    /// The breaker.
    pub breaker: BreakerDraft,
    /// Tenants that differ from the rest.
    pub tenants: BTreeMap<String, TenantDraft>,
}

/// The retry pool as written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RetryDraft {
    /// A plain fixed pool, in tokens per second.
    pub per_s: Option<f64>,
    /// Tokens per first attempt that succeeds. Default 0.1 if nothing else is configured, 1.0 if only the
    /// capacity is.
    pub ratio: Option<f64>,
    /// The least rate, for the whole fleet. Default 1, or `per_s` if that is less.
    pub floor_per_s: Option<f64>,
    /// The share of the room below the capacity that retries may use. Default 0.8.
    pub headroom_share: Option<f64>,
    /// Most tokens that can be saved up. Default one second of the rate, at least one token.
    pub burst: Option<f64>,
    /// Hedges per first attempt that succeeds. Default 0.05.
    pub hedge_ratio: Option<f64>,
    /// Tokens that a retry costs, by what failed before.
    pub cost: CostDraft,
}

/// Prices in tokens as written. Where two apply, the higher one does. Default 1 each.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CostDraft {
    /// After a transient failure.
    pub transient: Option<u32>,
    /// After a rate limit.
    pub rate_limited: Option<u32>,
    /// After a timeout: the work was probably done.
    pub timeout: Option<u32>,
    /// After a missing slot.
    pub no_resources: Option<u32>,
}

/// The breaker as written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BreakerDraft {
    /// Share of counted attempts that must fail. Default 0.8.
    pub failure_share: Option<f64>,
    /// Counted attempts without which no share counts. Default 20.
    pub min_volume: Option<u64>,
    /// Failures in a row that open it whatever the share. Default: none.
    pub consecutive: Option<u64>,
    /// How far back attempts count. Default 10 000.
    pub window_ms: Option<u64>,
    /// How long it stays open the first time. Default 30 000.
    pub open_for_ms: Option<u64>,
    /// The longest that doubling may make this. Default ten times `open_for_ms`.
    pub open_for_max_ms: Option<u64>,
    /// Probes out at once, for the whole fleet. Default 3.
    pub probes: Option<u32>,
    /// How long a probe may go without a result before its place is given away. Default 5000.
    pub probe_ttl_ms: Option<u64>,
    /// Successful probes that close it. Default 5.
    pub close_after: Option<u32>,
    /// What it stops when open. Default all.
    pub on_open: Option<OnOpen>,
    /// For whom it is. Default for everyone.
    pub scope: Option<Scope>,
    /// From when on an attempt counts as slow, whether it has ended or not. Default: never.
    pub slow_call_ms: Option<u64>,
    /// Share of attempts that must be slow to open it. Default 0.8.
    pub slow_share: Option<f64>,
    /// How long first attempts take from a tenth of their rate to all of it once it has closed. Default 10 000.
    pub ramp_ms: Option<u64>,
}

/// A tenant as written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TenantDraft {
    /// Weight in the fair queue and in the shares of first attempts. Default 1.
    pub weight: Option<u32>,
    /// In place of the dependency's `amplification_cap`.
    pub amplification_cap: Option<f64>,
}

/// One mistake in a draft.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyFault {
    /// Where, with dots: `retry.per_s`.
    pub place: String,
    /// What is wrong, and the remedy.
    pub message: String,
}

/// A dependency's policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    pub(crate) capacity: Option<MicrosPerSecond>,
    pub(crate) max_attempts: u32,
    pub(crate) max_delay: Span,
    pub(crate) token_ttl: Span,
    pub(crate) fail_mode: FailMode,
    pub(crate) retry_owner: RetryOwner,
    pub(crate) shadow: bool,
    pub(crate) extra_attempts: Option<Ppm>,
    pub(crate) retry: RetryPolicy,
    pub(crate) breaker: BreakerPolicy,
    pub(crate) tenants: BTreeMap<Box<str>, TenantPolicy>,
}

/// What sets a tenant of a [`Policy`] apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TenantPolicy {
    pub(crate) weight: u32,
    pub(crate) extra_attempts: Option<Ppm>,
}

/// The retry pool of a [`Policy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RetryPolicy {
    pub(crate) per_s: Option<MicrosPerSecond>,
    pub(crate) ratio: Option<Ppm>,
    pub(crate) floor: MicrosPerSecond,
    pub(crate) headroom_share: Ppm,
    pub(crate) burst: Option<MicroTokens>,
    pub(crate) hedge_ratio: Ppm,
    pub(crate) cost: CostPolicy,
}

/// The prices of a [`Policy`], in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CostPolicy {
    transient: u32,
    rate_limited: u32,
    timeout: u32,
    no_resources: u32,
}

impl CostPolicy {
    /// The price of a retry after this failure.
    pub(crate) fn after(&self, failure: &Failure) -> u32 {
        let of_class = match failure.class {
            Class::Transient => self.transient,
            Class::RateLimited => self.rate_limited,
            Class::Invalid | Class::Permission | Class::Fatal | Class::Semantic => 1,
        };
        let of_reason = match failure.reason {
            Some(FailureReason::Timeout) => self.timeout,
            Some(FailureReason::NoResources) => self.no_resources,
            Some(FailureReason::HandlerError) | None => 1,
        };
        of_class.max(of_reason)
    }
}

/// The breaker of a [`Policy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(damper_model, derive(Hash))]
pub(crate) struct BreakerPolicy {
    pub(crate) failure_share: Ppm,
    pub(crate) min_volume: u64,
    pub(crate) consecutive: Option<u64>,
    pub(crate) window: Span,
    pub(crate) open_for: Span,
    pub(crate) open_for_max: Span,
    pub(crate) probes: u32,
    pub(crate) probe_ttl: Span,
    pub(crate) close_after: u32,
    pub(crate) on_open: OnOpen,
    pub(crate) scope: Scope,
    pub(crate) slow_call: Option<Span>,
    pub(crate) slow_share: Ppm,
    pub(crate) ramp: Span,
}

impl PolicyDraft {
    /// This draft with what it leaves open filled in from `defaults`.
    #[must_use]
    pub fn or(mut self, defaults: &Self) -> Self {
        macro_rules! fill {
            ($($($field:ident).+),+ $(,)?) => { $(self.$($field).+ = self.$($field).+.or(defaults.$($field).+);)+ };
        }
        fill!(
            capacity_per_s,
            max_attempts,
            max_delay_ms,
            token_ttl_ms,
            fail_mode,
            retry_owner,
            shadow,
            amplification_cap,
            retry.per_s,
            retry.ratio,
            retry.floor_per_s,
            retry.headroom_share,
            retry.burst,
            retry.hedge_ratio,
            retry.cost.transient,
            retry.cost.rate_limited,
            retry.cost.timeout,
            retry.cost.no_resources,
            breaker.failure_share,
            breaker.min_volume,
            breaker.consecutive,
            breaker.window_ms,
            breaker.open_for_ms,
            breaker.open_for_max_ms,
            breaker.probes,
            breaker.probe_ttl_ms,
            breaker.close_after,
            breaker.on_open,
            breaker.scope,
            breaker.slow_call_ms,
            breaker.slow_share,
            breaker.ramp_ms,
        );
        for (name, tenant) in &defaults.tenants {
            self.tenants.entry(name.clone()).or_insert_with(|| tenant.clone());
        }
        self
    }
}

impl Policy {
    /// Builds the policy that `draft` describes.
    ///
    /// # Errors
    /// Every mistake of the draft, in the order of its fields.
    pub fn new(draft: &PolicyDraft) -> Result<Self, Vec<PolicyFault>> {
        let mut check = Check::default();
        let policy = Self {
            capacity: check.rate("capacity_per_s", draft.capacity_per_s),
            max_attempts: check.within("max_attempts", draft.max_attempts.unwrap_or(4), 1, 100),
            max_delay: check.span("max_delay_ms", draft.max_delay_ms.unwrap_or(2000), 0, 600_000),
            token_ttl: check.span("token_ttl_ms", draft.token_ttl_ms.unwrap_or(2000), 100, 600_000),
            fail_mode: draft.fail_mode.unwrap_or(FailMode::Open),
            retry_owner: draft.retry_owner.unwrap_or(RetryOwner::Outermost),
            shadow: draft.shadow.unwrap_or(false),
            extra_attempts: check.cap("amplification_cap", draft.amplification_cap),
            retry: retry(&mut check, draft),
            breaker: breaker(&mut check, &draft.breaker),
            tenants: tenants(&mut check, &draft.tenants),
        };
        check.finish(policy)
    }

    /// Attempts per second that the dependency sustains, where known.
    #[must_use]
    pub const fn capacity(&self) -> Option<MicrosPerSecond> {
        self.capacity
    }

    /// Attempts of one operation, the first included.
    #[must_use]
    pub const fn max_attempts(&self) -> u32 {
        self.max_attempts
    }

    /// Longest wait in the delay queue.
    #[must_use]
    pub const fn max_delay(&self) -> Span {
        self.max_delay
    }

    /// What clients do about retries while no server answers.
    #[must_use]
    pub const fn fail_mode(&self) -> FailMode {
        self.fail_mode
    }

    /// Which of several nested layers owns the retries.
    #[must_use]
    pub const fn retry_owner(&self) -> RetryOwner {
        self.retry_owner
    }

    /// What an open breaker stops.
    #[must_use]
    pub const fn on_open(&self) -> OnOpen {
        self.breaker.on_open
    }

    /// Whether everything is granted.
    #[must_use]
    pub const fn shadow(&self) -> bool {
        self.shadow
    }

    /// For whom the breaker is.
    #[must_use]
    pub const fn scope(&self) -> Scope {
        self.breaker.scope
    }

    /// From when on an attempt counts as slow.
    #[must_use]
    pub const fn slow_call(&self) -> Option<Span> {
        self.breaker.slow_call
    }

    /// Tokens per first attempt that succeeds, where that term is in force.
    #[must_use]
    pub const fn retry_ratio(&self) -> Option<Ppm> {
        self.retry.ratio
    }

    /// The weight of `tenant` in the fair queue and in the shares of first attempts.
    #[must_use]
    pub fn weight(&self, tenant: &str) -> u32 {
        self.tenants.get(tenant).map_or(1, |tenant| tenant.weight)
    }

    /// Attempts beyond the first that `tenant` may make per operation; [`None`] where that is not capped.
    pub(crate) fn extra_attempts(&self, tenant: &str) -> Option<Ppm> {
        self.tenants.get(tenant).and_then(|tenant| tenant.extra_attempts).or(self.extra_attempts)
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self::new(&PolicyDraft::default()).unwrap_or_else(|_| unreachable!("the defaults are valid"))
    }
}

fn retry(check: &mut Check, draft: &PolicyDraft) -> RetryPolicy {
    let written = &draft.retry;
    let per_s = check.rate("retry.per_s", written.per_s);
    let default_ratio = match (per_s, draft.capacity_per_s) {
        (Some(_), _) => None,
        (None, Some(_)) => Some(1.0),
        (None, None) => Some(0.1),
    };
    let default_floor = per_s.map_or(1.0, |rate| rate.as_per_s().min(1.0));
    let headroom_share = check.share("retry.headroom_share", written.headroom_share.unwrap_or(0.8));
    RetryPolicy {
        per_s,
        ratio: written.ratio.or(default_ratio).map(|ratio| check.ratio("retry.ratio", ratio)),
        floor: check
            .rate("retry.floor_per_s", Some(written.floor_per_s.unwrap_or(default_floor)))
            .unwrap_or_default(),
        headroom_share,
        burst: written.burst.map(|burst| check.burst("retry.burst", burst)),
        hedge_ratio: check.share("retry.hedge_ratio", written.hedge_ratio.unwrap_or(0.05)),
        cost: cost(check, &written.cost),
    }
}

fn cost(check: &mut Check, draft: &CostDraft) -> CostPolicy {
    let mut price = |place: &str, price: Option<u32>| check.within(place, price.unwrap_or(1), 1, 1000);
    CostPolicy {
        transient: price("retry.cost.transient", draft.transient),
        rate_limited: price("retry.cost.rate_limited", draft.rate_limited),
        timeout: price("retry.cost.timeout", draft.timeout),
        no_resources: price("retry.cost.no_resources", draft.no_resources),
    }
}

fn breaker(check: &mut Check, draft: &BreakerDraft) -> BreakerPolicy {
    const HOUR_MS: u64 = 3_600_000;
    let open_for_ms = draft.open_for_ms.unwrap_or(30_000);
    let longest = draft.open_for_max_ms.unwrap_or(open_for_ms.saturating_mul(10).min(24 * HOUR_MS));
    BreakerPolicy {
        failure_share: check.positive_share("breaker.failure_share", draft.failure_share.unwrap_or(0.8)),
        min_volume: check.within(
            "breaker.min_volume",
            draft.min_volume.unwrap_or(20),
            1,
            u64::from(u32::MAX),
        ),
        consecutive: draft
            .consecutive
            .map(|count| check.within("breaker.consecutive", count, 1, u64::from(u32::MAX))),
        window: check.span("breaker.window_ms", draft.window_ms.unwrap_or(10_000), 100, HOUR_MS),
        open_for: check.span("breaker.open_for_ms", open_for_ms, 1, HOUR_MS),
        open_for_max: check.span("breaker.open_for_max_ms", longest, open_for_ms, 24 * HOUR_MS),
        probes: check.within("breaker.probes", draft.probes.unwrap_or(3), 1, 1000),
        probe_ttl: check.span("breaker.probe_ttl_ms", draft.probe_ttl_ms.unwrap_or(5000), 100, HOUR_MS),
        close_after: check.within("breaker.close_after", draft.close_after.unwrap_or(5), 1, 1000),
        on_open: draft.on_open.unwrap_or(OnOpen::All),
        scope: draft.scope.unwrap_or(Scope::Dependency),
        slow_call: draft.slow_call_ms.map(|ms| check.span("breaker.slow_call_ms", ms, 1, HOUR_MS)),
        slow_share: check.positive_share("breaker.slow_share", draft.slow_share.unwrap_or(0.8)),
        ramp: check.span("breaker.ramp_ms", draft.ramp_ms.unwrap_or(10_000), 0, HOUR_MS),
    }
}

fn tenants(check: &mut Check, drafts: &BTreeMap<String, TenantDraft>) -> BTreeMap<Box<str>, TenantPolicy> {
    drafts
        .iter()
        .map(|(name, draft)| {
            let place = |key: &str| format!("tenants.{name}.{key}");
            let weight = check.within(&place("weight"), draft.weight.unwrap_or(1), 1, 1_000_000);
            let extra_attempts = check.cap(&place("amplification_cap"), draft.amplification_cap);
            (name.as_str().into(), TenantPolicy { weight, extra_attempts })
        })
        .collect()
}

const _: () = assert!(PPM == MICROS_PER_TOKEN, "both are millionths, which `check` relies on");

#[cfg(test)]
mod tests;
