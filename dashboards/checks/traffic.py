"""Makes every panel have something to show: a storm on real sockets, and asks for what storms do not do."""

import json
import subprocess
import threading
import time

from stack import call

CONFIG = """
[server]
max_dependencies = 13
[telemetry]
tenants = true
max_tenants = 3
""" + "".join(f"""
[dependencies.{name}]
capacity_per_s = 130
max_attempts = 3
retry.per_s = 4
""" for name in ["storm1", "storm2", "storm3"]) + """
[dependencies.search]
capacity_per_s = 50
retry.ratio = 0.1
breaker.open_for_ms = 1000
breaker.min_volume = 5
[dependencies.mail]
retry.per_s = 50
[dependencies.labs]
shadow = true
retry.per_s = 1
"""

SCENARIO = """
name = "watched"
about = "one in five fails, and the pool is too small"
duration_s = 14
seed = 11
[traffic]
arrival_per_s = 60
pacing = "poisson"
clients = 4
deadline_ms = 1500
attempt_timeout_ms = 500
[dependency]
name = "{name}"
capacity_per_s = 130
queue_limit = 130
latency_ms = 20
[[dependency.phases]]
from_s = 0
failure_share = 0.2
[local]
max_attempts = 3
[damper]
max_attempts = 3
"""
# How a client's reasons begin when no server answered it in time.
ALONE = ("emergency", "fail_closed", "circuit_open")
# Bytes that a label has to escape, and some that take more than one byte.
ODD_NAMES = ['say "hi"', "back\\slash", "brace{x=\"1\"}", "grün-日本-🚦", "a,b=c"]


class Traffic:
    def __init__(self, stack):
        self.stack, self.ledger, self.counted, self.reports = stack, None, 0, 0

    def post(self, path, body, method=None):
        status, text = call(self.stack.damper + path, body, method)
        return status, text

    def retry(self, dependency, **more):
        self.counted += 1
        body = {"dependency": dependency, "operation": f"op-{self.counted}", "attempt": 2, "deadline_ms": 1000,
                "failure": {"class": "transient"}, "idempotent": True, "max_wait_ms": 0, **more}
        return self.post("/v1/tokens", body)

    def sync(self, dependency, tenant, totals, **more):
        self.post("/v1/sync", {"client": {"id": f"{dependency}-{tenant}", "incarnation": "1"}, "tenant": tenant,
                               "dependencies": {dependency: {"wants_first_per_s": 20, "totals": totals, **more}}})

    def storm(self):
        """Until one during which every ask was answered in time, so that both sides counted the same decisions."""
        for name in ["storm1", "storm2", "storm3"]:
            scenario, result = self.stack.folder / "storm.toml", self.stack.folder / "storm.json"
            scenario.write_text(SCENARIO.format(name=name))
            subprocess.run([self.stack.binaries / "damper-load", "storm", "--scenario", scenario, "--only", "damper",
                            "--server", self.stack.damper, "--json", result], capture_output=True, timeout=60, check=True)
            self.ledger = (name, json.loads(result.read_text())["ways"][0])
            if not self.unanswered():
                return

    def unanswered(self):
        """Asks that a client gave up on, by its reason: the server may have counted a decision that nobody heard."""
        name, ledger = self.ledger
        alone = {reason: count for reason, count in ledger["reasons"].items() if reason.startswith(ALONE)}
        _, metrics = call(self.stack.damper + "/metrics")
        if f'damper_emergency_retries_total{{dependency="{name}"}} 0\n' not in metrics:
            alone["granted without a server"] = "some"
        return alone

    def asks(self):
        for second in range(14):
            begun = time.monotonic()
            self.budget_and_tenants(second)
            self.hold_and_hedges()
            self.totals()
            self.breaker(second)
            self.callers(second)
            time.sleep(max(0.0, 1 - (time.monotonic() - begun)))

    def budget_and_tenants(self, second):
        for tenant in ["checkout", "batch", "search-ui", f"visitor-{second}"]:
            for _ in range(4):
                self.retry("labs", tenant=tenant)
            self.retry("mail", tenant=tenant)
        for name in ODD_NAMES:
            self.retry("mail", tenant=name)
        if second == 0:
            for name in ODD_NAMES:
                self.retry(name)
        waiting = [threading.Thread(target=self.retry, args=("labs-queue",), kwargs={"max_wait_ms": 900}) for _ in range(3)]
        for each in waiting:
            each.start()

    def hold_and_hedges(self):
        self.retry("held", failure={"class": "rate_limited", "retry_after_ms": 60_000})
        for kind in ["hedge", "first"]:
            self.retry("search", kind=kind, attempt=1, failure=None)
        self.retry("search", failure={"class": "invalid"})
        _, answer = self.retry("mail")
        token = json.loads(answer).get("token")
        if token:
            self.post("/v1/tokens/return", {"token": token})

    def totals(self):
        """Reports of clients: a dependency under overload, and one that another layer retries."""
        self.reports += 1
        n = self.reports
        for tenant in ["checkout", "batch"]:
            self.sync("search", tenant, {"logical": 60 * n, "physical": 110 * n, "success": 52 * n, "affected": 12 * n, "recovered": 4 * n,
                                         "failures": {"transient": 3 * n, "rate_limited": 20 * n, "invalid": n},
                                         "sources": {"runtime": 20 * n, "application": 4 * n},
                                         "reasons": {"timeout": 3 * n, "no_resources": 2 * n},
                                         "exhausted": n, "abandoned": n, "ambiguous": n, "emergency": n, "foreign": 2 * n, "slow": n})

    def breaker(self, second):
        force = {3: "open", 5: "auto", 8: "open", 10: "closed", 12: "auto"}.get(second)
        if force:
            self.post("/v1/admin/dependencies/mail/breaker", {"force": force})

    def callers(self, second):
        self.post("/v1/tokens", {"dependency": "mail"})
        call(self.stack.damper + "/v1/dependencies/nobody")
        if second == 4:
            self.stack.config.write_text(CONFIG.replace("retry.per_s = 50", "retry.per_s = 40"))
            self.post("/v1/admin/reload", None, "POST")
        if second == 6:
            self.stack.config.write_text("[server]\nno_such_key = 1\n")
            self.post("/v1/admin/reload", None, "POST")
        if second > 7:
            self.retry(f"one-too-many-{second}")
            self.sync(f"one-too-many-{second}", "batch", {"logical": 1, "physical": 1})

    def run(self):
        storm = threading.Thread(target=self.storm)
        storm.start()
        self.asks()
        storm.join()
        if self.ledger is None:
            raise RuntimeError("the storm did not end well; run damper-load storm by hand")
