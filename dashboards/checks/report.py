"""What was found, as it is found, and the summary at the end."""

import sys
import time


class Report:
    def __init__(self):
        self.started, self.faults, self.skipped, self.done = time.monotonic(), [], [], []

    def fault(self, place, what, remedy):
        self.faults.append(f"{place}: {what}\n    {remedy}")

    def skip(self, what, why):
        self.skipped.append(f"{what}: {why}")

    def step(self, name, check, *arguments):
        """Runs one check; what it returns says what was looked at."""
        before, began = len(self.faults), time.monotonic()
        try:
            looked_at = check(self, *arguments)
        except Exception as error:  # a check that cannot go on is a fault of its own, and others still run
            self.fault(name, f"{type(error).__name__}: {error}", "see the logs above; the check itself could not go on")
            looked_at = "stopped"
        found = len(self.faults) - before
        verdict = "ok  " if found == 0 else "FAIL"
        print(f"{verdict} {name}: {looked_at or 'done'} ({time.monotonic() - began:.1f} s)", file=sys.stderr, flush=True)
        self.done.append((name, found))

    def conclude(self):
        for text in self.faults:
            print(f"\nFAIL {text}", file=sys.stderr)
        for text in self.skipped:
            print(f"\nskipped {text}", file=sys.stderr)
        good = sum(1 for _, found in self.done if found == 0)
        took = time.monotonic() - self.started
        print(f"\ndashboards/test: {good} of {len(self.done)} checks passed, {len(self.faults)} faults, "
              f"{len(self.skipped)} skipped, {took:.0f} s")
        return 1 if self.faults else 0
