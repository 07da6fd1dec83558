"""damper itself: does it answer, in time, with what configuration, on what resources."""

from .model import *

DASHBOARD = Dashboard(
    "server", "Server", "damper itself: is it there, does it decide in time, what does it run, what does it cost.",
)


def rate(metric, by="", more=""):
    inner = f"rate({metric}{{@{more}}}[$__rate_interval])"
    return f"sum by ({by}) ({inner})" if by else f"sum({inner})"


ASK = ',route=~"/v1/tokens|/v1/tokens/batch"'
ASKED = ',op=~"/v1/tokens|/v1/tokens/batch"'

DASHBOARD.add(
    stat("Servers up", "Servers that Prometheus can reach.", "count", 'sum(up{@})', steps(RED, (1, GREEN)), runbook="DamperDown"),
    stat("Version", "The version that runs.", "text", "count by (version) (damper_build_info{@})", text="name",
         legend="{{version}}", graph="none"),
    stat("Up for", "Since the youngest server started.", "s", "time() - max(process_start_time_seconds{@})", graph="none"),
    stat("Mode", "normal; learning for a few seconds after a start; degraded when the shared store is away.", "text",
         "max by (mode) (damper_server_mode{@} == 1)", text="name", legend="{{mode}}", graph="none",
         overrides=[colour("normal", GREEN), colour("learning", YELLOW), colour("degraded", RED)], runbook="DamperDegraded"),
    stat("Asks answered", "Share of asks that were answered and not failed, over the last hour; 99.9 % is promised.", "share",
         "1 - max(job:damper_ask_errors_per_asks:ratio_rate1h{@job})", steps(RED, (0.999, GREEN)), decimals=3, noValue="no asks",
         runbook="DamperDecisionErrorsFastBurn"),
    stat("Asks in time", "Share of asks answered within 12.8 ms, over the last hour; 99 % is promised.", "share",
         "1 - max(job:damper_slow_asks_per_asks:ratio_rate1h{@job})", steps(RED, (0.99, GREEN)), decimals=2, noValue="no asks",
         runbook="DamperDecisionsSlowFastBurn"),
)
DASHBOARD.add(
    series("Requests", "Requests by route.", "req", query(rate("damper_http_requests_total", "route") + " > 0", "{{route}}"), w=8,
           stack=True),
    series("Answers that are not 200", "By route and status. 4xx is the caller's doing, 5xx is ours.", "req",
           query(rate("damper_http_requests_total", "route, code", ',code!="200"'), "{{route}} {{code}}"), w=8,
           runbook="DamperDecisionErrorsFastBurn"),
    series("Time to decide", "From a request's head to its answer's head; a wait in the delay queue comes after.", "s",
           *[query(f"histogram_quantile({q}, {rate('damper_decision_duration_seconds_bucket', 'le', ASKED)})", name)
             for q, name in [(0.5, "median"), (0.9, "90 %"), (0.99, "99 %")]],
           w=8, thresholds=steps(GREEN, (0.0128, RED)), runbook="DamperDecisionsSlowFastBurn"),
    series("Burn rate of the error budgets", "1 spends a 30-day budget in 30 days. Pages at 14.4 over an hour.", "factor",
           query("max(job:damper_ask_errors_per_asks:ratio_rate1h{@job}) / 0.001", "errors, 1 h"),
           query("max(job:damper_slow_asks_per_asks:ratio_rate1h{@job}) / 0.01", "slow, 1 h"),
           query("max(job:damper_ask_errors_per_asks:ratio_rate6h{@job}) / 0.001", "errors, 6 h"),
           query("max(job:damper_slow_asks_per_asks:ratio_rate6h{@job}) / 0.01", "slow, 6 h"), w=8,
           thresholds=steps(GREEN, (14.4, RED)), runbook="DamperDecisionErrorsFastBurn"),
    series("Clients and streams", "Clients of the busiest dependency that reported within a minute, and open watch streams.",
           "count", query("max(damper_clients{@})", "clients"), query("sum(damper_watch_streams{@})", "watch streams"), w=8),
    series("Age of the reports", "How long ago the client that is most behind reported. The rule of thumb is one second.", "s",
           query("max by (dependency) (damper_sync_lag_seconds{@})", "{{dependency}}"), w=8, runbook="DamperClientsSilent"),
)
DASHBOARD.row("Configuration and bounds")
DASHBOARD.add(
    stat("Configuration", "Version of the configuration in force; two numbers mean that servers differ.", "count",
         "max by (instance) (damper_config_version{@})", graph="none", h=7, legend="{{instance}}"),
    stat("Loaded", "How long ago the configuration in force was loaded.", "s",
         "time() - max(damper_config_loaded_timestamp_seconds{@})", h=7, graph="none"),
    series("Reloads", "Reloads within the step of the graph, by what became of them.", "count",
           query("sum by (outcome) (increase(damper_config_reloads_total{@}[$__rate_interval]))", "{{outcome}}"), bars=True, w=8,
           h=7, runbook="DamperConfigInvalid", overrides=[colour("invalid", RED)]),
    series("Refused for their bounds",
           "Callers that call too often, dependencies that are not kept, label values beyond their bound.", "req",
           query(rate("damper_caller_refusals_total"), "callers too fast"),
           query(rate("damper_dependencies_refused_total", "reason"), "dependencies: {{reason}}"),
           query(rate("damper_label_overflow_total", "label"), "labels: {{label}}"), w=8, h=7, runbook="DamperDependenciesRefused"),
)
DASHBOARD.row("Process")
DASHBOARD.add(
    series("CPU", "Cores in use.", "factor", query("rate(process_cpu_seconds_total{@}[$__rate_interval])", "{{instance}}"), w=6,
           decimals=2),
    series("Memory", "Resident memory.", "bytes", query("process_resident_memory_bytes{@}", "{{instance}}"), w=6),
    series("Open files", "Open file descriptors beside the most that may be open.", "share",
           query("process_open_fds{@} / process_max_fds{@}", "{{instance}}"), w=6, decimals=1, runbook="DamperFilesRunOut"),
    series("Threads", "Threads of the process.", "count", query("process_threads{@}", "{{instance}}"), w=6),
)
