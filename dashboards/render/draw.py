"""Drives the servers, asks Prometheus for what the panels show, and has Chromium draw it."""

import json
import pathlib
import re
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "checks"))

import files  # noqa: E402
import traffic  # noqa: E402
from stack import Stack  # noqa: E402

PAGE = """<!doctype html><meta charset="utf-8"><title>damper</title><link rel="stylesheet" href="main.css">
<body style="margin:0"><div id="root"></div>
<script>window.BOARD = {board};</script><script src="main.js"></script>"""
WIDTH, CELL, GAP = 1500, 38, 8


def legend(text, labels):
    if text == "__auto":
        return ", ".join(v for k, v in labels.items() if k != "__name__") or labels.get("__name__", "value")
    return re.sub(r"{{(\w+)}}", lambda found: labels.get(found.group(1), ""), text)


# As somebody would choose them: a plan is about few dependencies.
CHOSEN = {"capacity": "storm1", "dependency": "storm1|search"}


def answer(stack, name, target, start, end):
    expr = target["expr"].replace("$dependency", CHOSEN.get(name, ".+"))
    expr = files.plain(expr, rate="10s", span=f"{int(end - start)}s")
    if target.get("instant"):
        data = stack.ask("query", query=expr, time=end)
    else:
        data = stack.ask("query_range", query=expr, start=start, end=end, step=1)
    result = [{"metric": {}, "value": data["result"]}] if data["resultType"] == "scalar" else data["result"]
    return [{"name": legend(target["legendFormat"], each["metric"]), "labels": each["metric"],
             "values": each.get("values") or [each["value"]]} for each in result]


def write_page(stack, name, board, start, end):
    panels = [{**panel, "answers": [answer(stack, name, t, start, end) for t in panel.get("targets", [])]} for panel in board["panels"]]
    texts = {variable["name"]: variable.get("query") for variable in board["templating"]["list"]}
    for panel in panels:
        panel["title"] = re.sub(r"\$(\w+)", lambda found: str(texts.get(found.group(1))), panel["title"])
    shown = {"title": board["title"], "panels": panels, "from": start * 1000, "to": end * 1000}
    (HERE / "out" / f"{name}.html").write_text(PAGE.replace("{board}", json.dumps(shown).replace("</", "<\\/")))
    return max(p["gridPos"]["y"] + p["gridPos"]["h"] for p in panels) * CELL + 48


def draw(name, height):
    subprocess.run(
        ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
         "--hide-scrollbars", f"--window-size={WIDTH},{height}", "--virtual-time-budget=8000",
         f"--screenshot={HERE / 'out' / (name + '.png')}", (HERE / "out" / f"{name}.html").as_uri()],
        check=True, capture_output=True, timeout=120,
    )
    print(HERE / "out" / f"{name}.png")


def main():
    stack = Stack(sys.argv[1])
    try:
        traffic.CONFIG = traffic.CONFIG.replace("max_dependencies = 13", "max_dependencies = 8")
        stack.start_damper(traffic.CONFIG)
        # A minute has to stand for a day: the recorded rates look back 20 s in place of 5 min.
        stack.start_prometheus(lookback="20s")
        traffic.ODD_NAMES.clear()
        driven = traffic.Traffic(stack)
        begun = time.time()
        for _ in range(4):
            driven.run()
        end = time.time() - 1
        start = begun + 2
        heights = {name: write_page(stack, name, board, start, end) for name, board in files.dashboards().items()}
    finally:
        stack.stop()
    for name, height in heights.items():
        draw(name, height)


main()
