"""What can be said about the files alone: form, layout, words, references."""

import json
import re
import subprocess
import sys

from stack import DASHBOARDS, ROOT

NAMES = ["overview", "dependency", "tenant", "capacity", "server"]
# The difference of these two counters is the self-check of the budget; a rate of it would hide what is past.
RAW_COUNTERS = {"damper_tokens_granted_total", "damper_tokens_issued_total"}
METRIC = re.compile(r"\b((?:damper|process)_\w+|\w+:damper_\w+:\w+)")
REMEDY = "correct it in dashboards/source, then run dashboards/generate"


def dashboards(folder=DASHBOARDS / "grafana"):
    return {name: json.loads((folder / f"{name}.json").read_text()) for name in NAMES}


def panels(dashboard):
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def expressions(boards):
    """Every query: (place, expression)."""
    for name, board in boards.items():
        for panel in panels(board):
            for target in panel["targets"]:
                yield f"grafana/{name}.json, panel \"{panel['title']}\", {target['refId']}", target["expr"]
        for mark in board["annotations"]["list"]:
            yield f"grafana/{name}.json, annotation \"{mark['name']}\"", mark["expr"]


def rules(folder=DASHBOARDS / "prometheus" / "rules"):
    """Every rule: (file, kind, name, text of the rule)."""
    for path in sorted(folder.glob("*.yml")):
        text = re.sub(r"^ *#.*\n", "", path.read_text(), flags=re.M)
        for part in re.split(r"(?=^ +- (?:alert|record): )|^  - name: .*\n", text, flags=re.M):
            if not part.lstrip().startswith(("- alert", "- record")):
                continue
            kind, name = re.match(r" +- (alert|record): (\S+)", part).groups()
            yield path.name, kind, name, part


def expression(rule):
    return re.split(r"\n +(?:for|keep_firing_for|labels): *", rule.split("expr:")[1])[0]


def bare(name):
    """A metric's name without the endings of a histogram's series."""
    return re.sub(r"_(bucket|sum|count)$", "", name)


def strip_texts(text):
    return re.sub(r'"(?:\\.|[^"\\])*"', '""', text)


def generated(report):
    done = subprocess.run([sys.executable, "-B", DASHBOARDS / "generate", "--check"], capture_output=True, text=True)
    if done.returncode != 0:
        report.fault("dashboards/grafana", done.stderr.strip(), "run dashboards/generate and commit what it writes")
    return done.stdout.strip()


def lint(report, boards=None):
    boards = boards or dashboards()
    uids = [board["uid"] for board in boards.values()]
    if len(set(uids)) != len(uids) or any(len(uid) > 40 for uid in uids):
        report.fault("dashboards/grafana", f"uids {uids} are not unique or longer than 40", REMEDY)
    for name, board in boards.items():
        lint_board(report, f"grafana/{name}.json", board)
        for panel in panels(board):
            lint_panel(report, f"grafana/{name}.json, panel \"{panel['title']}\"", panel)
    for place, expr in expressions(boards):
        lint_expression(report, place, expr)
    return f"{sum(len(panels(board)) for board in boards.values())} panels in {len(boards)} dashboards"


def lint_board(report, place, board):
    variables = {each["name"]: each for each in board["templating"]["list"]}
    wanted = {
        "editable is false": board["editable"] is False,
        "schemaVersion is 39 to 42": 39 <= board["schemaVersion"] <= 42,
        "the first variable is the data source": board["templating"]["list"][0]["type"] == "datasource",
        "job and instance are variables": {"job", "instance"} <= set(variables),
        "panel ids are unique": len({p["id"] for p in board["panels"]}) == len(board["panels"]),
        "there are marks for starts and configurations": len(board["annotations"]["list"]) == 2,
        "it links to the other dashboards and the runbooks": len(board["links"]) == 2,
    }
    for variable in variables.values():
        if variable["type"] == "query":
            wanted[f"variable {variable['name']}: multi, all is .+, refreshed with the time, ${{datasource}}, described"] = (
                variable["multi"] and variable["includeAll"] and variable["allValue"] == ".+" and variable["refresh"] == 2
                and variable["datasource"]["uid"] == "${datasource}" and variable["description"])
    for what, holds in wanted.items():
        if not holds:
            report.fault(place, f"does not hold: {what}", REMEDY)
    overlaps(report, place, board["panels"])


def overlaps(report, place, listed):
    taken = {}
    for panel in listed:
        grid = panel["gridPos"]
        for cell in ((x, y) for x in range(grid["x"], grid["x"] + grid["w"]) for y in range(grid["y"], grid["y"] + grid["h"])):
            if cell in taken or cell[0] > 23:
                report.fault(place, f"\"{panel['title']}\" overlaps \"{taken.get(cell, 'the edge')}\"", REMEDY)
                return
            taken[cell] = panel["title"]


def lint_panel(report, place, panel):
    defaults = panel["fieldConfig"]["defaults"]
    wanted = {
        "a title": panel["title"], "a description that ends in a full stop": panel["description"].endswith("."),
        "a unit": defaults.get("unit"), "thresholds": defaults.get("thresholds", {}).get("steps"), "a query": panel["targets"],
        "${datasource}": all(t["datasource"]["uid"] == "${datasource}" for t in [panel, *panel["targets"]]),
    }
    for what, there in wanted.items():
        if not there:
            report.fault(place, f"lacks {what}", REMEDY)
    for link in panel.get("links", []):
        book = ROOT / "docs/runbooks" / link["url"].removeprefix("${runbooks}/")
        if not book.exists():
            report.fault(place, f"links to {book.name}, which is not in docs/runbooks", "write it, or correct the link")


