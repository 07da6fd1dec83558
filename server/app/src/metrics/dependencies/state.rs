//! What the server knows and decides.

use damper_core::{BoundBy, BreakerState, Kind, Reason, Snapshot, Span};

use super::{DEPENDENCY, Family};
use crate::metrics::family::{Samples, seconds};

/// What can be decided about asks: the pairs of a kind and a reason that can be.
pub(super) const DECISIONS: usize = 35;

/// The transitions of a breaker that can be.
const TRANSITIONS: [(BreakerState, BreakerState); 5] = [
    (BreakerState::Closed, BreakerState::Open),
    (BreakerState::Open, BreakerState::HalfOpen),
    (BreakerState::Open, BreakerState::Closed),
    (BreakerState::HalfOpen, BreakerState::Open),
    (BreakerState::HalfOpen, BreakerState::Closed),
];

pub(super) const FAMILIES: &[Family] = &[
    Family::counter(
        "damper_decisions_total",
        "asks",
        &["dependency", "kind", "decision", "reason"],
        "Decisions about asks, by the kind of attempt and the reason. Every reason of retries is there from the \
         start, of other kinds those that occurred.",
        decisions,
    )
    .with_sets(DECISIONS),
    Family::gauge("damper_retry_tokens", "tokens", DEPENDENCY, "Tokens that could be granted now.", |seen, samples| {
        samples.add(&[], seen.pool.tokens.as_tokens());
    }),
    Family::gauge(
        "damper_retry_tokens_limit",
        "tokens",
        DEPENDENCY,
        "Most tokens that can be saved up.",
        |seen, samples| samples.add(&[], seen.pool.burst.as_tokens()),
    ),
    Family::gauge(
        "damper_retry_rate_per_second",
        "tokens per second",
        DEPENDENCY,
        "Refill of the retry pool, in tokens.",
        |seen, samples| samples.add(&[], seen.pool.rate.as_per_s()),
    ),
    Family::gauge(
        "damper_retry_rate_bound_by",
        "0 or 1",
        &["dependency", "term"],
        "1 for the term of the rate formula that is in force.",
        |seen, samples| {
            BoundBy::ALL.iter().for_each(|term| samples.flag(&[term.as_str()], *term == seen.pool.bound_by));
        },
    )
    .with_sets(BoundBy::ALL.len()),
    Family::counter("damper_tokens_issued_total", "tokens", DEPENDENCY, "Tokens granted.", |seen, samples| {
        samples.add(&[], seen.pool.issued.as_tokens());
    }),
    Family::counter(
        "damper_tokens_returned_total",
        "tokens",
        DEPENDENCY,
        "Tokens granted and given back unused.",
        |seen, samples| samples.add(&[], seen.pool.returned.as_tokens()),
    ),
    Family::counter(
        "damper_tokens_granted_total",
        "tokens",
        DEPENDENCY,
        "Tokens that grants should have taken from the pool; equal to the issued, or the budget is not enforced.",
        |seen, samples| samples.add(&[], seen.pool.granted.as_tokens()),
    ),
    Family::gauge(
        "damper_tokens_outstanding",
        "tokens",
        DEPENDENCY,
        "Tokens that are out.",
        |seen, samples| samples.count(&[], seen.pool.outstanding),
    ),
    Family::gauge(
        "damper_tokens_unreported",
        "tokens",
        DEPENDENCY,
        "Tokens for retries that lived out their time without any client reporting an attempt for them.",
        |seen, samples| samples.count(&[], seen.unreported),
    ),
    Family::gauge(
        "damper_hedge_tokens",
        "tokens",
        DEPENDENCY,
        "Tokens that hedges could draw now.",
        |seen, samples| samples.add(&[], seen.pool.hedge_tokens.as_tokens()),
    ),
    Family::gauge(
        "damper_retry_throttle",
        "ratio",
        DEPENDENCY,
        "How far retries are turned down, from 1 to near 0.",
        |seen, samples| samples.add(&[], seen.pool.throttle.as_f64()),
    ),
    Family::gauge(
        "damper_queue_waiting",
        "asks",
        DEPENDENCY,
        "Asks that wait in the delay queue.",
        |seen, samples| samples.count(&[], seen.waiting),
    ),
    Family::gauge(
        "damper_queue_limit_tokens",
        "tokens",
        DEPENDENCY,
        "Tokens' worth of asks that may wait.",
        |seen, samples| samples.add(&[], seen.queue_limit.as_tokens()),
    ),
    Family::histogram(
        "damper_queue_wait_seconds",
        "How long asks that were granted after a wait have waited in the delay queue.",
        |seen, samples| samples.durations(&seen.waits.counts, Some(seen.waits.total)),
    ),
    Family::gauge("damper_hold_seconds", "seconds", DEPENDENCY, "The longest hold of any tenant.", |seen, samples| {
        samples.add(&[], seconds(seen.hold));
    }),
    Family::gauge(
        "damper_breaker_state",
        "0 or 1",
        &["dependency", "state"],
        "1 for the breaker's state; where tenants have their own, for the least closed one's.",
        |seen, samples| {
            BreakerState::ALL
                .iter()
                .for_each(|state| samples.flag(&[state.as_str()], *state == seen.breaker.state));
        },
    )
    .with_sets(BreakerState::ALL.len()),
    Family::gauge(
        "damper_breaker_version",
        "version",
        DEPENDENCY,
        "Rises with every transition of the breaker.",
        |seen, samples| samples.count(&[], seen.breaker.version),
    ),
    Family::counter(
        "damper_breaker_transitions_total",
        "transitions",
        &["dependency", "from", "to"],
        "Transitions of the breaker, or of all breakers of tenants, by the states before and after.",
        transitions,
    )
    .with_sets(TRANSITIONS.len()),
    Family::gauge(
        "damper_breaker_probes_out",
        "probes",
        DEPENDENCY,
        "Probes of a half-open breaker that are out.",
        |seen, samples| samples.count(&[], u64::from(seen.breaker.probes_out)),
    ),
    Family::counter(
        "damper_breaker_stale_results_total",
        "attempts",
        DEPENDENCY,
        "Attempts whose results came under an older breaker version and were ignored.",
        |seen, samples| samples.count(&[], seen.stale_results),
    ),
    Family::gauge("damper_tenants", "tenants", DEPENDENCY, "Tenants that spend.", |seen, samples| {
        samples.count(&[], seen.tenant_count);
    }),
    Family::gauge(
        "damper_clients",
        "clients",
        DEPENDENCY,
        "Clients that reported within the last minute.",
        |seen, samples| samples.count(&[], seen.clients),
    ),
    Family::gauge(
        "damper_sync_lag_seconds",
        "seconds",
        DEPENDENCY,
        "The longest time since any client that reported within the last minute last did; absent without any.",
        |seen, samples| seen.sync_lag.iter().for_each(|lag: &Span| samples.add(&[], seconds(*lag))),
    ),
    Family::gauge(
        "damper_first_wanted_per_second",
        "attempts per second",
        DEPENDENCY,
        "First attempts that clients would like to start, by their syncs of the last five seconds.",
        |seen, samples| samples.add(&[], seen.first.wanted.as_per_s()),
    ),
    Family::gauge(
        "damper_first_allocated_per_second",
        "attempts per second",
        DEPENDENCY,
        "First attempts that are leased to clients; 0 while nothing limits them.",
        |seen, samples| samples.add(&[], seen.first.allocated.as_per_s()),
    ),
    Family::gauge(
        "damper_first_leases",
        "leases",
        DEPENDENCY,
        "Leases of first attempts that have not ended; 0 while nothing limits them.",
        |seen, samples| samples.count(&[], seen.first.leases),
    ),
    Family::gauge(
        "damper_dependency_capacity_requests_per_second",
        "attempts per second",
        DEPENDENCY,
        "Attempts that the dependency sustains; absent where not configured.",
        |seen, samples| {
            seen.policy.capacity().iter().for_each(|capacity| samples.add(&[], capacity.as_per_s()));
        },
    ),
    Family::gauge(
        "damper_dependency_max_attempts",
        "attempts",
        DEPENDENCY,
        "Attempts of one operation, the first included.",
        |seen, samples| samples.count(&[], u64::from(seen.policy.max_attempts())),
    ),
    Family::gauge(
        "damper_dependency_retry_budget_ratio",
        "ratio",
        DEPENDENCY,
        "Retry tokens per first attempt that succeeds; absent where the policy has no ratio.",
        |seen, samples| {
            seen.policy.retry_ratio().iter().for_each(|ratio| samples.add(&[], ratio.as_f64()));
        },
    ),
    Family::gauge(
        "damper_dependency_shadow",
        "0 or 1",
        DEPENDENCY,
        "1 in shadow mode: everything is decided and counted, and granted.",
        |seen, samples| samples.flag(&[], seen.policy.shadow()),
    ),
];

fn transitions(seen: &Snapshot, samples: &mut Samples) {
    for (from, to) in TRANSITIONS {
        let count = seen.transitions.get(from.index()).and_then(|counts| counts.get(to.index()));
        samples.count(&[from.as_str(), to.as_str()], count.copied().unwrap_or(0));
    }
}

/// Every reason of retries from the start, so that the first of its kind is an increase; of other kinds those
/// that occurred.
fn decisions(seen: &Snapshot, samples: &mut Samples) {
    for kind in Kind::ALL {
        for reason in Reason::ALL {
            let found = seen.decided.iter().find(|count| (count.kind, count.reason) == (*kind, *reason));
            if *kind == Kind::Retry || found.is_some() {
                let labels = [kind.as_str(), reason.verdict().as_str(), reason.as_str()];
                samples.count(&labels, found.map_or(0, |found| found.count));
            }
        }
    }
}
