"""Everything about one dependency: what it bears, who refuses, what binds the pool."""

from .model import *

DASHBOARD = Dashboard(
    "dependency", "Dependency",
    "One dependency: load against capacity, amplification, why retries are refused, the pool, the queue, the breaker.",
    variables=[label_variable("dependency", 'damper_dependency_max_attempts{job=~"$job",instance=~"$instance"}', "dependency",
                              "The downstream that is protected.")],
    selectors='dependency=~"$dependency"',
)
WINDOWS = {"10s": "10 s", "1m": "1 min", "5m": "5 min"}


def rate(metric, by="", more=""):
    inner = f"rate({metric}{{@{more}}}[$__rate_interval])"
    return f"sum by ({by}) ({inner})" if by else f"sum({inner})"


def quantiles(metric, *levels):
    return [query(f"histogram_quantile({q}, sum by (le) (rate({metric}_bucket{{@}}[$__rate_interval])))", f"{q * 100:g} %")
            for q in levels]


LOGICAL, PHYSICAL = rate("damper_logical_operations_total"), rate("damper_physical_attempts_total")
REFUSED = "damper_decisions_total{@,kind=\"retry\",decision!=\"granted\"}"

DASHBOARD.add(
    stat("Amplification", "Attempts per operation over the last minute.", "factor",
         'max(damper_amplification{@,window="1m"})', steps(GREEN, (1.3, YELLOW), (2, RED)), decimals=3,
         runbook="DamperAmplificationHigh"),
    stat("Expected", "What the measured failure share and the attempts that the policy allows explain.", "factor",
         'max(damper_expected_amplification{@,window="1m"})', decimals=3),
    stat("Other layers retry", "Measured amplification is above what can be explained: somebody retries beside damper.",
         "bool", 'max(damper_other_layers_retry{@,window="1m"})', steps(GREEN, (1, ORANGE)), graph="none",
         runbook="DamperAmplificationUnexplained"),
    stat("Headroom", "Capacity less all attempts. Below 0 the dependency is asked for more than it sustains.", "req",
         f"sum(max by (dependency) (damper_dependency_capacity_requests_per_second{{@}})) - {PHYSICAL}",
         steps(RED, (0, YELLOW), (5, GREEN)), decimals=1, noValue="no capacity set", runbook="DamperNoHeadroom"),
    stat("Breaker", "The state of the breaker.", "text", 'max by (state) (damper_breaker_state{@} == 1)',
         steps(GREEN), text="name", legend="{{state}}", graph="none", runbook="DamperBreakerOpen",
         overrides=[colour("open", RED), colour("half_open", YELLOW)]),
    stat("Operations recovered", "Of the operations whose first attempt failed, those that succeeded in the end.", "share",
         rate("damper_recovered_operations_total") + " / (" + rate("damper_affected_operations_total") + " > 0)",
         steps(RED, (0.5, YELLOW), (0.8, GREEN)), decimals=1, noValue="none affected", runbook="DamperRecoveryLow"),
)
DASHBOARD.add(
    series("Amplification, observed beside expected",
           "Solid: measured, over three windows. Dashed: what failure share and policy explain over the last minute.",
           "factor",
           *[query(f'max(damper_amplification{{@,window="{window}"}})', f"observed, {text}") for window, text in WINDOWS.items()],
           query('max(damper_expected_amplification{@,window="1m"})', "expected, 1 min"),
           overrides=[line("/expected.*/", GREY)], decimals=2, runbook="DamperAmplificationUnexplained"),
    series("Attempts under the capacity",
           "First attempts and retries on top of each other, the configured capacity, and what clients would start.",
           "req", query(LOGICAL, "first"), query(f"clamp_min({PHYSICAL} - {LOGICAL}, 0)", "retries"),
           query("sum(max by (dependency) (damper_dependency_capacity_requests_per_second{@}))", "capacity"),
           stack=True, overrides=[colour("first", BLUE), colour("retries", ORANGE), line("capacity", RED)],
           runbook="DamperNoHeadroom"),
)
DASHBOARD.row("Why was it refused?")
DASHBOARD.add(
    bars("Refusals by reason",
         "Within the chosen time. not_retryable, attempts_exhausted, ambiguous_not_repeatable: the operation itself. "
         "deadline_too_short, retry_after_beyond_deadline, expired: the deadline. breaker_*: the breaker. The rest: the budget.",
         "count", f"sort_desc(sum by (reason) (increase({REFUSED}[$__range])) > 0)", "{{reason}}", w=8,
         runbook="DamperRetryBudgetExhausted", decimals=0),
    series("Refusals over time", "Retries that the server refused, by reason.", "req",
           query(f"sum by (reason) (rate({REFUSED}[$__rate_interval])) > 0", "{{reason}}"), w=8, stack=True,
           runbook="DamperRetryBudgetExhausted"),
    series("What clients decided themselves",
           "Retries shed under a suppression, retries given up because the deadline had passed, retries granted without a server.",
           "req", query(rate("damper_client_shed_retries_total"), "shed by clients"),
           query(rate("damper_client_expired_retries_total"), "expired at clients"),
           query(rate("damper_emergency_retries_total"), "granted without a server"), w=8, runbook="DamperClientsFailOpen"),
)
DASHBOARD.row("The retry pool")
DASHBOARD.add(
    series("Retries wanted, granted, executed", "Asks, grants and the retries that clients reported. Executed above granted: "
           "somebody retries without a grant.", "req",
           query(rate("damper_decisions_total", more=',kind="retry"'), "asked"),
           query(rate("damper_decisions_total", more=',kind="retry",decision="granted"'), "granted"),
           query(f"clamp_min({PHYSICAL} - {LOGICAL}, 0)", "executed"),
           query("sum(damper_retry_rate_per_second{@})", "rate of the pool"),
           w=8, overrides=[line("rate of.*", GREY)], runbook="DamperRetriesWithoutGrant"),
    series("What binds the rate", "The term of the rate formula that is in force: 1 is in force.", "bool",
           query("max by (term) (damper_retry_rate_bound_by{@})", "{{term}}"), w=8, interpolation="stepAfter", max=1),
    series("Throttle and hold",
           "Throttle: how far retries are turned down, 1 is not at all. Hold: seconds until anybody may retry, learnt from a "
           "Retry-After.",
           "share", query("min(damper_retry_throttle{@})", "throttle"), query("max(damper_hold_seconds{@})", "hold (s)"), w=8,
           overrides=[override("hold.*", unit="s", custom__axisPlacement="right")], runbook="DamperThrottled"),
)
DASHBOARD.add(
    series("Tokens", "Tokens that could be granted now, the most that can be saved up, those that are out, and those whose "
           "attempt nobody reported.", "count",
           query("sum(damper_retry_tokens{@})", "free"), query("sum(damper_retry_tokens_limit{@})", "burst"),
           query("sum(damper_tokens_outstanding{@})", "out"), query("sum(damper_tokens_unreported{@})", "unreported"), w=8,
           overrides=[line("burst", GREY)]),
    stat("Budget not enforced by", "Tokens of grants less tokens taken from the pool: anything but 0 is a bug in damper.",
         "count", "max(abs(damper_tokens_granted_total{@} - damper_tokens_issued_total{@}))", steps(GREEN, (0.001, RED)),
         decimals=0, h=8, runbook="DamperBudgetNotEnforced"),
    stat("Tokens returned", "Tokens given back unused, each second.", "ops", rate("damper_tokens_returned_total"), h=8, decimals=2),
    stat("Shadow mode", "Everything is granted, and only counted what would have been refused.", "bool",
         "max(damper_dependency_shadow{@})", steps(GREEN, (1, PURPLE)), graph="none", h=8, runbook="DamperShadowLeftOn"),
    stat("Shadow grants", "Retries granted because of shadow mode that would have been refused.", "ops",
         rate("damper_decisions_total", more=',reason="shadow"'), h=8, decimals=2),
)
DASHBOARD.row("Queue, first attempts, hedges")
DASHBOARD.add(
    series("Delay queue", "Asks that wait, and the tokens' worth that may wait.", "count",
           query("sum(damper_queue_waiting{@})", "waiting"), query("sum(damper_queue_limit_tokens{@})", "limit (tokens)"),
           w=6, overrides=[line("limit.*", GREY)]),
    series("Waits in the queue", "How long asks waited before they were decided.", "s",
           *quantiles("damper_queue_wait_seconds", 0.5, 0.9, 0.99), w=6),
    series("First attempts: wanted and leased",
           "What clients want to start and what they are allowed. Wanted above leased: first attempts wait or are refused.",
           "req", query("sum(damper_first_wanted_per_second{@})", "wanted"),
           query("sum(damper_first_allocated_per_second{@})", "leased"),
           query("sum(damper_first_leases{@})", "leases"), w=6,
           overrides=[override("leases", unit="none", custom__axisPlacement="right")], runbook="DamperFirstAttemptsShort"),
    series("Hedges", "Second copies of slow attempts: decisions and the tokens of their pool.", "req",
           query(rate("damper_decisions_total", "decision", ',kind="hedge"'), "{{decision}}"),
           query("sum(damper_hedge_tokens{@})", "tokens"), w=6,
           overrides=[override("tokens", unit="none", custom__axisPlacement="right")]),
)
DASHBOARD.row("Breaker")
DASHBOARD.add(
    series("Breaker state", "1 for the state that the breaker is in.", "bool",
           query("max by (state) (damper_breaker_state{@})", "{{state}}"), w=8, max=1, interpolation="stepAfter",
           overrides=[colour("closed", GREEN), colour("half_open", YELLOW), colour("open", RED)], runbook="DamperBreakerOpen"),
    series("Transitions", "Changes of the breaker's state within the step of the graph.", "count",
           query("sum by (from, to) (increase(damper_breaker_transitions_total{@}[$__rate_interval]))", "{{from}} to {{to}}"),
           w=8, bars=True, runbook="DamperBreakerFlaps"),
    series("Probes and stale results", "Probes of a half-open breaker that are out; results under an older version, ignored.",
           "count", query("sum(damper_breaker_probes_out{@})", "probes out"),
           query(rate("damper_breaker_stale_results_total"), "stale results/s"), w=8),
)
DASHBOARD.row("Attempts and operations")
DASHBOARD.add(
    series("Attempts that fail, by class", "Transient and rate_limited may be retried, the others must not.", "req",
           query(rate("damper_attempt_failures_total", "class"), "{{class}}"), w=8, stack=True),
    series("Failures by source and reason", "Whose making a failure was, and its reason as a handler platform sees it.", "req",
           query(rate("damper_attempt_failures_by_source_total", "source"), "source {{source}}"),
           query(rate("damper_attempt_failures_by_reason_total", "reason"), "reason {{reason}}"), w=8),
    series("Success before and after retries", "Before: first attempts. After: operations. The gap is what retries win.",
           "share", query(f"1 - {rate('damper_affected_operations_total')} / ({LOGICAL} > 0)", "before retries"),
           query(f"{rate('damper_successful_operations_total')} / ({LOGICAL} > 0)", "after retries"), w=8, decimals=1,
           overrides=[colour("before.*", ORANGE), colour("after.*", GREEN)], runbook="DamperOperationsFail"),
    series("Attempt duration", "How long attempts took.", "s", *quantiles("damper_attempt_duration_seconds", 0.5, 0.9, 0.99), w=8),
    series("Time to recover", "From an operation's first failure to its success.", "s",
           *quantiles("damper_recovery_duration_seconds", 0.5, 0.9, 0.99), w=8),
    series("How operations end", "Operations that did not simply succeed, slow attempts, and attempts of other layers.", "req",
           *[query(rate(f"damper_{metric}_total"), name) for metric, name in [
               ("recovered_operations", "recovered"), ("exhausted_operations", "attempts exhausted"),
               ("abandoned_operations", "abandoned"), ("ambiguous_operations", "ambiguous"),
               ("slow_attempts", "slow attempts"), ("foreign_attempts", "foreign attempts")]], w=8),
)
DASHBOARD.row("Who calls")
DASHBOARD.add(
    stat("Clients", "Clients that reported within the last minute.", "count", "sum(damper_clients{@})", w=8),
    stat("Tenants", "Tenants that spend.", "count", "sum(damper_tenants{@})", w=8),
    stat("Attempts allowed", "Attempts of one operation, the first included.", "count",
         "max(damper_dependency_max_attempts{@})", w=8, graph="none"),
)
