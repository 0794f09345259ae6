# /// script
# dependencies = ["restate-sdk", "hypercorn", "aiohttp"]
#
# [tool.stepkeep-bench]
# title = "Restate"
# package = "restate-sdk"
# npm = ["@restatedev/restate-server"]
# delivers = true
# serves = true
# stores = ["own"]
# runs = { 1 = 1500, 3 = 1000, 10 = 500 }
# ///
"""Restate: its server from the npm package, Python handlers under hypercorn in a process of their own.

Told what to do by one JSON argument, answers with JSON lines; `stepkeep bench --peers` runs it in an environment of its
own. Each call of this client goes through the ingress and waits for its answer, 64 at once.
"""

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import aiohttp
import restate

KILOBYTE = "x" * 1000
CALLERS = 64

bench = restate.Service("bench")


async def noop() -> dict[str, str]:
    return {"payload": KILOBYTE}


@bench.handler()
async def chain(ctx: restate.Context, given: dict) -> None:
    for number in range(given["steps"]):
        await ctx.run_typed(f"step-{number}", noop)


app = restate.app(services=[bench])


def free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()


async def main(task: dict) -> None:
    ingress, admin, node, handlers = free_ports(4)
    server = next(Path(task["npm"]).glob("node_modules/@restatedev/restate-server-*/bin/restate-server"))
    print(json.dumps({"versions": {"restate-server": version_of(server)}}), flush=True)
    settings = {
        "RESTATE_BASE_DIR": f"{task['folder']}/restate",
        "RESTATE_BIND_IP": "127.0.0.1",
        "RESTATE_LISTEN_MODE": "tcp",
        "RESTATE_BIND_PORT": str(node),
        "RESTATE_INGRESS__BIND_PORT": str(ingress),
        "RESTATE_ADMIN__BIND_PORT": str(admin),
        "RESTATE_LOG_FILTER": "error",
        "RESTATE_DISABLE_TELEMETRY": "true",
    }
    serve = [sys.executable, "-m", "hypercorn", f"{Path(__file__).stem}:app", "--bind", f"127.0.0.1:{handlers}"]
    with open(f"{task['folder']}/restate.log", "wb") as log:
        started = [
            subprocess.Popen([server, "--no-logo"], env={**os.environ, **settings}, stdout=log, stderr=log),
            subprocess.Popen(serve, cwd=Path(__file__).parent, stdout=log, stderr=log),
        ]
    try:
        async with aiohttp.ClientSession() as session:
            await register(session, admin, handlers)
            await run_all(ingress, 1, 20)
            for steps, runs in task["works"]:
                begun, used = time.perf_counter(), cpu_of([one.pid for one in started])
                await run_all(ingress, steps, runs)
                told = {"steps": steps, "runs": runs, "seconds": time.perf_counter() - begun}
                told["cpu_seconds"] = cpu_of([one.pid for one in started]) - used
                print(json.dumps(told), flush=True)
            taken = []
            for _ in range(task["probes"]):
                await asyncio.sleep(0.02)
                begun = time.perf_counter()
                await run_all(ingress, 3, 1)
                taken.append((time.perf_counter() - begun) * 1000)
            print(json.dumps({"latencies_ms": taken}), flush=True)
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait(30)


def cpu_of(pids: list[int]) -> float:
    """CPU seconds of these processes and of this one."""
    used = time.process_time()
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        used += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return used


def version_of(server: Path) -> str:
    said = subprocess.run([server, "--version"], capture_output=True, text=True, check=True).stdout
    return said.split()[1]


async def register(session: aiohttp.ClientSession, admin: int, handlers: int) -> None:
    """Tell the server where the handlers are, as soon as both are up."""
    for _ in range(300):
        try:
            body = {"uri": f"http://127.0.0.1:{handlers}", "force": True}
            async with session.post(f"http://127.0.0.1:{admin}/deployments", json=body) as answer:
                if answer.status < 300:
                    return
        except aiohttp.ClientError:
            pass
        await asyncio.sleep(0.1)
    raise SystemExit("the Restate server did not accept the handlers within half a minute")


async def run_all(ingress: int, steps: int, runs: int) -> None:
    left = iter(range(runs))
    body = {"steps": steps, "payload": KILOBYTE}

    async def caller() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", ingress)
        for _ in left:
            await call(reader, writer, ingress, json.dumps(body, separators=(",", ":")).encode())
        writer.close()

    await asyncio.gather(*(caller() for _ in range(min(CALLERS, runs))))


async def call(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, ingress: int, sent: bytes) -> None:
    """One request over a kept connection, as the client of stepkeep's own bench makes it: a library would cost more."""
    said = f"POST /bench/chain HTTP/1.1\r\nHost: 127.0.0.1:{ingress}\r\nContent-Type: application/json\r\n"
    writer.write(f"{said}Content-Length: {len(sent)}\r\n\r\n".encode() + sent)
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    if int(head[9:12]) != 200:
        raise SystemExit(f"a call failed with status {head[9:12].decode()}")
    _, has_length, rest = head.partition(b"\r\ncontent-length:")
    if has_length:
        await reader.readexactly(int(rest.partition(b"\r\n")[0]))
        return
    while size := int(await reader.readline(), 16):
        await reader.readexactly(size + 2)
    await reader.readline()


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[-1])))
