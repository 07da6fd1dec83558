//! The metrics of dependencies: a table of families, each with the part of a snapshot that it shows.
//!
//! No label holds a tenant, and dependencies are bounded by the engine, so the page is bounded.

use std::sync::Arc;

use damper_core::{BoundBy, BreakerState, Class, Kind, Reason, Snapshot, Span};
use damper_engine::MemoryEngine;
use prometheus::core::{Collector, Desc};
use prometheus::proto::{MetricFamily, MetricType};

use super::samples::{Family, Samples};

/// Reads the engine when it is scraped.
pub(super) struct Dependencies {
    engine: MemoryEngine,
    descriptions: Vec<Desc>,
}

impl Dependencies {
    pub(super) fn new(engine: MemoryEngine) -> prometheus::Result<Self> {
        let descriptions = FAMILIES.iter().map(Family::desc).collect::<Result<_, _>>()?;
        Ok(Self { engine, descriptions })
    }
}

impl Collector for Dependencies {
    fn desc(&self) -> Vec<&Desc> {
        self.descriptions.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let names = self.engine.names().into_iter();
        let seen: Vec<(Arc<str>, Snapshot)> =
            names.filter_map(|name| self.engine.snapshot(&name).map(|snapshot| (name, snapshot))).collect();
        if seen.is_empty() {
            return Vec::new();
        }
        let subjects = || seen.iter().map(|(name, snapshot)| (&**name, snapshot));
        FAMILIES.iter().map(|family| family.collect(subjects())).collect()
    }
}

const fn counter(
    name: &'static str,
    help: &'static str,
    labels: &'static [&'static str],
    sample: fn(&Snapshot, &mut Samples<'_>),
) -> Family<Snapshot> {
    Family { name, help, kind: MetricType::COUNTER, labels, sample }
}

const fn gauge(
    name: &'static str,
    help: &'static str,
    labels: &'static [&'static str],
    sample: fn(&Snapshot, &mut Samples<'_>),
) -> Family<Snapshot> {
    Family { name, help, kind: MetricType::GAUGE, labels, sample }
}

