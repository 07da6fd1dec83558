"""The first look: is anything wrong, where, and why were retries refused."""

from .model import *

DASHBOARD = Dashboard(
    "overview", "Overview",
    "What retries cost and what they win, over all dependencies: amplification beside what it should be, and why "
    "retries were refused.",
)

WORST = "max by (dependency) (damper_amplification{@,window=\"1m\"})"
LOGICAL = "sum(rate(damper_logical_operations_total{@}[$__rate_interval]))"
ASKS = "sum(rate(damper_decisions_total{@,kind=\"retry\"}[$__rate_interval]))"

DASHBOARD.add(
    stat("Worst amplification",
         "Attempts per operation over the last minute, of the dependency where it is highest. 1 means no retries.",
         "factor", f"max({WORST})", steps(GREEN, (1.3, YELLOW), (2, RED)), decimals=2, runbook="DamperAmplificationHigh"),
    stat("Observed / expected",
         "Measured amplification over what the failure share and the policy explain, where that is highest. Above 1.1 another layer retries, or "
         "failures are not independent.",
         "factor", "max(damper_amplification{@,window=\"1m\"} / damper_expected_amplification{@,window=\"1m\"})",
         steps(GREEN, (1.1, YELLOW), (1.3, RED)), decimals=2, runbook="DamperAmplificationUnexplained"),
    stat("Retries refused",
         "Share of the asks for a retry that were shed or expired.",
         "share", "sum(rate(damper_decisions_total{@,kind=\"retry\",decision!=\"granted\"}[$__rate_interval])) / (" + ASKS + " > 0)",
         steps(GREEN, (0.2, YELLOW), (0.5, RED)), decimals=1, noValue="no asks", runbook="DamperRetryBudgetExhausted"),
    stat("Operations recovered",
         "Of the operations whose first attempt failed, those that succeeded in the end.",
         "share", "sum(rate(damper_recovered_operations_total{@}[$__rate_interval])) / "
         "(sum(rate(damper_affected_operations_total{@}[$__rate_interval])) > 0)",
         steps(RED, (0.5, YELLOW), (0.8, GREEN)), decimals=1, noValue="none affected", runbook="DamperRecoveryLow"),
    stat("Breakers not closed", "Dependencies whose breaker is open or half-open.", "count",
         "sum(max by (dependency) (damper_breaker_state{@,state!=\"closed\"}))", steps(GREEN, (1, RED)),
         runbook="DamperBreakerOpen"),
    stat("Alerts that fire", "Alerts of these rules that fire now; the Watchdog is not counted.", "count",
         "count(ALERTS{alertstate=\"firing\",alertname=~\"Damper.+\"}) or vector(0)", steps(GREEN, (1, ORANGE)),
         graph="none"),
)
DASHBOARD.add(
    series("Amplification, observed beside expected",
           "Solid: attempts per operation as measured. Dashed: what the measured failure share and the attempts that the "
           "policy allows explain. A gap upwards is another layer that retries, or correlated failure; a gap downwards is "
           "the budget at work.",
           "factor",
           query(WORST, "{{dependency}} observed"),
           query("max by (dependency) (damper_expected_amplification{@,window=\"1m\"})", "{{dependency}} expected"),
           w=14, h=9, overrides=[override("/ expected$/", custom__lineStyle={"fill": "dash", "dash": [8, 6]},
                                          custom__fillOpacity=0, custom__lineWidth=1)],
           decimals=2, runbook="DamperAmplificationUnexplained"),
    bars("Why retries were refused",
         "Refusals within the chosen time, by reason. What each reason means, and what to do: the runbook of the budget.",
         "count", "sort_desc(sum by (reason) (increase(damper_decisions_total{@,kind=\"retry\",decision!=\"granted\"}"
         "[$__range])) > 0)", "{{reason}}", w=10, h=9, runbook="DamperRetryBudgetExhausted", decimals=0),
)
DASHBOARD.add(
    series("Operations and the retries on top", "Original load and what retries add to it, all dependencies together.",
           "req", query(LOGICAL, "operations"),
           query("clamp_min(sum(rate(damper_physical_attempts_total{@}[$__rate_interval])) - " + LOGICAL + ", 0)", "retries"),
           w=8, stack=True, overrides=[colour("operations", BLUE), colour("retries", ORANGE)]),
    series("Success before and after retries",
           "Before: operations whose first attempt succeeded. After: operations that succeeded. The gap is what retries "
           "win; a wide one hides a fault.",
           "share", query(f"1 - sum(rate(damper_affected_operations_total{{@}}[$__rate_interval])) / ({LOGICAL} > 0)", "before retries"),
           query(f"sum(rate(damper_successful_operations_total{{@}}[$__rate_interval])) / ({LOGICAL} > 0)", "after retries"),
           w=8, overrides=[colour("before.*", ORANGE), colour("after.*", GREEN)], decimals=1,
           runbook="DamperOperationsFail"),
    series("Decisions about retries", "Asks for a retry, by what was decided; a grant after a wait is its own line.",
           "req", query("sum by (decision) (rate(damper_decisions_total{@,kind=\"retry\",reason!=\"after_delay\"}"
                        "[$__rate_interval]))", "{{decision}}"),
           query("sum(rate(damper_decisions_total{@,kind=\"retry\",reason=\"after_delay\"}[$__rate_interval]))", "delayed"),
           w=8, stack=True, overrides=[colour("granted", GREEN), colour("delayed", YELLOW), colour("shed", RED),
                                       colour("expired", PURPLE)]),
)
RED_ABOVE_ZERO = steps(GREEN, (1, RED))
DASHBOARD.add(table(
    "Dependencies", "One line for each dependency, over the last minute. Its name leads to its own dashboard.",
    [
        ("Operations/s", "ops", "sum by (dependency) (rate(damper_logical_operations_total{@}[$__rate_interval]))", None),
        ("Attempts/s", "req", "sum by (dependency) (rate(damper_physical_attempts_total{@}[$__rate_interval]))", None),
        ("Amplification", "factor", WORST, steps(GREEN, (1.3, YELLOW), (2, RED))),
        ("Expected", "factor", "max by (dependency) (damper_expected_amplification{@,window=\"1m\"})", None),
        ("Attempts that fail", "share",
         "sum by (dependency) (rate(damper_attempt_failures_total{@}[$__rate_interval])) / "
         "(sum by (dependency) (rate(damper_physical_attempts_total{@}[$__rate_interval])) > 0)",
         steps(GREEN, (0.1, YELLOW), (0.5, RED))),
        ("Refused/s", "req",
         "sum by (dependency) (rate(damper_decisions_total{@,kind=\"retry\",decision!=\"granted\"}[$__rate_interval]))", None),
        ("Throttle", "share", "min by (dependency) (damper_retry_throttle{@})", steps(RED, (0.5, YELLOW), (1, GREEN))),
        ("Breaker open", "bool", "max by (dependency) (damper_breaker_state{@,state!=\"closed\"})", RED_ABOVE_ZERO),
        ("Other layers retry", "bool", "max by (dependency) (damper_other_layers_retry{@,window=\"1m\"})",
         steps(GREEN, (1, ORANGE))),
        ("Shadow", "bool", "max by (dependency) (damper_dependency_shadow{@})", steps(GREY, (1, PURPLE))),
    ],
    extra=[override("Dependency", links=[{
        "title": "Open ${__value.raw}", "url": "/d/damper-dependency?var-dependency=${__value.raw:percentencode}&${__url_time_range}",
    }])],
))
DASHBOARD.add(
    series("Failures by class", "Failed attempts by what they mean for a retry.", "req",
           query("sum by (class) (rate(damper_attempt_failures_total{@}[$__rate_interval]))", "{{class}}"), w=8, stack=True),
    series("Decisions in time",
           "How fast asks are answered; a wait in the delay queue comes after. Clients wait 20 ms before they go on alone.",
           "s", *[query(f"histogram_quantile({q}, sum by (le) (rate(damper_decision_duration_seconds_bucket"
                        f"{{@,op=\"/v1/tokens\"}}[$__rate_interval])))", name)
                  for q, name in [(0.5, "median"), (0.99, "99 %")]],
           w=8, thresholds=steps(GREEN, (0.02, RED)), runbook="DamperDecisionsSlowFastBurn"),
    series("Clients without a server",
           "Retries that clients granted themselves because no server answered in time.", "req",
           query("sum by (dependency) (rate(damper_emergency_retries_total{@}[$__rate_interval]))", "{{dependency}}"), w=8,
           runbook="DamperClientsFailOpen"),
)
