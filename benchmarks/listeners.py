"""What listeners of a service cost: memory and CPU of the server for N open streams and M events.

    python benchmarks/listeners.py [LISTENERS] [RUNS]

Starts `stepkeep serve` on a new SQLite file, opens LISTENERS connections to `GET /stream` here, starts RUNS
runs, and waits until each has every entry in order. It prints the memory and the CPU time of the server.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx2

import stepkeep as sk
from stepkeep.engine import AsyncEngine
from stepkeep.operations.access import Scope


def usage(pid: int) -> tuple[float, float]:
    """Resident megabytes and CPU seconds of a process."""
    ticks = os.sysconf("SC_CLK_TCK")
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6, (int(fields[11]) + int(fields[12])) / ticks


async def prepare(url: str) -> str:
    flow = sk.Workflow("hello")
    flow.step("greet", "handler.of.nobody")
    async with AsyncEngine(url, actor="bench") as engine:
        await engine.publish(flow)
        await engine.users.create("bench")
        return str((await engine.keys.create("bench", scopes=[scope.value for scope in Scope])).secret)


async def listen(host: str, port: int, key: str, runs: int, ready: asyncio.Semaphore) -> list[tuple[str, int]]:
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(f"GET /stream HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n\r\n".encode())
    got: list[tuple[str, int]] = []
    while len(got) < runs:
        line = await reader.readline()
        assert line, "the stream ended"
        if line.startswith(b"event: begin"):
            ready.release()
        elif line.startswith(b"data: ") and b'"seq"' in line:
            told = json.loads(line[6:])
            got.append((told["run_id"], told["seq"]))
    writer.close()
    return got


async def main(listeners: int, runs: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/s.db"
        key = await prepare(url)
        command = [sys.executable, "-m", "stepkeep", "serve", "--db", url, "--port", "0", "--json"]
        server = subprocess.Popen([*command, "--log-level", "error"], cwd=folder, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            text = ""
            while not text.endswith("\n}\n"):
                text += server.stdout.readline()
            address = json.loads(text)["service"]["address"]
            host, port = address.removeprefix("http://").split(":")
            idle = usage(server.pid)
            ready = asyncio.Semaphore(0)
            tasks = [asyncio.create_task(listen(host, int(port), key, runs, ready)) for _ in range(listeners)]
            for _ in range(listeners):
                await ready.acquire()
            opened = usage(server.pid)
            began = time.monotonic()
            async with httpx2.AsyncClient(base_url=address, headers={"Authorization": f"Bearer {key}"}) as client:
                started = [
                    (await client.post("/runs", json={"workflow": "hello"})).json()["run_id"] for _ in range(runs)
                ]
            got = await asyncio.gather(*tasks)
            took, after = time.monotonic() - began, usage(server.pid)
        finally:
            server.terminate()
            server.wait()
    assert all(one == [(run, 1) for run in started] for one in got), "a listener lacks an event, or has it out of order"
    told = listeners * runs
    print(f"{listeners} listeners, {runs} runs: all {told} events arrived, in order, in {took:.1f} s")
    print(f"memory: {idle[0]:.0f} MB without, {opened[0]:.0f} MB with listeners, {after[0]:.0f} MB at the end")
    print(
        f"CPU of the server: {after[1] - opened[1]:.2f} s, {(after[1] - opened[1]) / told * 1e6:.0f} µs for each event"
    )


if __name__ == "__main__":
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    asyncio.run(main(*(int(one) for one in [*sys.argv[1:], "1000", "50"][:2])))
