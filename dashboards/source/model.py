"""What all dashboards share: one way to say a panel, a variable and a dashboard, and where panels go.

In queries, `@` inside braces stands for the selectors of the dashboard's variables, `@job` for those of recorded
series, which have no instance, and `%` for those of the servers alone.
"""

import json

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
GREEN, YELLOW, RED, BLUE, ORANGE, PURPLE, GREY = "green", "yellow", "red", "blue", "orange", "purple", "#8e8e8e"
UNITS = {
    "ops": "ops",                      # operations per second
    "req": "reqps",                    # attempts or requests per second
    "share": "percentunit",
    "s": "s",
    "count": "none",
    "bytes": "bytes",
    "factor": "none",
    "days": "d",
    "bool": "bool_yes_no",
    "text": "none",
}


def query(expr, legend="", instant=False):
    """One query of a panel."""
    return {"expr": expr, "legend": legend, "instant": instant}


def steps(*pairs):
    """Thresholds: a base colour, then (value, colour)."""
    base, *rest = pairs
    return [{"color": base, "value": None}] + [{"color": colour, "value": value} for value, colour in rest]


def override(pattern, **properties):
    """Properties of the fields whose name matches a regular expression."""
    listed = [{"id": key.replace("__", "."), "value": value} for key, value in properties.items()]
    return {"matcher": {"id": "byRegexp", "options": pattern}, "properties": listed}


def colour(pattern, fixed, **properties):
    return override(pattern, color={"mode": "fixed", "fixedColor": fixed}, **properties)


def line(pattern, fixed, dashed=True):
    """A bound or an expectation: a line without area beside what is stacked or measured."""
    style = {"fill": "dash", "dash": [8, 6]} if dashed else {"fill": "solid"}
    return colour(
        pattern, fixed, custom__lineStyle=style, custom__fillOpacity=0, custom__lineWidth=2,
        custom__stacking={"mode": "none", "group": "A"},
    )


class Panel:
    """A panel without a place; `Dashboard.add` gives it one."""

    def __init__(self, kind, title, about, unit, queries, w, h, thresholds=None, overrides=(), runbook=None, **more):
        self.width, self.height = w, h
        custom = more.pop("custom", {})
        defaults = {
            "unit": UNITS[unit],
            "color": {"mode": more.pop("colouring", "palette-classic")},
            "thresholds": {"mode": "absolute", "steps": thresholds or steps(BLUE)},
            "custom": custom,
            "mappings": more.pop("mappings", []),
        }
        for key in ("min", "max", "decimals", "noValue"):
            if key in more:
                defaults[key] = more.pop(key)
        self.json = {
            "type": kind,
            "title": title,
            "description": about,
            "datasource": DATASOURCE,
            "targets": [target(index, each) for index, each in enumerate(queries)],
            "fieldConfig": {"defaults": defaults, "overrides": list(overrides)},
            "options": more.pop("options"),
        }
        if runbook:
            url = "${runbooks}/" + runbook + ".md"
            self.json["links"] = [{"title": f"Runbook: {runbook}", "url": url, "targetBlank": True}]
        self.json.update(more)


def target(index, each):
    made = {
        "refId": chr(ord("A") + index),
        "datasource": DATASOURCE,
        "expr": each["expr"],
        "legendFormat": each["legend"] or "__auto",
        "editorMode": "code",
        "range": not each["instant"],
        "instant": each["instant"],
    }
    if each["instant"]:
        made["format"] = "table"
    return made


REDUCE = {"calcs": ["lastNotNull"], "fields": "", "values": False}


def stat(title, about, unit, expr, thresholds=None, w=4, h=4, **more):
    """One number with its recent course."""
    legend = more.pop("legend", "")
    options = {
        "colorMode": "value", "graphMode": more.pop("graph", "area"), "justifyMode": "auto", "orientation": "auto",
        "reduceOptions": REDUCE, "textMode": more.pop("text", "value"), "wideLayout": True,
    }
    return Panel(
        "stat", title, about, unit, [query(expr, legend)], w, h, thresholds or steps(BLUE), colouring="thresholds",
        options=options, **more,
    )


