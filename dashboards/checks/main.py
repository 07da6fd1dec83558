"""Runs all checks of dashboards/; started by dashboards/test."""

import signal
import sys

import files
import live
import traffic
from report import Report
from stack import Stack


def run(report, stack):
    running = live.start_rule_tests()
    report.step("generated dashboards", files.generated)
    report.step("form of dashboards", files.lint)
    report.step("Grafana's schema", files.schema)
    report.step("PromQL", files.syntax)
    report.step("rules and configurations", live.configurations)
    stack.start_damper(traffic.CONFIG)
    stack.start_prometheus()
    driven = traffic.Traffic(stack)
    report.step("storm and asks", lambda _: driven.run())
    report.step("what happened", live.happened, stack)
    names = live.exposed(stack)
    report.step("exposition", live.exposition, stack)
    report.step("references", lambda each: files.references(each, exposed=names))
    report.step("data in every panel", live.panels, stack)
    report.step("variables", live.variables, stack)
    if driven.ledger:
        report.step("totals equal the storm's", live.totals, stack, driven)
    report.step("odd names", live.odd_names, stack, driven)
    report.step("an alert arrives", live.alert_arrives, stack)
    report.step("mutations", live.mutations, stack, names)
    report.step("tests of rules", live.rule_tests, running)


def main():
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda *_: sys.exit(130))
    report, stack = Report(), Stack(sys.argv[1])
    try:
        run(report, stack)
    finally:
        stack.stop()
    sys.exit(report.conclude())


main()
