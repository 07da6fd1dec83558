//! What the families are called and mean that are not about one dependency each.

use prometheus::proto::MetricType;

use super::family::About;

const fn counter(
    name: &'static str,
    unit: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> About {
    About::new(MetricType::COUNTER, name, unit, labels, help)
}

const fn gauge(
    name: &'static str,
    unit: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> About {
    About::new(MetricType::GAUGE, name, unit, labels, help)
}

const TENANT: &[&str] = &["dependency", "tenant"];

pub(super) const TENANT_DECISIONS: About = counter(
    "damper_tenant_decisions_total",
    "asks",
    &["dependency", "tenant", "decision"],
    "Decisions about the tenant's asks.",
);
pub(super) const TENANT_TOTALS: [About; 4] = [
    counter(
        "damper_tenant_logical_operations_total",
        "operations",
        TENANT,
        "Operations that the tenant started.",
    ),
    counter("damper_tenant_physical_attempts_total", "attempts", TENANT, "Attempts that the tenant started."),
    counter(
        "damper_tenant_affected_operations_total",
        "operations",
        TENANT,
        "The tenant's operations whose first attempt failed.",
    ),
    counter(
        "damper_tenant_recovered_operations_total",
        "operations",
        TENANT,
        "The tenant's operations that succeeded after at least one failure.",
    ),
];
pub(super) const TENANT_FAILURES: About = counter(
    "damper_tenant_attempt_failures_total",
    "attempts",
    &["dependency", "tenant", "class"],
    "The tenant's failed attempts by class.",
);
pub(super) const TENANT_WAITING: About =
    gauge("damper_tenant_queue_waiting", "asks", TENANT, "The tenant's asks that wait in the delay queue.");

/// Every family with a row for each tenant.
pub(super) const TENANTS: [About; 7] = {
    let [logical, physical, affected, recovered] = TENANT_TOTALS;
    [TENANT_DECISIONS, logical, physical, affected, recovered, TENANT_FAILURES, TENANT_WAITING]
};

pub(super) const OVERFLOWS: About = counter(
    "damper_label_overflow_total",
    "names",
    &["label"],
    "Dependencies and tenants that found no row of their own in some family and are counted under `_other` there.",
);

pub(super) const DURATIONS: About = About::new(
    MetricType::HISTOGRAM,
    "damper_decision_duration_seconds",
    "seconds",
    &["op"],
    "Time from a request's head to its answer's head, by route; a wait in the delay queue comes after.",
);
pub(super) const REQUESTS: About = counter(
    "damper_http_requests_total",
    "requests",
    &["route", "code"],
    "Requests by route and status code.",
);
pub(super) const REFUSALS: About = counter(
    "damper_dependencies_refused_total",
    "reports",
    &["reason"],
    "Reports on dependencies that the server does not keep.",
);
pub(super) const RELOADS: About = counter(
    "damper_config_reloads_total",
    "reloads",
    &["outcome"],
    "Reloads of the configuration, by what became of them.",
);
pub(super) const CALLER_REFUSALS: About = counter(
    "damper_caller_refusals_total",
    "requests",
    &[],
    "Requests that were refused because their peer calls too often.",
);
pub(super) const CONFIG_VERSION: About = gauge(
    "damper_config_version",
    "version",
    &[],
    "The version of the configuration in force; rises with each change.",
);
pub(super) const CONFIG_LOADED: About = gauge(
    "damper_config_loaded_timestamp_seconds",
    "seconds",
    &[],
    "When the configuration was last read without a mistake, in seconds since 1970.",
);
pub(super) const STREAMS: About =
    gauge("damper_watch_streams", "streams", &[], "Watch streams that are open.");
pub(super) const MODE: About = gauge(
    "damper_server_mode",
    "0 or 1",
    &["mode"],
    "1 for what the server is: normal; learning, for the first seconds, from clients who holds which first \
     attempts; degraded, which a server that keeps its budget in memory never is.",
);
pub(super) const SPANS: About = counter(
    "damper_trace_spans_total",
    "spans",
    &["outcome"],
    "Spans that ended and are sampled: exported, failed with their export, or dropped because too many waited.",
);
pub(super) const BUILD: About =
    gauge("damper_build_info", "always 1", &["version"], "The version that runs.");
pub(super) const START: About =
    gauge("process_start_time_seconds", "seconds", &[], "When the process started, in seconds since 1970.");
pub(super) const CPU: About = counter(
    "process_cpu_seconds_total",
    "seconds",
    &[],
    "Processor time of the process, of user and system.",
);
pub(super) const RESIDENT: About =
    gauge("process_resident_memory_bytes", "bytes", &[], "Memory of the process that is resident.");
pub(super) const VIRTUAL: About =
    gauge("process_virtual_memory_bytes", "bytes", &[], "Address space of the process.");
pub(super) const OPEN_FILES: About =
    gauge("process_open_fds", "files", &[], "File descriptors that the process has open.");
pub(super) const MOST_FILES: About =
    gauge("process_max_fds", "files", &[], "Most file descriptors that the process may have open.");
pub(super) const THREADS: About = gauge("process_threads", "threads", &[], "Threads of the process.");

/// Every family about the server itself.
#[cfg(test)]
pub(super) const SERVER: &[About] = &[
    REQUESTS,
    DURATIONS,
    CALLER_REFUSALS,
    REFUSALS,
    STREAMS,
    MODE,
    CONFIG_VERSION,
    CONFIG_LOADED,
    RELOADS,
    SPANS,
    OVERFLOWS,
    BUILD,
    START,
    CPU,
    RESIDENT,
    VIRTUAL,
    OPEN_FILES,
    MOST_FILES,
    THREADS,
];
