"""Planning: how much a dependency bears with retries, how long that lasts, and what if."""

from .model import *

DASHBOARD = Dashboard(
    "capacity", "Capacity",
    "How much a dependency bears once retries are counted, how long that lasts at today's growth, and what would happen if. "
    "Needs the recording rules and, for days left, two weeks of data.",
    variables=[
        label_variable("dependency", 'damper_dependency_capacity_requests_per_second{job=~"$job",instance=~"$instance"}',
                       "dependency", "A downstream with a configured capacity."),
        text_variable("p", "What if: share that fails", "Share of attempts that fail, from 0 to below 1.", "0.12"),
        text_variable("k", "What if: attempts", "Attempts of one operation, the first included.", "4"),
        text_variable("growth", "What if: growth", "Operations then, as a multiple of now.", "1.5"),
    ],
    selectors='dependency=~"$dependency"', since="now-24h", refresh="1m",
)
R = "job_dependency:damper_"
EXPECTED = "((1 - $p ^ $k) / (1 - $p))"
DEMAND = f"{R}logical_operations:rate5m{{@job}}"
CAPACITY = f"{R}capacity:max{{@job}}"
WOULD_BE = f"{DEMAND} * $growth * {EXPECTED}"
LEFT = steps(RED, (14, YELLOW), (60, GREEN))
ROOM = steps(RED, (0, YELLOW), (0.2, GREEN))

DASHBOARD.add(
    series("Load under the capacity", "First attempts and retries on top of each other, and the capacity of all chosen "
           "dependencies together. The room between is headroom.", "req",
           query(f"sum({DEMAND})", "first"),
           query(f"clamp_min(sum({R}physical_attempts:rate5m{{@job}}) - sum({DEMAND}), 0)", "retries"),
           query(f"sum({CAPACITY})", "capacity"), stack=True, h=9,
           overrides=[colour("first", BLUE), colour("retries", ORANGE), line("capacity", RED)], runbook="DamperNoHeadroom"),
    series("How many operations are safe",
           "Operations per second that fit the capacity: with the failures of now; with damper's budget whatever fails; and "
           "without a budget if everything failed. The gap between the last two is what damper is worth. Choose one dependency.",
           "ops", query(f"sum({DEMAND})", "operations now"),
           query(f"sum({R}safe_operations:rate5m{{@job}} or {CAPACITY})", "safe with the failures of now"),
           query(f"sum({R}safe_operations_budgeted:rate5m{{@job}})", "safe with the budget, whatever fails"),
           query(f"sum({R}safe_operations_unbudgeted:rate5m{{@job}})", "safe without a budget"), h=9,
           overrides=[colour("operations now", BLUE), line("safe with the failures.*", GREEN), line("safe with the budget.*", YELLOW),
                      line("safe without.*", RED)]),
    series("Headroom", "Capacity less all attempts, by dependency. Below 0 it is asked for more than it sustains.", "req",
           query(f"{R}headroom:rate5m{{@job}}", "{{dependency}}"), w=8, thresholds=steps(RED, (0, "transparent")),
           runbook="DamperNoHeadroom"),
    series("Amplification, observed beside expected",
           "Observed above expected: correlated failures or clients that bypass damper. Below: the budget sheds. Plan with "
           "the larger.", "factor",
           query(f"{R}amplification:ratio_rate5m{{@job}}", "{{dependency}} observed"),
           query(f"{R}amplification_expected:ratio_rate5m{{@job}}", "{{dependency}} expected"), w=8, decimals=2,
           overrides=[override("/ expected$/", custom__lineStyle={"fill": "dash", "dash": [8, 6]}, custom__fillOpacity=0)],
           runbook="DamperAmplificationUnexplained"),
    series("Attempts that fail", "Share of attempts that fail now, and its 99th percentile over a week: plan with the latter, "
           "not with the mean.", "share",
           query(f"{R}attempt_failures_per_attempts:ratio_rate5m{{@job}}", "{{dependency}} now"),
           query(f"{R}attempt_failures_per_attempts:ratio_rate5m_p99_1w{{@job}}", "{{dependency}} 99 % of a week"), w=8,
           decimals=1),
)
DASHBOARD.add(table(
    "Plan", "One line for each dependency. Days left: until the 99th percentile of a week's operations, growing as in the last "
    "two weeks, reaches the rate that is safe at the 99th percentile of its failures; 3650 means ten years or more, and nothing "
    "less than a week of data.",
    [
        ("Fail (p99)", "share", f"{R}attempt_failures_per_attempts:ratio_rate5m_p99_1w{{@job}}", None),
        ("Attempts allowed", "count", "max by (job, dependency) (damper_dependency_max_attempts{@})", None),
        ("Expected amplification", "factor", f"{R}amplification_expected:ratio_rate5m{{@job}}", None),
        ("Observed", "factor", f"{R}amplification:ratio_rate5m{{@job}}", None),
        ("Capacity", "req", CAPACITY, None),
        ("Operations/s", "ops", DEMAND, None),
        ("Safe operations/s", "ops", f"{R}safe_operations_p99:rate5m{{@job}}", None),
        ("Headroom", "share", f"{R}headroom:rate5m{{@job}} / {CAPACITY}", ROOM),
        ("Days left", "days", f"{R}capacity_left:days{{@job}}", LEFT),
    ], h=6, runbook="DamperCapacityRunsOut",
))
DASHBOARD.row("What if $p of attempts failed, with $k attempts each and $growth times the operations?")
DASHBOARD.add(
    stat("Attempts per operation, if", "1 + p + p² + ... for the attempts allowed.", "factor", EXPECTED, decimals=4, w=6,
         graph="none"),
    stat("Attempts per second, if", "Today's operations of all chosen dependencies, times the growth, times that.", "req",
         f"sum({WOULD_BE})", decimals=1, w=6),
    stat("Room, if", "Capacity less these attempts. Below 0 it does not fit.", "req", f"sum({CAPACITY}) - sum({WOULD_BE})",
         steps(RED, (0, GREEN)), decimals=1, w=6),
    stat("Safe operations per second, if", "The largest rate of operations that fits.", "ops",
         f"sum({CAPACITY}) / {EXPECTED}", decimals=1, w=6),
    bars("Use of the capacity, if", "Attempts per second over the capacity, by dependency. Above 100 % it does not fit.", "share",
         f"sort_desc({WOULD_BE} / {CAPACITY})", "{{dependency}}", w=24, h=4, colouring="thresholds",
         thresholds=steps(GREEN, (0.8, YELLOW), (1, RED)), decimals=1),
)