def series(title, about, unit, *queries, w=12, h=8, stack=False, bars=False, **more):
    """Lines over time, or areas on top of each other."""
    custom = {
        "drawStyle": "bars" if bars else "line",
        "lineInterpolation": more.pop("interpolation", "linear"),
        "lineWidth": 1 if stack else 2,
        "fillOpacity": 40 if stack else 8,
        "showPoints": "never",
        "spanNulls": False,
        "stacking": {"mode": "normal" if stack else "none", "group": "A"},
        "axisSoftMin": 0,
        "thresholdsStyle": {"mode": "dashed" if more.get("thresholds") else "off"},
    }
    options = {
        "legend": {"displayMode": "list", "placement": "bottom", "calcs": [], "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    return Panel("timeseries", title, about, unit, queries, w, h, custom=custom, options=options, **more)


def bars(title, about, unit, expr, legend, w=8, h=8, **more):
    """One bar for each series, longest first where the query sorts."""
    options = {
        "displayMode": "basic", "orientation": "horizontal", "reduceOptions": REDUCE, "showUnfilled": False,
        "valueMode": "color", "namePlacement": "auto", "minVizHeight": 14, "minVizWidth": 8, "sizing": "auto",
    }
    made = Panel(
        "bargauge", title, about, unit, [query(expr, legend, True)], w, h, options=options, min=0,
        **{"colouring": "palette-classic", **more},
    )
    made.json["targets"][0]["format"] = "time_series"
    return made


def table(title, about, columns, key="dependency", w=24, h=8, extra=(), **more):
    """One row for each value of the label `key`; columns are (title, unit, expr, thresholds or None)."""
    queries = [query(expr, "", True) for _, _, expr, _ in columns]
    names = {f"Value #{chr(ord('A') + i)}": column[0] for i, column in enumerate(columns)}
    order = {key: 0, **{value: i + 1 for i, value in enumerate(names)}}
    overrides = [column_override(*column) for column in columns]
    options = {"showHeader": True, "sortBy": [{"displayName": "Operations/s", "desc": True}], "cellHeight": "sm", "footer": {"show": False, "reducer": ["sum"], "countRows": False, "fields": ""}}
    transformations = [
        {"id": "merge", "options": {}},
        {"id": "organize", "options": {
            "excludeByName": {"Time": True, "job": True}, "indexByName": order,
            "renameByName": {**names, key: key.capitalize()},
        }},
    ]
    custom = {"align": "auto", "filterable": True, "cellOptions": {"type": "auto"}}
    return Panel(
        "table", title, about, "count", queries, w, h, overrides=[*overrides, *extra], options=options, custom=custom,
        transformations=transformations, decimals=2, **more,
    )


def column_override(title, unit, _expr, thresholds):
    properties = {"unit": UNITS[unit]}
    if unit == "bool":
        properties = {"unit": "none", "mappings": YES_NO}
    if thresholds:
        properties["thresholds"] = {"mode": "absolute", "steps": thresholds}
        properties["color"] = {"mode": "thresholds"}
        properties["custom__cellOptions"] = {"type": "color-text"}
    made = override("", **properties)
    made["matcher"] = {"id": "byName", "options": title}
    return made


YES_NO = [{"type": "value", "options": {"0": {"text": "no", "index": 0}, "1": {"text": "yes", "index": 1}}}]


def label_variable(name, metric, label, about, multi=True):
    made = {
        "name": name, "label": label.capitalize() if name == label else name, "description": about, "type": "query",
        "datasource": DATASOURCE,
        "query": {"query": f"label_values({metric}, {label})", "refId": "variable"},
        "refresh": 2, "sort": 1, "hide": 0, "multi": multi, "includeAll": multi, "regex": "", "options": [],
    }
    if multi:
        made["allValue"] = ".+"
        made["current"] = {"selected": True, "text": ["All"], "value": ["$__all"]}
    return made


def text_variable(name, label, about, value, hide=0):
    option = {"selected": True, "text": value, "value": value}
    return {
        "name": name, "label": label, "description": about, "type": "textbox", "query": value, "current": option,
        "options": [option], "hide": hide,
    }


RUNBOOKS = text_variable(
    "runbooks", "Runbooks", "Where docs/runbooks is served; the links of panels start with it.",
    "http://localhost:8000/docs/runbooks",
)
JOB = 'job=~"$job"'
INSTANCE = JOB + ',instance=~"$instance"'


class Dashboard:
    """Panels in rows of 24 columns, from left to right."""

    def __init__(self, name, title, about, variables=(), selectors="", refresh="10s", since="now-1h"):
        self.name, self.title, self.about = name, title, about
        self.variables, self.selectors = list(variables), selectors
        self.refresh, self.since = refresh, since
        self.panels, self.x, self.y, self.row_height = [], 0, 0, 0

    def row(self, title):
        self.break_line()
        self.place({"type": "row", "title": title, "collapsed": False, "panels": []}, 24, 1)
        self.break_line()

    def add(self, *panels):
        for panel in panels:
            if self.x + panel.width > 24:
                self.break_line()
            self.place(panel.json, panel.width, panel.height)

    def place(self, panel, width, height):
        identity = len(self.panels) + 1
        self.panels.append({"id": identity, **panel, "gridPos": {"x": self.x, "y": self.y, "w": width, "h": height}})
        self.x, self.row_height = self.x + width, max(self.row_height, height)

    def break_line(self):
        self.x, self.y, self.row_height = 0, self.y + self.row_height, 0

    def to_json(self):
        document = {
            "uid": f"damper-{self.name}", "title": f"damper / {self.title}", "description": self.about,
            "tags": ["damper"], "schemaVersion": 41, "version": 1, "editable": False, "graphTooltip": 1,
            "timezone": "browser", "refresh": self.refresh, "time": {"from": self.since, "to": "now"},
            "links": [{
                "type": "dashboards", "title": "damper", "tags": ["damper"], "asDropdown": False, "icon": "external link",
                "includeVars": True, "keepTime": True, "targetBlank": False, "tooltip": "", "url": "",
            }, {
                "type": "link", "title": "Runbooks", "tags": [], "asDropdown": False, "icon": "doc",
                "includeVars": False, "keepTime": False, "targetBlank": True, "tooltip": "What to do about each alert",
                "url": "${runbooks}",
            }],
            "annotations": {"list": [
                mark("Starts", "A server started: a deploy, or a crash", "process_start_time_seconds{%} * 1000", PURPLE,
                     "damper started"),
                mark("Configurations", "A configuration came into force",
                     "damper_config_loaded_timestamp_seconds{%} * 1000", BLUE, "configuration loaded"),
            ]},
            "templating": {"list": [datasource_variable(), *self.places(), *self.variables, RUNBOOKS]},
            "panels": self.panels,
        }
        text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
        more = f",{self.selectors}" if self.selectors else ""
        for mark_in_query, selector in {"@job": JOB + more, "{@": "{" + INSTANCE + more, "{%": "{" + INSTANCE}.items():
            text = text.replace(mark_in_query, selector.replace('"', '\\"'))
        return text

    @staticmethod
    def places():
        return [
            label_variable("job", "damper_build_info", "job", "The scrape job of the servers."),
            label_variable("instance", 'damper_build_info{job=~"$job"}', "instance", "One server, or several."),
        ]


def datasource_variable():
    return {
        "name": "datasource", "label": "Data source", "description": "The Prometheus that scrapes damper.",
        "type": "datasource", "query": "prometheus", "refresh": 1, "hide": 0, "regex": "", "multi": False,
        "includeAll": False, "options": [], "current": {},
    }


def mark(name, title, expr, colour_name, text):
    return {
        "name": name, "enable": True, "hide": False, "iconColor": colour_name, "datasource": DATASOURCE, "expr": expr,
        "titleFormat": text, "textFormat": title + " on {{instance}}", "tagKeys": "instance", "useValueForTime": "on",
    }
