"""Provides fresh databases and worker processes for a measurement.

Servers are durable (`fsync`, `synchronous_commit`, SQLite's `synchronous=FULL`). Everything that is started here ends
with its block.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from stepkeep.engine import AsyncEngine
from stepkeep.kernel.errors import InvalidInput, StepkeepError
from stepkeep_lab.bench import handlers
from stepkeep_lab.postgres import PostgresServer, PostgresUnavailable

STORES = ("postgres", "sqlite")
PATIENCE = 60.0


class NotMeasured(StepkeepError):
    """A figure that cannot be had here, with the reason."""


class Ground(msgspec.Struct, frozen=True, kw_only=True):
    """A fresh database of one kind. `concurrency` is what workers are told; None leaves them their default. `worker`
    is the program that they run."""

    store: str
    url: str
    folder: Path
    server: PostgresServer | None = None
    concurrency: int | None = None
    worker: str = "stepkeep.cli.main"

    @property
    def server_pid(self) -> int | None:
        return None if self.server is None else self.server.pid


@contextmanager
def own_server(stores: Sequence[str]) -> Iterator[PostgresServer | None]:
    """A PostgreSQL server for as long as the block runs, if one of these stores needs it."""
    if unknown := [store for store in stores if store not in STORES]:
        raise InvalidInput(f"there is no database {unknown[0]!r}. Choose from: {', '.join(STORES)}.")
    if "postgres" not in stores:
        yield None
        return
    try:
        server = PostgresServer().start()
    except PostgresUnavailable as problem:
        raise NotMeasured(str(problem)) from problem
    with server:
        yield server


@contextmanager
def fresh_ground(store: str, server: PostgresServer | None, concurrency: int | None = None) -> Iterator[Ground]:
    """An empty database that lives as long as the block."""
    with tempfile.TemporaryDirectory(prefix="stepkeep-bench-") as folder:
        if store == "sqlite":
            url = f"sqlite:///{folder}/bench.db"
            yield Ground(store=store, url=url, folder=Path(folder), concurrency=concurrency)
        elif server is None:
            raise NotMeasured("there is no PostgreSQL server to measure on")
        else:
            with server.fresh_database() as url:
                yield Ground(store=store, url=url, folder=Path(folder), server=server, concurrency=concurrency)


@asynccontextmanager
async def workers(ground: Ground, engine: AsyncEngine, count: int = 1) -> AsyncIterator[list[int]]:
    """Worker processes that have registered; yields their process ids. Publish first: they read the queues once."""
    command = [sys.executable, "-m", ground.worker, "worker", "--app", handlers.__name__, "--db", ground.url]
    if ground.concurrency is not None:
        command += ["--concurrency", str(ground.concurrency)]
    log = ground.folder / "workers.log"
    with log.open("ab") as told:
        started = [
            subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=told, stderr=told)  # noqa: ASYNC220 - once
            for _ in range(count)
        ]
    try:
        await _registered(engine, started, log)
        yield [process.pid for process in started]
    finally:
        await asyncio.to_thread(end, started)
    if broken := [process.returncode for process in started if process.returncode != 0]:
        raise NotMeasured(f"a worker ended with status {broken[0]}: {last_words(log)}")


async def _registered(engine: AsyncEngine, started: Sequence[subprocess.Popen[bytes]], log: Path) -> None:
    until = time.monotonic() + PATIENCE
    while len(await engine.store.list_workers(engine.tenant, live_only=True)) < len(started):
        if any(process.poll() is not None for process in started):
            raise NotMeasured(f"a worker did not start: {last_words(log)}")
        if time.monotonic() > until:
            raise NotMeasured(f"the workers were not ready within {PATIENCE:g} s: {last_words(log)}")
        await asyncio.sleep(0.05)


def end(started: Sequence[subprocess.Popen[Any]]) -> None:
    """Ask processes to stop, and wait until they have ended."""
    for process in started:
        process.send_signal(signal.SIGTERM)
    for process in started:
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def last_words(log: Path) -> str:
    """The last lines of a log."""
    return " / ".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-5:])
