# /// script
# dependencies = ["prefect", "fastapi<0.150"]
#
# [tool.stepkeep-bench]
# title = "Prefect"
# package = "prefect"
# delivers = true
# serves = true
# stores = ["own"]
# runs = { 1 = 10, 3 = 8, 10 = 3 }
# probes = 3
# ///
"""Prefect: flows of no-op tasks with persisted results, against a server of its own on its default SQLite.

Told what to do by one JSON argument, answers with JSON lines; `stepkeep bench --peers` runs it in an environment of its
own. Flows report each task to the server through HTTP; more than a few at once make it slower.
"""

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

KILOBYTE = "x" * 1000
CALLERS = 4


async def main(task: dict) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    os.environ |= {
        "PREFECT_HOME": f"{task['folder']}/prefect",
        "PREFECT_API_URL": f"http://127.0.0.1:{port}/api",
        "PREFECT_LOGGING_LEVEL": "ERROR",
        "PREFECT_RESULTS_PERSIST_BY_DEFAULT": "true",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
    }
    command = [
        sys.executable,
        "-m",
        "prefect",
        "server",
        "start",
        "--no-ui",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    ]
    with open(f"{task['folder']}/prefect.log", "wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        await answering(f"http://127.0.0.1:{port}/api/health")
        chain = flow_of_tasks()
        await run_all(chain, 1, 1)
        for steps, runs in task["works"]:
            begun, used = time.perf_counter(), cpu_of([server.pid])
            await run_all(chain, steps, runs)
            told = {"steps": steps, "runs": runs, "seconds": time.perf_counter() - begun}
            told["cpu_seconds"] = cpu_of([server.pid]) - used
            print(json.dumps(told), flush=True)
        taken = []
        for _ in range(task["probes"]):
            begun = time.perf_counter()
            await run_all(chain, 3, 1)
            taken.append((time.perf_counter() - begun) * 1000)
        print(json.dumps({"latencies_ms": taken}), flush=True)
    finally:
        server.terminate()
        server.wait(30)


def cpu_of(pids: list[int]) -> float:
    """CPU seconds of these processes and of this one."""
    used = time.process_time()
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        used += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return used


def flow_of_tasks():
    # Imported late: Prefect reads its settings from the environment when it is imported.
    from prefect import flow, task

    @task
    async def noop(number: int) -> dict[str, str]:
        return {"payload": KILOBYTE}

    @flow
    async def chain(steps: int, payload: str) -> None:
        for number in range(steps):
            await noop(number)

    return chain


async def answering(url: str) -> None:
    for _ in range(600):
        try:
            await asyncio.to_thread(urllib.request.urlopen, url, timeout=2)
            return
        except (urllib.error.URLError, OSError):
            await asyncio.sleep(0.1)
    raise SystemExit("the Prefect server did not answer within a minute")


async def run_all(chain, steps: int, runs: int) -> None:
    left = iter(range(runs))

    async def caller() -> None:
        for _ in left:
            await chain(steps, KILOBYTE)

    await asyncio.gather(*(caller() for _ in range(min(CALLERS, runs))))


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[-1])))
