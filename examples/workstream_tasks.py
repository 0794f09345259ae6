"""The programs of examples/workstream.yaml: `workstream_tasks.py TASK MODE` does as the mode says and prints JSON."""

import json
import os
import sys
import time


def build(mode: str) -> None:
    first = os.environ["STEPKEEP_ATTEMPT"] == "1"
    if mode == "critical" or (mode == "retry" and first):
        sys.exit("the compiler gave up")


def lint(mode: str) -> None:
    if mode == "failure":
        sys.exit("14 lines are too long")


def test(mode: str) -> None:
    time.sleep({"timeout": 60, "slow": 1}.get(mode, 0))
    json.dump({"passed": 212, "failed": 3 if mode == "validation" else 0}, sys.stdout)


def report(passed: str) -> None:
    json.dump({"said": f"{passed} tests passed"}, sys.stdout)


if __name__ == "__main__":
    {"build": build, "lint": lint, "test": test, "report": report}[sys.argv[1]](sys.argv[2])