def lint_expression(report, place, expr):
    text = strip_texts(expr)
    # A counter outside of rate and increase: no range follows it.
    for found in re.finditer(r"\b(damper_\w+_total|process_\w+_total)\b(\{[^}]*\})?(\[)?", text):
        if found.group(3) is None and found.group(1) not in RAW_COUNTERS:
            report.fault(place, f"{found.group(1)} is a counter and stands outside of rate or increase", REMEDY)
    for window in re.findall(r"\[([^\]]+)\]", text):
        if window not in ("$__rate_interval", "$__range", "1h"):
            report.fault(place, f"the range [{window}] does not follow the resolution", "use [$__rate_interval] or [$__range]")
    for metric, selector in re.findall(r"\b(damper_\w+|process_\w+|\w+:damper_\w+:\w+)(\{[^}]*\})?", text):
        if "job=~" not in selector:
            report.fault(place, f"{metric} is not limited by the variable job", "put @ (or @job) into its braces")


def schema(report):
    try:
        from grafana_foundation_sdk.cog.encoder import JSONEncoder
        from grafana_foundation_sdk.models.dashboard import Dashboard
    except ImportError:
        report.skip("schema round trip", "grafana-foundation-sdk is not there; connect to PyPI and run again")
        return "skipped"
    boards = dashboards()
    for name, board in boards.items():
        back = json.loads(JSONEncoder(sort_keys=True).encode(Dashboard.from_json(board)))
        lost = sorted(lost_keys(board, back, ""))
        for path in lost:
            report.fault(f"grafana/{name}.json", f"Grafana's schema does not know {path}", "correct the key's spelling in dashboards/source")
    return f"{len(boards)} dashboards read and written back by Grafana's own types"


# Fields of Prometheus' annotations that Grafana reads and its published types do not have.
ANNOTATIONS = {"titleFormat", "textFormat", "tagKeys", "useValueForTime"}


def lost_keys(there, back, path):
    if isinstance(there, dict):
        for key, value in there.items():
            here = f"{path}.{key}"
            if key in ANNOTATIONS and path.startswith(".annotations"):
                continue
            if not isinstance(back, dict) or key not in back:
                if value not in (None, [], {}):
                    yield here
            else:
                yield from lost_keys(value, back[key], here)
    elif isinstance(there, list) and isinstance(back, list):
        for index, (one, other) in enumerate(zip(there, back)):
            yield from lost_keys(one, other, f"{path}[{index}]")


def syntax(report):
    try:
        import promql_parser
    except ImportError:
        report.skip("syntax of queries", "promql-parser is not there; Prometheus reads them all the same")
        return "skipped"
    checked = 0
    for place, expr in expressions(dashboards()):
        checked += 1
        try:
            promql_parser.parse(plain(expr))
        except ValueError as error:
            report.fault(place, f"not PromQL: {error}", REMEDY)
    return f"{checked} queries"


def plain(expr, numbers=(("p", "0.12"), ("k", "4"), ("growth", "1.5")), rate="30s", span="120s"):
    """A query with every variable in place, as Grafana would send it with All chosen."""
    expr = expr.replace("$__rate_interval", rate).replace("$__range", span)
    for name, value in numbers:
        expr = re.sub(rf"\${name}\b", value, expr)
    return re.sub(r"\$\w+", ".+", expr)


def references(report, boards=None, folder=DASHBOARDS / "prometheus" / "rules", exposed=()):
    """Metrics exist, are documented; alerts have severity, summary, runbook, and tests of both kinds."""
    boards = boards or dashboards()
    listed = list(rules(folder))
    recorded = {name for _, kind, name, _ in listed if kind == "record"}
    documented = (ROOT / "docs/metrics.md").read_text()
    used = list(expressions(boards)) + [(f"prometheus/rules/{file}, {name}", expression(text))
                                        for file, _, name, text in listed]
    for place, expr in used:
        for metric in {bare(found) for found in METRIC.findall(strip_texts(expr))} - recorded:
            if metric not in exposed:
                report.fault(place, f"{metric} is not on /metrics and no rule records it", "correct its name")
            elif f"`{metric}`" not in documented:
                report.fault(place, f"{metric} is not in docs/metrics.md", "describe it there")
    cases = "\n".join(path.read_text() for path in (DASHBOARDS / "prometheus/tests").glob("*_test.yml"))
    alerts = [each for each in listed if each[1] == "alert"]
    for file, _, name, text in alerts:
        lint_alert(report, f"prometheus/rules/{file}, {name}", name, text, cases)
    books = {path.stem for path in (ROOT / "docs/runbooks").glob("Damper*.md")}
    for book in books - {name for _, _, name, _ in alerts}:
        report.fault(f"docs/runbooks/{book}.md", "there is no alert of this name", "delete it, or correct the name")
    return f"{len(used)} queries and rules, {len(alerts)} alerts"


def lint_alert(report, place, name, text, cases):
    for wanted in ["severity: ", "summary: ", "description: ", f'runbook_url: "{{{{ $externalLabels.runbooks }}}}/{name}.md"']:
        if wanted not in text:
            report.fault(place, f"lacks {wanted}", "add it to the rule")
    if not (ROOT / f"docs/runbooks/{name}.md").exists():
        report.fault(place, f"docs/runbooks/{name}.md is missing", "write it: what it means, what to look at, what to do")
    mine = re.findall(rf"alertname: {name}\n +exp_alerts:( \[\])?", cases)
    if "" not in mine:
        report.fault(place, "no test sees it fire", "add a case to prometheus/tests")
    if " []" not in mine and name != "DamperWatchdog":
        report.fault(place, "no test sees it silent", "add a case to prometheus/tests")