const fn histogram(
    name: &'static str,
    help: &'static str,
    sample: fn(&Snapshot, &mut Samples<'_>),
) -> Family<Snapshot> {
    Family { name, help, kind: MetricType::HISTOGRAM, labels: &[], sample }
}

/// A counter that shows one of the reported totals.
macro_rules! total {
    ($name:literal, $field:ident, $help:literal) => {
        counter($name, $help, &[], |seen, samples| samples.count(&[], seen.totals.$field))
    };
}

const FAMILIES: &[Family<Snapshot>] = &[
    counter(
        "damper_decisions_total",
        "Decisions about asks, by the kind of attempt and the reason.",
        &["kind", "decision", "reason"],
        decisions,
    ),
    gauge("damper_retry_tokens", "Tokens that could be granted now.", &[], |seen, samples| {
        samples.add(&[], seen.pool.tokens.as_tokens());
    }),
    gauge("damper_retry_tokens_limit", "Most tokens that can be saved up.", &[], |seen, samples| {
        samples.add(&[], seen.pool.burst.as_tokens());
    }),
    gauge("damper_retry_rate_per_second", "Refill of the retry pool, in tokens.", &[], |seen, samples| {
        samples.add(&[], seen.pool.rate.as_per_s());
    }),
    gauge(
        "damper_retry_rate_bound_by",
        "1 for the term of the rate formula that is in force.",
        &["term"],
        |seen, samples| {
            for term in BoundBy::ALL {
                samples.count(&[term.as_str()], u64::from(*term == seen.pool.bound_by));
            }
        },
    ),
    counter("damper_tokens_issued_total", "Tokens granted.", &[], |seen, samples| {
        samples.add(&[], seen.pool.issued.as_tokens());
    }),
    counter("damper_tokens_returned_total", "Tokens granted and given back unused.", &[], |seen, samples| {
        samples.add(&[], seen.pool.returned.as_tokens());
    }),
    counter(
        "damper_tokens_granted_total",
        "Tokens that grants should have taken from the pool; equal to the issued, or the budget is not enforced.",
        &[],
        |seen, samples| samples.add(&[], seen.pool.granted.as_tokens()),
    ),
    gauge("damper_tokens_outstanding", "Tokens that are out.", &[], |seen, samples| {
        samples.count(&[], seen.pool.outstanding);
    }),
    gauge(
        "damper_tokens_unreported",
        "Tokens for retries that lived out their time without any client reporting an attempt for them.",
        &[],
        |seen, samples| samples.count(&[], seen.unreported),
    ),
    gauge("damper_hedge_tokens", "Tokens that hedges could draw now.", &[], |seen, samples| {
        samples.add(&[], seen.pool.hedge_tokens.as_tokens());
    }),
    gauge(
        "damper_retry_throttle",
        "How far retries are turned down, from 1 to near 0.",
        &[],
        |seen, samples| {
            samples.add(&[], seen.pool.throttle.as_f64());
        },
    ),
    gauge("damper_queue_waiting", "Asks that wait in the delay queue.", &[], |seen, samples| {
        samples.count(&[], seen.waiting);
    }),
    gauge("damper_queue_limit_tokens", "Tokens' worth of asks that may wait.", &[], |seen, samples| {
        samples.add(&[], seen.queue_limit.as_tokens());
    }),
    gauge("damper_hold_seconds", "The longest hold of any tenant.", &[], |seen, samples| {
        samples.add(&[], seconds(seen.hold));
    }),
    gauge("damper_breaker_state", "1 for the breaker's state.", &["state"], |seen, samples| {
        for state in BreakerState::ALL {
            samples.count(&[state.as_str()], u64::from(*state == seen.breaker.state));
        }
    }),
    gauge("damper_breaker_version", "Rises with every transition of the breaker.", &[], |seen, samples| {
        samples.count(&[], seen.breaker.version);
    }),
    gauge(
        "damper_breaker_probes_out",
        "Probes of a half-open breaker that are out.",
        &[],
        |seen, samples| {
            samples.count(&[], u64::from(seen.breaker.probes_out));
        },
    ),
    counter(
        "damper_breaker_stale_results_total",
        "Attempts whose results came under an older breaker version and were ignored.",
        &[],
        |seen, samples| samples.count(&[], seen.stale_results),
    ),
    gauge("damper_tenants", "Tenants that spend.", &[], |seen, samples| {
        samples.count(&[], seen.tenant_count);
    }),
    gauge("damper_clients", "Clients that reported within the last minute.", &[], |seen, samples| {
        samples.count(&[], seen.clients);
    }),
    gauge(
        "damper_dependency_capacity_requests_per_second",
        "Attempts that the dependency sustains, where configured.",
        &[],
        |seen, samples| {
            if let Some(capacity) = seen.policy.capacity() {
                samples.add(&[], capacity.as_per_s());
            }
        },
    ),
    gauge(
        "damper_dependency_max_attempts",
        "Attempts of one operation, the first included.",
        &[],
        |seen, samples| samples.count(&[], u64::from(seen.policy.max_attempts())),
    ),
    total!("damper_logical_operations_total", logical, "Operations started: what users intended."),
    total!("damper_physical_attempts_total", physical, "Attempts started: load on the dependency."),
    total!("damper_successful_operations_total", success, "Operations that succeeded."),
    total!("damper_affected_operations_total", affected, "Operations whose first attempt failed."),
    total!(
        "damper_recovered_operations_total",
        recovered,
        "Operations that succeeded after at least one failure."
    ),
    total!(
        "damper_exhausted_operations_total",
        exhausted,
        "Operations that failed after their last attempt."
    ),
    total!("damper_abandoned_operations_total", abandoned, "Operations whose caller went away."),
    total!("damper_ambiguous_operations_total", ambiguous, "Operations that ended with an unknown effect."),
    total!("damper_client_shed_retries_total", shed, "Retries that clients shed themselves."),
    total!(
        "damper_client_expired_retries_total",
        expired,
        "Retries that clients gave up because their deadline had passed."
    ),
    total!("damper_emergency_retries_total", emergency, "Retries granted by clients without a server."),
    total!("damper_slow_attempts_total", slow, "Attempts that passed the policy's slow_call_ms."),
    total!("damper_foreign_attempts_total", foreign, "Extra attempts that another layer was seen to make."),
    histogram(
        "damper_attempt_duration_seconds",
        "How long attempts took. The sum is an estimate from the buckets.",
        |seen, samples| samples.durations(&[], &seen.totals.latency),
    ),
    histogram(
        "damper_recovery_duration_seconds",
        "From an operation's first failure to its success. The sum is an estimate from the buckets.",
        |seen, samples| samples.durations(&[], &seen.totals.recovery),
    ),
    counter("damper_attempt_failures_total", "Failed attempts by class.", &["class"], |seen, samples| {
        for class in Class::ALL {
            samples.count(&[class.as_str()], seen.totals.failed(*class));
        }
    }),
    counter(
        "damper_attempt_failures_by_source_total",
        "Failed attempts by whose making they were.",
        &["source"],
        |seen, samples| {
            samples.count(&["application"], seen.totals.source_application);
            samples.count(&["runtime"], seen.totals.source_runtime);
        },
    ),
    counter(
        "damper_attempt_failures_by_reason_total",
        "Failed attempts by the reason that a handler platform sees.",
        &["reason"],
        |seen, samples| {
            samples.count(&["handler_error"], seen.totals.reason_handler_error);
            samples.count(&["timeout"], seen.totals.reason_timeout);
            samples.count(&["no_resources"], seen.totals.reason_no_resources);
        },
    ),
];

/// Every reason of retries from the start, so that the first of its kind is an increase; of other kinds those
/// that occurred.
fn decisions(seen: &Snapshot, samples: &mut Samples<'_>) {
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

#[expect(clippy::cast_precision_loss, reason = "for display")]
const fn seconds(span: Span) -> f64 {
    span.as_nanos() as f64 / 1e9
}
