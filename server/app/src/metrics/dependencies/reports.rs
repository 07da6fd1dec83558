//! What clients report, and what their reports come to.

use damper_core::{Class, Snapshot, WindowSnapshot};

use super::{DEPENDENCY, Family};
use crate::metrics::family::Samples;

/// A counter that shows one of the reported totals.
macro_rules! total {
    ($name:literal, $unit:literal, $field:ident, $help:literal) => {
        Family::counter($name, $unit, DEPENDENCY, $help, |seen, samples| {
            samples.count(&[], seen.totals.$field)
        })
    };
}

const WINDOW: &[&str] = &["dependency", "window"];

pub(super) const FAMILIES: &[Family] = &[
    Family::gauge(
        "damper_amplification",
        "attempts per operation",
        WINDOW,
        "Attempts per operation over the last 10s, 1m and 5m; absent for a window without operations.",
        |seen, samples| ratios(seen, samples, |window| window.amplification),
    )
    .with_sets(3),
    Family::gauge(
        "damper_expected_amplification",
        "attempts per operation",
        WINDOW,
        "What independent failures at the measured rate and the policy's attempts would give, over the last 10s, 1m \
         and 5m; absent for a window in which no attempt ended.",
        |seen, samples| ratios(seen, samples, |window| window.expected_amplification),
    )
    .with_sets(3),
    Family::gauge(
        "damper_other_layers_retry",
        "0 or 1",
        WINDOW,
        "1 if amplification is above 1.1 of the expected one over at least 100 operations: failures are not \
         independent, or another layer retries too.",
        |seen, samples| {
            seen.windows.iter().for_each(|window| samples.flag(&[window.name], window.other_layers_retry));
        },
    )
    .with_sets(3),
    total!("damper_logical_operations_total", "operations", logical, "Operations started: what users intended."),
    total!("damper_physical_attempts_total", "attempts", physical, "Attempts started: load on the dependency."),
    total!("damper_successful_operations_total", "operations", success, "Operations that succeeded."),
    total!("damper_affected_operations_total", "operations", affected, "Operations whose first attempt failed."),
    total!(
        "damper_recovered_operations_total",
        "operations",
        recovered,
        "Operations that succeeded after at least one failure."
    ),
    total!(
        "damper_exhausted_operations_total",
        "operations",
        exhausted,
        "Operations that failed after their last attempt."
    ),
    total!(
        "damper_abandoned_operations_total",
        "operations",
        abandoned,
        "Operations whose caller went away."
    ),
    total!(
        "damper_ambiguous_operations_total",
        "operations",
        ambiguous,
        "Operations that ended with an unknown effect."
    ),
    total!("damper_client_shed_retries_total", "retries", shed, "Retries that clients shed themselves."),
    total!(
        "damper_client_expired_retries_total",
        "retries",
        expired,
        "Retries that clients gave up because their deadline had passed."
    ),
    total!(
        "damper_emergency_retries_total",
        "retries",
        emergency,
        "Retries granted by clients without a server."
    ),
    total!(
        "damper_slow_attempts_total",
        "attempts",
        slow,
        "Attempts that passed the policy's slow_call_ms."
    ),
    total!(
        "damper_foreign_attempts_total",
        "attempts",
        foreign,
        "Extra attempts that another layer was seen to make."
    ),
    Family::histogram(
        "damper_attempt_duration_seconds",
        "How long attempts took. The sum is an estimate from the buckets.",
        |seen, samples| samples.durations(&seen.totals.latency, None),
    ),
    Family::histogram(
        "damper_recovery_duration_seconds",
        "From an operation's first failure to its success. The sum is an estimate from the buckets.",
        |seen, samples| samples.durations(&seen.totals.recovery, None),
    ),
    Family::counter(
        "damper_attempt_failures_total",
        "attempts",
        &["dependency", "class"],
        "Failed attempts by class.",
        |seen, samples| {
            Class::ALL.iter().for_each(|class| samples.count(&[class.as_str()], seen.totals.failed(*class)));
        },
    )
    .with_sets(Class::ALL.len()),
    Family::counter(
        "damper_attempt_failures_by_source_total",
        "attempts",
        &["dependency", "source"],
        "Failed attempts by whose making they were.",
        |seen, samples| {
            samples.count(&["application"], seen.totals.source_application);
            samples.count(&["runtime"], seen.totals.source_runtime);
        },
    )
    .with_sets(2),
    Family::counter(
        "damper_attempt_failures_by_reason_total",
        "attempts",
        &["dependency", "reason"],
        "Failed attempts by the reason that a handler platform sees.",
        |seen, samples| {
            samples.count(&["handler_error"], seen.totals.reason_handler_error);
            samples.count(&["timeout"], seen.totals.reason_timeout);
            samples.count(&["no_resources"], seen.totals.reason_no_resources);
        },
    )
    .with_sets(3),
];

/// A ratio has no sample where there is nothing to divide.
fn ratios(seen: &Snapshot, samples: &mut Samples, ratio: fn(&WindowSnapshot) -> Option<f64>) {
    for window in &seen.windows {
        ratio(window).iter().for_each(|ratio| samples.add(&[window.name], *ratio));
    }
}
