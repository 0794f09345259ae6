"""The torture process: a worker, a client that starts runs, or a small job on a faulty disk.

It is the production engine with three additions: a transactor that counts, a store that may end the process at a
labelled point, and a log whose errors are findings. The fork server starts it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import msgspec

from stepkeep.kernel.errors import StoreError
from stepkeep.kernel.machine.states import RUN_TERMINAL
from stepkeep.kernel.people.authority import Caller
from stepkeep.kernel.plan import Plan
from stepkeep.operations.definitions.publish import publish
from stepkeep.operations.pipeline.start import Starter, StartRequest
from stepkeep.store.connect import connect
from stepkeep.store.protocol import Store
from stepkeep.worker.loop import Worker
from stepkeep.worker.settings import Settings
from stepkeep_lab.torture.disk import Disk, DiskPoint
from stepkeep_lab.torture.late_worker import LateTransactor
from stepkeep_lab.torture.ledger import Acks, Tally
from stepkeep_lab.torture.points import Doing, Point, Trap, WatchedStore, doing
from stepkeep_lab.torture.workflows import handlers, kinds

TENANT = "default"
ACTOR = "torture"


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """What a process is to do. `folder` holds the ledger, the tally and the log; `keys` are starts to make."""

    url: str
    folder: str
    keys: tuple[str, ...] = ()
    work: bool = True
    until_done: bool = False
    concurrency: int = 16
    lease: str = "1s"
    sweep: float = 0.5
    grace: float = 30.0
    zombie: bool = False
    point: Point | None = None
    disk: DiskPoint | None = None
    skew: float = 0.0


class Findings(logging.Handler):
    """Errors in the log of a process are findings; its warnings are kept."""

    def __init__(self, folder: Path, tally: Tally) -> None:
        super().__init__(logging.WARNING)
        self._path, self._tally = folder / "errors.log", tally
        self.setFormatter(logging.Formatter("%(process)d %(name)s %(levelname)s %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR:
            self._tally.add("errors logged")
            with self._path.open("a", encoding="utf-8") as file:
                file.write(self.format(record) + "\n")
        else:
            self._tally.add("warnings logged")


def run(task: Task) -> int:
    """Do the task; the exit status is 0 when it came to its end."""
    folder = Path(task.folder)
    tally = Tally(folder / "tally")
    logging.getLogger().handlers[:] = [Findings(folder, tally)]
    if task.skew:
        _skew(task.skew)
    disk = None if task.disk is None else Disk(task.disk, tally)
    asyncio.run(_live(task, folder, tally))
    if disk is not None:
        tally.add("disk calls", disk.calls)
    return 0


def _skew(seconds: float) -> None:
    """Let this process live in another hour; how fast time passes stays true."""
    true, true_ns = time.time, time.time_ns
    time.time = lambda: true() + seconds
    time.time_ns = lambda: true_ns() + int(seconds * 1_000_000_000)


async def _live(task: Task, folder: Path, tally: Tally) -> None:
    trap = None if task.point is None else Trap(task.point, tally)
    if trap is not None:
        trap.watch_commits()
    async with opened(task.url, tally, trap, zombie=task.zombie) as transactor:
        if task.keys:
            await _start(transactor, task, Acks(folder / "acks"))
        if task.work:
            await _work(transactor, task, folder)


@asynccontextmanager
async def opened(
    url: str, tally: Tally, trap: Trap | None = None, *, zombie: bool = False
) -> AsyncIterator[LateTransactor]:
    """A database, opened as any process opens it, with everything counted."""
    store = connect(url)
    tries = 0
    while True:
        try:
            await store.open()
            await store.migrate()
            break
        except StoreError:
            # A process that starts during an outage waits for its end, as the command line's worker does.
            await store.close()
            tries += 1
            if tries > 200:
                raise
            await asyncio.sleep(0.1)
    try:
        yield LateTransactor(cast(Store, WatchedStore(store, tally, trap)), tally, zombie=zombie)
    finally:
        await store.close()


async def _start(transactor: LateTransactor, task: Task, acks: Acks) -> None:
    definition = kinds(task.lease)["chain"].definition
    plan = await publish(transactor, definition, caller=Caller(TENANT, ACTOR))
    starter = Starter(transactor)
    for key in task.keys:
        doing.set(Doing.START)
        acks.add(key, (await starter.start(request_for(plan, key))).run_id)


def request_for(plan: Plan, key: str, given: bytes = b"{}") -> StartRequest:
    return StartRequest(plan=plan, caller=Caller(TENANT, ACTOR), input=given, idempotency_key=key)


async def _work(transactor: LateTransactor, task: Task, folder: Path) -> None:
    settings = Settings(
        concurrency=task.concurrency, sweep_seconds=task.sweep, grace_seconds=task.grace, heartbeat_seconds=2.0
    )
    worker = Worker(transactor, handlers(folder), app="torture", settings=settings)
    if not task.until_done:
        await worker.serve(signals=True)
        return

    async def done() -> bool:
        counts = await transactor.store.count_runs(TENANT)
        return all(state in RUN_TERMINAL for state in counts)

    await worker.run_until(done)
