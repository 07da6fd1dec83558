"""Starts damper, Prometheus, Alertmanager and a webhook on free loopback ports, and ends exactly those."""

import http.server
import json
import math
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

DASHBOARDS = pathlib.Path(__file__).resolve().parent.parent
ROOT = DASHBOARDS.parent


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def until(what, condition, within=30.0):
    """Polls until the condition holds, and returns what it returned."""
    end = time.monotonic() + within
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.1)
    raise TimeoutError(f"{what} did not happen within {within:.0f} s")


def call(url, body=None, method=None, within=10.0):
    """An HTTP request to a peer on loopback, past every proxy: status and text."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"}, method=method)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=within) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)


class Webhook:
    """Keeps what Alertmanager delivers, by path."""

    def __init__(self):
        self.alerts, kept = [], self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                kept.alerts += [(self.path, alert) for alert in body["alerts"]]
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


class Stack:
    def __init__(self, binaries):
        self.binaries = pathlib.Path(binaries).resolve()
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="damper-dashboards-"))
        self.processes, self.began = [], time.time()
        self.webhook = Webhook()
        self.damper = self.prometheus = self.alertmanager = ""

    def start(self, *command):
        name = pathlib.Path(command[0]).name
        log = open(self.folder / f"{name}.log", "w")
        process = subprocess.Popen([str(part) for part in command], stdout=log, stderr=log, cwd=self.folder)
        self.processes.append(process)
        return process

    def up(self, url):
        def ready():
            ended = [p.args[0] for p in self.processes if p.poll() is not None]
            if ended:
                logs = "".join((self.folder / f"{pathlib.Path(e).name}.log").read_text()[-800:] for e in ended)
                raise RuntimeError(f"{ended} ended by itself:\n{logs}")
            return call(url)[0] == 200
        until(f"an answer of {url}", ready)

    def start_damper(self, config):
        self.config = self.folder / "damper.toml"
        self.config.write_text(config)
        address = f"127.0.0.1:{free_port()}"
        self.damper = f"http://{address}"
        self.damper_process = self.start(self.binaries / "damper", "serve", "--config", self.config, "--listen", address)
        self.up(f"{self.damper}/readyz")

    def start_prometheus(self, lookback="5m"):
        """With the committed files, but for addresses and for time: a second in place of five."""
        shutil.copytree(DASHBOARDS / "prometheus" / "rules", self.folder / "rules")
        rules = self.folder / "rules" / "recording.yml"
        rules.write_text(rules.read_text().replace("interval: 1m", "interval: 1s").replace("[5m]", f"[{lookback}]"))
        alerts, address = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
        config = (DASHBOARDS / "prometheus" / "prometheus.yml").read_text()
        for old, new in {"127.0.0.1:7117": self.damper.removeprefix("http://"), "127.0.0.1:9093": alerts,
                         "scrape_interval: 5s": "scrape_interval: 1s", "evaluation_interval: 15s": "evaluation_interval: 1s"}.items():
            assert old in config, f"prometheus.yml has no {old}"
            config = config.replace(old, new)
        (self.folder / "prometheus.yml").write_text(config)
        manager = (DASHBOARDS / "alertmanager" / "alertmanager.yml").read_text()
        manager = manager.replace("127.0.0.1:9095", f"127.0.0.1:{self.webhook.port}").replace("group_wait: 30s", "group_wait: 1s")
        (self.folder / "alertmanager.yml").write_text(manager)
        self.start("prometheus-alertmanager", "--config.file=alertmanager.yml", "--storage.path=alerts",
                   f"--web.listen-address={alerts}", "--cluster.listen-address=")
        self.remember("storm1")
        # Prometheus finds Alertmanager some seconds after its first alerts, and by default repeats them a minute later.
        self.start("prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=data", f"--web.listen-address={address}",
                   "--rules.alert.resend-delay=2s")
        self.prometheus, self.alertmanager = f"http://{address}", f"http://{alerts}"
        self.up(f"{self.prometheus}/-/ready")
        self.up(f"{self.alertmanager}/-/ready")

    def remember(self, dependency):
        """Thirteen days of what the rules would have recorded: the forecast is silent without a past."""
        labels = f'{{job="damper",dependency="{dependency}"}}'
        hours = [(int(self.began) - 3600 * back, 313 - back) for back in range(312, 0, -1)]
        text = "".join(f"# TYPE {name} gauge\n" + "".join(f"{name}{labels} {value(hour)} {at}\n" for at, hour in hours) for name, value in {
            "job_dependency:damper_attempt_failures_per_attempts:ratio_rate5m": lambda hour: 0.15 + 0.05 * (hour % 24 == 12),
            "job_dependency:damper_logical_operations:rate5m": lambda hour: round(50 + hour / 24 + 5 * math.sin(hour / 24 * 2 * math.pi), 3),
        }.items())
        (self.folder / "past.om").write_text(text + "# EOF\n")
        subprocess.run(["promtool", "tsdb", "create-blocks-from", "openmetrics", "past.om", "data"], cwd=self.folder, check=True,
                       capture_output=True)

    def ask(self, path, **parameters):
        status, text = call(f"{self.prometheus}/api/v1/{path}?{urllib.parse.urlencode(parameters, doseq=True)}")
        answer = json.loads(text) if text.startswith("{") else {"status": "error", "error": text}
        if answer["status"] != "success":
            raise ValueError(f"{answer.get('error', status)}")
        return answer["data"]

    def value(self, expr):
        """The single value of an instant query; 0 where there is none."""
        result = self.ask("query", query=expr)["result"]
        return float(result[0]["value"][1]) if result else 0.0

    def stop(self):
        for process in self.processes:
            process.send_signal(signal.SIGTERM)
        for process in self.processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
        self.webhook.server.shutdown()
        shutil.rmtree(self.folder, ignore_errors=True)
