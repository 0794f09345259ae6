# /// script
# dependencies = ["dbos"]
#
# [tool.stepkeep-bench]
# title = "DBOS"
# package = "dbos"
# delivers = true
# replays = true
# stores = ["postgres", "sqlite"]
# runs = { 1 = 600, 3 = 300, 10 = 120 }
# ///
"""DBOS: workflows of no-op steps, started directly (no queue between) by two processes that share the work.

Two processes, because a client and a worker is what the others have; on SQLite one, where two would only wait for each
other. Told what to do by one JSON argument, answers with JSON lines; `stepkeep bench --peers` runs it in an environment
of its own.
"""

import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from dbos import DBOS

KILOBYTE = "x" * 1000
CALLERS = {"postgres": 32, "sqlite": 2}


@DBOS.step()
def noop() -> dict[str, str]:
    return {"payload": KILOBYTE}


@DBOS.workflow()
def chain(steps: int, given: dict[str, str]) -> dict[str, str] | None:
    told = None
    for _ in range(steps):
        told = noop()
    return told


def launch(task: dict, name: str) -> None:
    url = f"sqlite:///{task['folder']}/dbos.db" if task["store"] == "sqlite" else task["url"]
    DBOS(
        config={
            "name": "bench",
            "system_database_url": url,
            "executor_id": name,
            "application_version": "1",
            "log_level": "ERROR",
        }
    )
    DBOS.launch()


def run_all(task: dict, steps: int, runs: int) -> None:
    def one(_: int) -> None:
        DBOS.start_workflow(chain, steps, {"payload": KILOBYTE}).get_result()

    with ThreadPoolExecutor(CALLERS[task["store"]]) as callers:
        list(callers.map(one, range(runs)))


def helper(task: dict) -> None:
    """The second process: does its half of each work when it is told to."""
    launch(task, "second")
    print("ready", flush=True)
    for line in sys.stdin:
        steps, runs = json.loads(line)
        run_all(task, steps, runs)
        print("done", flush=True)
    DBOS.destroy()


def main(task: dict) -> None:
    launch(task, "first")
    second = subprocess.Popen(
        [sys.executable, str(Path(__file__)), "helper", sys.argv[-1]],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert second.stdout.readline().strip() == "ready"
        run_all(task, 1, 10)
        shared = 2 if task["store"] == "postgres" else 1
        for steps, runs in task["works"]:
            begun = time.perf_counter()
            second.stdin.write(json.dumps([steps, runs - runs // shared]) + "\n")
            second.stdin.flush()
            run_all(task, steps, runs // shared)
            assert second.stdout.readline().strip() == "done"
            print(json.dumps({"steps": steps, "runs": runs, "seconds": time.perf_counter() - begun}), flush=True)
        taken = []
        for _ in range(task["probes"]):
            begun = time.perf_counter()
            DBOS.start_workflow(chain, 3, {"payload": KILOBYTE}).get_result()
            taken.append((time.perf_counter() - begun) * 1000)
        print(json.dumps({"latencies_ms": taken}), flush=True)
    finally:
        second.stdin.close()
        second.wait(30)
    DBOS.destroy()


if __name__ == "__main__":
    (helper if sys.argv[1] == "helper" else main)(json.loads(sys.argv[-1]))
