"""What needs the running servers: data in every panel, equal totals, odd names, the way of an alert, mutations."""

import copy
import json
import math
import re
import shutil
import subprocess
import time

import files
from stack import DASHBOARDS, ROOT, call, until
from traffic import ODD_NAMES

# Refusals of first attempts: clients decide them by their lease, and the server never hears of an ask.
FIRST_ATTEMPTS = {"first_attempts_exhausted"}
DECIDED_BY_SERVER = 'damper_decisions_total{{dependency="{}",kind="retry"}}'


def tool(report, place, remedy, *command, text=None):
    done = subprocess.run([str(part) for part in command], input=text, capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        report.fault(place, (done.stdout + done.stderr).strip()[-1500:], remedy)


def configurations(report):
    folder = DASHBOARDS / "prometheus"
    rules = sorted((folder / "rules").glob("*.yml"))
    tool(report, "prometheus/rules", "correct the rule", "promtool", "check", "rules", "--lint=all", "--lint-fatal", *rules)
    tool(report, "prometheus/prometheus.yml", "correct it", "promtool", "check", "config", folder / "prometheus.yml")
    tool(report, "alertmanager/alertmanager.yml", "correct it", "amtool", "check-config", DASHBOARDS / "alertmanager/alertmanager.yml")
    return f"{len(rules)} files of rules, Prometheus and Alertmanager"


def rule_tests(report, running):
    failed = [(path, process) for path, process in running if process.wait(120) != 0]
    for path, process in failed:
        report.fault(f"prometheus/tests/{path.name}", process.stdout.read().strip()[-1500:], "correct the rule, or the case")
    return f"{len(running)} files"


def start_rule_tests():
    paths = sorted((DASHBOARDS / "prometheus" / "tests").glob("*_test.yml"))
    return [(path, subprocess.Popen(["promtool", "test", "rules", path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
            for path in paths]


def exposition(report, stack):
    _, text = call(stack.damper + "/metrics")
    tool(report, "/metrics", "correct the metric in server/app/src/metrics", "promtool", "check", "metrics", text=text)
    return f"{len(text.splitlines())} lines"


def exposed(stack):
    _, text = call(stack.damper + "/metrics")
    return set(re.findall(r"^# TYPE (\S+)", text, re.M)) | {"up", "ALERTS"}


def has_number(result, kind):
    if kind in ("scalar", "string"):
        return not math.isnan(float(result[1]))
    samples = [value for series in result for value in series.get("values", [series.get("value")])]
    return any(not math.isnan(float(value)) for _, value in samples)


def look(stack, target):
    """Whether a target of a panel has a number anywhere in the time that the test has run."""
    seconds = max(30, int(time.time() - stack.began))
    expr = files.plain(target["expr"], span=f"{seconds}s")
    if target.get("instant"):
        data = stack.ask("query", query=expr)
    else:
        data = stack.ask("query_range", query=expr, start=stack.began, end=time.time(), step=1)
    return has_number(data["result"], data["resultType"])


def panels(report, stack, boards=None):
    boards, count = boards or files.dashboards(), 0
    for name, board in boards.items():
        for panel in files.panels(board):
            for target in panel["targets"]:
                place = f"grafana/{name}.json, panel \"{panel['title']}\", {target['refId']}"
                count += 1
                try:
                    if not look(stack, target):
                        report.fault(place, f"no data for {files.plain(target['expr'])}", "correct the query, or drive the server so that it has data (checks/traffic.py)")
                except ValueError as error:
                    report.fault(place, f"Prometheus refuses it: {error}", files.REMEDY)
        for mark in board["annotations"]["list"]:
            if not look(stack, {"expr": mark["expr"]}):
                report.fault(f"grafana/{name}.json, annotation {mark['name']}", "no data", files.REMEDY)
    return f"{count} queries have data"


# A panel that shows 0 throughout has data too: what must have happened while the test drove the server.
HAPPENED = {
    "a retry was shed": 'sum(damper_decisions_total{decision="shed"})',
    "a retry was delayed": 'sum(damper_decisions_total{reason="after_delay"})',
    "a retry expired": 'sum(damper_decisions_total{decision="expired"})',
    "a hedge was decided": 'sum(damper_decisions_total{kind="hedge"})',
    "shadow mode granted": 'sum(damper_decisions_total{reason="shadow"})',
    "a breaker opened": 'sum(damper_breaker_transitions_total{to="open"})',
    "a breaker refused": 'sum(damper_decisions_total{reason="breaker_open"})',
    "a hold was learnt": "max(max_over_time(damper_hold_seconds[10m]))",
    "retries were throttled": "1 - min(min_over_time(damper_retry_throttle[10m]))",
    "another layer was seen to retry": 'max(max_over_time(damper_other_layers_retry[10m]))',
    "asks waited": "sum(damper_queue_wait_seconds_count)",
    "first attempts were leased": "max(max_over_time(damper_first_leases[10m]))",
    "clients went on alone": "sum(damper_emergency_retries_total)",
    "a token came back": "sum(damper_tokens_returned_total)",
    "tenants were told apart": "count(count by (tenant) (damper_tenant_decisions_total)) > 3",
    "names overflowed": "sum(damper_label_overflow_total)",
    "dependencies were refused": "sum(damper_dependencies_refused_total)",
    "a reload changed something": 'sum(damper_config_reloads_total{outcome="changed"})',
    "a reload was refused": 'sum(damper_config_reloads_total{outcome="invalid"})',
    "operations ended in every way": "min(sum(damper_abandoned_operations_total) or sum(damper_ambiguous_operations_total)"
                                     " or sum(damper_exhausted_operations_total) or sum(damper_foreign_attempts_total))",
}


def happened(report, stack):
    for what, expr in HAPPENED.items():
        if not stack.value(expr) > 0:
            report.fault("traffic", f"not seen: {what} ({expr})", "drive the server so that it happens (checks/traffic.py)")
    return f"{len(HAPPENED)} kinds of event"


def variables(report, stack):
    count = 0
    for name, board in files.dashboards().items():
        for variable in board["templating"]["list"]:
            if variable["type"] != "query":
                continue
            metric, label = re.match(r"label_values\((.+), (\w+)\)$", variable["query"]["query"]).groups()
            values = stack.ask(f"label/{label}/values", **{"match[]": files.plain(metric), "start": stack.began})
            count += 1
            if not values:
                report.fault(f"grafana/{name}.json, variable {variable['name']}", "has no values", files.REMEDY)
    return f"{count} variables have values"


def totals(report, stack, traffic):
    """Prometheus and the storm counted the same, one by one."""
    dependency, ledger = traffic.ledger
    time.sleep(2)  # two scrapes
    mine, theirs = ledger["totals"], {}
    of = f'{{dependency="{dependency}"}}'
    pairs = {
        "logical_operations": mine["offered"], "physical_attempts": sum(mine["by_attempt"]), "recovered_operations": mine["recovered"],
        "affected_operations": mine["affected"], "successful_operations": mine["succeeded"],
    }
    for metric, counted in pairs.items():
        equal(report, f"damper_{metric}_total", stack.value(f"damper_{metric}_total{of}"), counted)
    for each in stack.ask("query", query=DECIDED_BY_SERVER.format(dependency))["result"]:
        theirs[each["metric"]["reason"]] = float(each["value"][1])
    if traffic.unanswered():
        report.skip("decisions of the storm", f"this machine is too busy, in three storms clients gave up waiting: {traffic.unanswered()}")
        return f"{mine['offered']} operations, {sum(mine['by_attempt'])} attempts; decisions skipped"
    # Reasons that clients give too cannot be told apart by name; together with what clients counted they are equal.
    both = {"deadline_too_short", "retry_after_beyond_deadline", "suppressed", "not_retryable", "attempts_exhausted"}
    reasons = {reason: count for reason, count in ledger["reasons"].items() if reason not in FIRST_ATTEMPTS}
    for reason in (set(theirs) | set(reasons)) - both:
        equal(report, f"damper_decisions_total, reason {reason}", theirs.get(reason, 0), reasons.get(reason, 0))
    local = stack.value(f"damper_client_shed_retries_total{of}") + stack.value(f"damper_client_expired_retries_total{of}")
    equal(report, "refusals of clients", sum(theirs.get(r, 0) for r in both) + local, sum(reasons.get(r, 0) for r in both))
    if not {"after_delay", "expired", "no_capacity_before_deadline"} <= {r for r, n in theirs.items() if n}:
        report.fault("the storm", f"showed too little: {theirs}", "make its pool smaller (checks/traffic.py)")
    return f"{mine['offered']} operations, {sum(mine['by_attempt'])} attempts, decisions {sum(theirs.values()):.0f}"


def equal(report, what, prometheus, storm):
    if prometheus != storm:
        report.fault(f"totals, {what}", f"Prometheus has {prometheus:g}, the storm {storm:g}", "one of them miscounts; compare with GET /v1/dependencies/NAME")


def odd_names(report, stack, traffic):
    """What labels have to escape arrives as it was sent; what is no name does not become a label."""
    for name in ODD_NAMES:
        quoted = json.dumps(name, ensure_ascii=False)
        if stack.value(f"sum(damper_decisions_total{{dependency={quoted}}})") != 1:
            report.fault("labels", f"the dependency {name!r} did not arrive in Prometheus as it is", "look at the escaping in server/app/src/metrics")
    for bad in ["two\nlines", "nul\0", ""]:
        status, _ = traffic.retry(bad)
        if status != 422:
            report.fault("labels", f"the name {bad!r} is answered {status}", "names are printable text; see docs/protocol.md")
    return f"{len(ODD_NAMES)} names"


def alert_arrives(report, stack):
    """Rule, Prometheus, Alertmanager, webhook: with a runbook that exists, and no label that is ours alone."""
    def arrived(path, name):
        return next((alert for at, alert in stack.webhook.alerts if at == path and alert["labels"]["alertname"] == name), None)

    for path, name in [("/watchdog", "DamperWatchdog"), ("/tickets", "DamperLabelOverflow")]:
        alert = until(f"the arrival of {name} at {path}", lambda: arrived(path, name), 30)
        url = alert["annotations"]["runbook_url"]
        book = ROOT / url.replace("http://localhost:8000/", "")
        if not book.is_file():
            report.fault(f"alert {name}", f"its runbook_url {url} leads nowhere", "correct external_labels in prometheus.yml")
        if "runbooks" in alert["labels"]:
            report.fault(f"alert {name}", "the external label runbooks reached Alertmanager", "keep alert_relabel_configs in prometheus.yml")
    return f"{len(stack.webhook.alerts)} deliveries"


def mutations(report, stack, names):
    """A check that cannot fail is worth nothing: each of these must be found."""
    class Findings(type(report)):
        pass

    def found(check, *arguments):
        findings = Findings()
        check(findings, *arguments)
        return len(findings.faults)

    boards = files.dashboards()
    renamed = copy.deepcopy(boards)
    target = files.panels(renamed["overview"])[0]["targets"][0]
    target["expr"] = target["expr"].replace("damper_amplification", "damper_amplifcation")
    rules = stack.folder / "mutated"
    shutil.copytree(DASHBOARDS / "prometheus" / "rules", rules)
    alerts = rules / "alerts.yml"
    alerts.write_text(alerts.read_text().replace("damper_retry_throttle", "damper_retry_throtle"))
    unit, unruly = copy.deepcopy(boards), copy.deepcopy(boards)
    del files.panels(unit["server"])[0]["fieldConfig"]["defaults"]["unit"]
    files.panels(unruly["capacity"])[0]["targets"][0]["expr"] = 'sum(damper_logical_operations_total{job=~"$job"})'
    # One dashboard is enough to ask Prometheus about.
    results = {
        "a metric renamed in a dashboard, by its name": found(files.references, renamed, DASHBOARDS / "prometheus" / "rules", names),
        "a metric renamed in a dashboard, by its data": found(panels, stack, {"overview": renamed["overview"]}),
        "a metric renamed in a rule": found(files.references, boards, rules, names),
        "a panel without a unit": found(files.lint, unit),
        "a counter outside of a rate": found(files.lint, unruly),
    }
    for what, count in results.items():
        if count == 0:
            report.fault("mutations", f"{what} was not found", "the check has lost its teeth; see checks/")
    return f"{len(results)} found"
