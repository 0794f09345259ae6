"""Runs started and awaited through HTTP by many clients, and what one start costs beside a bare FastAPI insert.

    python benchmarks/http_starts.py [CLIENTS] [RUNS]

Starts `stepkeep dev` on a new SQLite file and a FastAPI application that inserts a row into another SQLite
file (WAL, synchronous=FULL). CLIENTS clients start three-step runs and await their results; then one client measures
single starts and single inserts, in turns. It prints runs per second and both medians.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx2

APP = """
import stepkeep as sk

@sk.step("noop")
async def noop() -> None:
    return None
"""

FLOW = "workflow: three\ntimeout: 1h\nsteps:\n" + "".join(
    f"  - {{name: s{no}, uses: noop{'' if no == 0 else f', depends_on: [s{no - 1}]'}}}\n" for no in range(3)
)

BARE = """
import sqlite3, sys, threading, uuid
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

class New(BaseModel):
    workflow: str

app, lock = FastAPI(), threading.Lock()
db = sqlite3.connect(sys.argv[1], check_same_thread=False)
db.executescript("pragma journal_mode=wal; pragma synchronous=full")
db.executescript("create table runs (id text primary key, workflow text)")

@app.post("/runs", status_code=201)
def create(body: New) -> dict[str, str]:
    with lock:
        made = str(uuid.uuid4())
        db.execute("insert into runs values (?, ?)", (made, body.workflow))
        db.commit()
    return {"run_id": made}

uvicorn.run(app, port=int(sys.argv[2]), log_level="error")
"""


def service(folder: str) -> tuple[subprocess.Popen[str], str, str]:
    Path(folder, "app.py").write_text(APP)
    command = [sys.executable, "-m", "stepkeep", "dev", "--app", "app.py", "--port", "0", "--json"]
    child = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    text = ""
    while not text.endswith("\n}\n"):
        line = child.stdout.readline()
        assert line, "stepkeep dev ended"
        text += line
    said = json.loads(text)["service"]
    return child, said["address"], said["key"]


async def throughput(client: httpx2.AsyncClient, clients: int, runs: int) -> float:
    left = iter(range(runs))

    async def one() -> None:
        for _ in left:
            run = (await client.post("/runs", json={"workflow": "three"})).json()["run_id"]
            done = (await client.get(f"/runs/{run}/result", params={"wait": 60})).json()
            assert "succeeded" in json.dumps(done), done

    began = time.monotonic()
    await asyncio.gather(*(one() for _ in range(clients)))
    return runs / (time.monotonic() - began)


async def start(client: httpx2.AsyncClient) -> float:
    began = time.perf_counter()
    assert (await client.post("/runs", json={"workflow": "three"})).status_code == 201
    return (time.perf_counter() - began) * 1000


async def main(clients: int, runs: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        child, address, key = service(folder)
        bare_file, port = Path(folder, "bare.py"), 20_000 + os.getpid() % 20_000
        bare_file.write_text(BARE)
        bare = subprocess.Popen([sys.executable, str(bare_file), str(Path(folder, "bare.db")), str(port)])
        headers, limits = {"Authorization": f"Bearer {key}"}, httpx2.Limits(max_connections=clients)
        try:
            async with (
                httpx2.AsyncClient(base_url=address, headers=headers, timeout=120, limits=limits) as ours,
                httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=120) as other,
            ):
                yaml = {"Content-Type": "application/yaml"}
                assert (await ours.post("/workflows", content=FLOW, headers=yaml)).status_code == 201
                await throughput(ours, clients, clients)
                rate = await throughput(ours, clients, runs)
                for _ in range(100):
                    try:
                        await start(other)
                        break
                    except httpx2.TransportError:
                        await asyncio.sleep(0.1)
                pairs = [(await start(ours), await start(other)) for _ in range(100)]
        finally:
            for process in (child, bare):
                process.terminate()
                process.wait()
    mine, theirs = (statistics.median(column) for column in zip(*pairs, strict=True))
    print(f"{clients} clients: {rate:.0f} three-step runs a second, started and awaited through HTTP")
    print(f"p50 of a start: {mine:.1f} ms; of a bare FastAPI insert: {theirs:.1f} ms (100 of each, in turns)")


if __name__ == "__main__":
    asyncio.run(main(*(int(one) for one in [*sys.argv[1:], "64", "1000"][:2])))
