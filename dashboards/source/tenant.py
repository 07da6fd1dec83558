"""Who spends: the opt-in family of metrics by tenant."""

from .model import *

DASHBOARD = Dashboard(
    "tenant", "Tenant",
    "Who spends and who is refused. Needs `[telemetry] tenants = true` in the server; tenants beyond the bound are `_other`.",
    variables=[
        label_variable("dependency", 'damper_tenant_logical_operations_total{job=~"$job",instance=~"$instance"}', "dependency",
                       "The downstream that is protected."),
        label_variable("tenant", 'damper_tenant_logical_operations_total{job=~"$job",instance=~"$instance",'
                       'dependency=~"$dependency"}', "tenant", "Who spends."),
    ],
    selectors='dependency=~"$dependency",tenant=~"$tenant"',
)


def rate(metric, by="tenant", more=""):
    return f"sum by ({by}) (rate(damper_tenant_{metric}{{@{more}}}[$__rate_interval]))"


LOGICAL, PHYSICAL = rate("logical_operations_total"), rate("physical_attempts_total")
ASKS, REFUSED = rate("decisions_total"), rate("decisions_total", more=',decision!="granted"')

DASHBOARD.add(
    series("Operations", "Operations that tenants started: what users intended.", "ops", query(LOGICAL, "{{tenant}}"), w=8,
           stack=True),
    series("Amplification", "Attempts per operation, by tenant.", "factor", query(f"{PHYSICAL} / ({LOGICAL} > 0)", "{{tenant}}"),
           w=8, decimals=2, runbook="DamperAmplificationHigh"),
    series("Retries executed", "Attempts that were not the first, by tenant.", "req",
           query(f"clamp_min({PHYSICAL} - {LOGICAL}, 0)", "{{tenant}}"), w=8, stack=True),
    series("Asks, by decision", "All asks of the chosen tenants.", "req", query(rate("decisions_total", "decision"), "{{decision}}"),
           w=8, stack=True, overrides=[colour("granted", GREEN), colour("shed", RED), colour("expired", PURPLE)]),
    series("Refused, by tenant", "Share of a tenant's asks that were shed or expired. One tenant alone: it outspends its share.",
           "share", query(f"{REFUSED} / ({ASKS} > 0)", "{{tenant}}"), w=8, decimals=1, runbook="DamperRetryBudgetExhausted"),
    series("Waiting in the queue", "Asks of a tenant that wait.", "count",
           query("sum by (tenant) (damper_tenant_queue_waiting{@})", "{{tenant}}"), w=8, stack=True),
    series("Operations recovered", "Of a tenant's operations whose first attempt failed, those that succeeded in the end.",
           "share", query(f"{rate('recovered_operations_total')} / ({rate('affected_operations_total')} > 0)", "{{tenant}}"),
           w=8, decimals=1, runbook="DamperRecoveryLow"),
    series("Attempts that fail, by class", "Failed attempts of the chosen tenants.", "req",
           query(rate("attempt_failures_total", "class"), "{{class}}"), w=8, stack=True),
    series("Attempts that fail, by tenant", "Share of a tenant's attempts that failed.", "share",
           query(f"{rate('attempt_failures_total')} / ({PHYSICAL} > 0)", "{{tenant}}"), w=8, decimals=1),
)
DASHBOARD.add(table(
    "Tenants", "One line for each tenant.",
    [
        ("Operations/s", "ops", LOGICAL, None),
        ("Attempts/s", "req", PHYSICAL, None),
        ("Amplification", "factor", f"{PHYSICAL} / ({LOGICAL} > 0)", steps(GREEN, (1.3, YELLOW), (2, RED))),
        ("Asks/s", "req", ASKS, None),
        ("Refused", "share", f"{REFUSED} / ({ASKS} > 0)", steps(GREEN, (0.2, YELLOW), (0.5, RED))),
        ("Recovered", "share", f"{rate('recovered_operations_total')} / ({rate('affected_operations_total')} > 0)",
         steps(RED, (0.5, YELLOW), (0.8, GREEN))),
        ("Waiting", "count", "sum by (tenant) (damper_tenant_queue_waiting{@})", None),
    ], key="tenant", w=18, h=8,
))
DASHBOARD.add(
    stat("Names beyond the bound", "Label values that were counted under `_other` instead, within the last hour: raise "
         "max_tenants, or find who makes names of ids.", "count",
         'sum(increase(damper_label_overflow_total{job=~"$job",instance=~"$instance"}[1h]))', steps(GREEN, (1, ORANGE)),
         w=6, h=8, decimals=0, runbook="DamperLabelOverflow"),
)
