//! Syncs and their answers.

use damper_core::histogram::Histogram;
use damper_core::{Advice, Class, FirstLease, MicrosPerSecond, Report, Totals};
use damper_protocol as wire;
use damper_protocol::{
    Emergency, FailureCounts, FirstAttempts, ReasonCounts, SourceCounts, SyncDependency, SyncedDependency,
};

use super::{ToCore, breaker, policy};

/// One client's emergency share is capped: a share of a large pool, times a fleet that lost its server at once,
/// is the storm.
const MOST_EMERGENCY_PER_S: f64 = 1.0;
/// Emergency retries per recent successful first attempt.
const EMERGENCY_RATIO: f64 = 0.1;

/// What `client` of `tenant` reports about one dependency; the engine adds the results of probes.
pub(crate) fn report(client: &str, tenant: &str, synced: &SyncDependency) -> Report {
    Report {
        client: client.into(),
        tenant: tenant.into(),
        wants_first: rate(synced.wants_first_per_s),
        has_first: rate(synced.has_first_per_s),
        totals: totals(&synced.totals),
        acked: synced.acked.as_ref().map(totals).unwrap_or_default(),
        breaker_version: synced.breaker_version,
        breaker_state: synced.breaker_state.map(ToCore::to_core),
        probes: None,
    }
}

/// The key of a client's record. Names hold no control characters, so the joint is unambiguous; and no tenant
/// can write into another's record.
pub(crate) fn client_key(tenant: &str, client: &wire::ClientIdentity) -> String {
    format!("{tenant}\0{}\0{}", client.id, client.incarnation)
}

/// What the client is told in return.
pub(crate) fn advice(advice: &Advice) -> SyncedDependency {
    SyncedDependency {
        first: advice.first.map(first),
        emergency: Emergency {
            per_s: advice.emergency_per_s.as_per_s().min(MOST_EMERGENCY_PER_S),
            ratio: EMERGENCY_RATIO,
            throttled: advice.throttled,
        },
        breaker: breaker(&advice.breaker),
        hold_ms: advice.hold.as_millis_ceil(),
        suppress_ms: advice.suppress.as_millis_ceil(),
        policy: policy(&advice.policy),
    }
}

/// A lease of first attempts.
fn first(lease: FirstLease) -> FirstAttempts {
    FirstAttempts {
        per_s: lease.rate.as_per_s(),
        burst: lease.burst.as_tokens(),
        ttl_ms: lease.ttl.as_millis(),
        safe_per_s: lease.safe.as_per_s(),
        safe_for_ms: lease.safe_for.map(|span| span.as_millis()),
    }
}

/// A rate that a peer stated: whatever it is, it ends up in the range of rates.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
fn rate(per_s: f64) -> MicrosPerSecond {
    MicrosPerSecond::from_micros((per_s * 1e6) as u64).min(MicrosPerSecond::MAX)
}

/// Counts by bucket; what a peer counts beyond the last bucket belongs to the last.
fn histogram(counts: &[u64]) -> Histogram {
    let mut histogram = Histogram::default();
    let last = histogram.len() - 1;
    for (bucket, count) in counts.iter().enumerate() {
        if let Some(sum) = histogram.get_mut(bucket.min(last)) {
            *sum = sum.saturating_add(*count);
        }
    }
    histogram
}

fn totals(totals: &wire::Totals) -> Totals {
    let wire::Totals {
        logical,
        physical,
        success,
        ref failures,
        sources: SourceCounts { application, runtime },
        reasons: ReasonCounts { handler_error, timeout, no_resources },
        affected,
        recovered,
        exhausted,
        shed,
        expired,
        emergency,
        abandoned,
        ambiguous,
        foreign,
        slow,
        ref latency,
        ref recovery,
    } = *totals;
    Totals {
        logical,
        physical,
        success,
        source_application: application,
        source_runtime: runtime,
        reason_handler_error: handler_error,
        reason_timeout: timeout,
        reason_no_resources: no_resources,
        affected,
        recovered,
        exhausted,
        shed,
        expired,
        emergency,
        abandoned,
        ambiguous,
        foreign,
        slow,
        latency: histogram(latency),
        recovery: histogram(recovery),
        failures: by_class(failures),
    }
}

fn by_class(counts: &FailureCounts) -> [u64; Class::ALL.len()] {
    let mut by_class = [0; Class::ALL.len()];
    for (place, class) in by_class.iter_mut().zip(Class::ALL) {
        *place = match class {
            Class::Transient => counts.transient,
            Class::RateLimited => counts.rate_limited,
            Class::Invalid => counts.invalid,
            Class::Permission => counts.permission,
            Class::Fatal => counts.fatal,
            Class::Semantic => counts.semantic,
        };
    }
    by_class
}

/// Failed attempts by class, for people.
pub(crate) fn failures(totals: &Totals) -> FailureCounts {
    FailureCounts {
        transient: totals.failed(Class::Transient),
        rate_limited: totals.failed(Class::RateLimited),
        invalid: totals.failed(Class::Invalid),
        permission: totals.failed(Class::Permission),
        fatal: totals.failed(Class::Fatal),
        semantic: totals.failed(Class::Semantic),
    }
}
