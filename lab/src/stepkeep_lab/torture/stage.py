"""The environment of one scenario: a fresh database, processes, load, and a record of the faults.

A scenario injects its faults and returns; `reckon` then lets all runs finish without faults and audits everything. A
scenario that cannot show that its fault happened proves nothing, and fails.
"""

from __future__ import annotations

import asyncio
import math
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from stepkeep.kernel.errors import StoreError
from stepkeep.kernel.machine.states import RUN_TERMINAL
from stepkeep.kernel.people.authority import Caller
from stepkeep.operations.definitions.publish import publish
from stepkeep_lab.postgres import PostgresServer
from stepkeep_lab.torture.audit import Audit, Expected
from stepkeep_lab.torture.fleet import Fleet, Member
from stepkeep_lab.torture.late_worker import LateTransactor
from stepkeep_lab.torture.ledger import Acks, Ledger, Tally
from stepkeep_lab.torture.load import Load
from stepkeep_lab.torture.process import ACTOR, TENANT, Task, opened
from stepkeep_lab.torture.workflows import kinds

RECOVERY_SECONDS = 90.0
STRIKE_SECONDS = 120.0
"""How long a scenario waits for a fault that must strike, on a machine that is slow or busy."""

KINDS = ("chain", "fan", "flaky", "rollback")
"""The kinds of runs in a steady mix."""


class NotRun(Exception):
    """The scenario cannot be run here; the message says why."""


class Stage:
    """Everything a scenario needs. `url` is where processes and load go, `direct` is the database itself.

    A `thorough` campaign takes its time: a scenario goes on until it has struck everywhere, or often enough.
    """

    def __init__(
        self,
        *,
        url: str,
        folder: Path,
        crew: Fleet,
        rng: random.Random,
        seconds: float,
        server: PostgresServer | None,
        lease: str = "1s",
        thorough: bool = False,
    ) -> None:
        self.url = self.direct = url
        self.folder, self.fleet, self.rng, self.seconds, self.server = folder, crew, rng, seconds, server
        self.lease, self.thorough = lease, thorough
        self._began = time.monotonic()
        self.kinds = kinds(lease)
        self.tally = Tally(folder / "tally")
        self.ledger = Ledger(folder / "ledger")
        self.acks = Acks(folder / "acks")
        self.counts: Counter[str] = Counter()
        self.measures: dict[str, float] = {}
        self.findings: list[str] = []
        self.extra_keys: set[str] = set()
        self._loads: list[Load] = []
        self._reckoned = False
        self._needed: dict[str, int] = {}

    async def prepare(self) -> None:
        """Publish every workflow, so that workers know their queues from the start."""
        async with self.looking() as transactor:
            for kind in self.kinds.values():
                await publish(transactor, kind.definition, caller=Caller(TENANT, ACTOR))

    # -- processes and load ------------------------------------------------------------------------------------------
    def task(self, **options: Any) -> Task:
        given: dict[str, Any] = {"url": self.url, "folder": str(self.folder), "lease": self.lease, **options}
        return Task(**given)

    async def worker(self, **options: Any) -> Member:
        return await self.fleet.launch(self.task(**options))

    async def workers(self, count: int, **options: Any) -> list[Member]:
        return [await self.worker(**options) for _ in range(count)]

    async def busiest(self, run_ids: Sequence[str]) -> Member:
        """The worker that began most of these slow runs: it holds their slow steps by now."""
        keys = {f"{run_id}:start" for run_id in run_ids}
        begun: list[str] = []
        async with asyncio.timeout(RECOVERY_SECONDS):
            while len(begun) < len(keys):
                await asyncio.sleep(0.02)
                begun = [effect.pid for effect in self.ledger.read() if effect.key in keys]
        await asyncio.sleep(0.1)
        living = {str(member.pid): member for member in self.fleet.living}
        return living[max(living, key=begun.count)]

    @asynccontextmanager
    async def loading(self) -> AsyncIterator[Load]:
        """A load on the stage's address."""
        async with opened(self.url, self.tally) as transactor:
            rng = random.Random(self.rng.random())  # noqa: S311 - repeatable on purpose
            load = Load(transactor, self.kinds, self.tally, rng, f"load-{len(self._loads)}")
            await load.prepare()
            self._loads.append(load)
            yield load

    @asynccontextmanager
    async def under_load(self, rate: float = 30.0, which: Sequence[str] = KINDS) -> AsyncIterator[Load]:
        """A steady mix of runs for as long as the block lasts."""
        async with self.loading() as load:
            enough = asyncio.Event()
            going = asyncio.create_task(load.keep_up(enough, rate=rate, kinds=which))
            try:
                yield load
            finally:
                enough.set()
                await going

    @asynccontextmanager
    async def looking(self) -> AsyncIterator[LateTransactor]:
        """The database itself, past whatever stands between."""
        async with opened(self.direct, Tally(self.folder / "unused")) as transactor:
            yield transactor

    @property
    def acknowledged(self) -> dict[str, tuple[str, str]]:
        return {key: run for load in self._loads for key, run in load.acknowledged.items()}

    # -- how long ----------------------------------------------------------------------------------------------------
    def begin(self) -> None:
        """From here on the scenario's time counts."""
        self._began = time.monotonic()

    def goes_on(self, *, reached: bool = True, share: float = 1.0) -> bool:
        """Whether time is left, a needed fault is to strike yet, or a thorough campaign has not `reached` its goal."""
        took = time.monotonic() - self._began
        if took < share * self.seconds or (self.thorough and not reached):
            return True
        return took < STRIKE_SECONDS and any(self._struck(what) < least for what, least in self._needed.items())

    # -- the account -------------------------------------------------------------------------------------------------
    def must(self, holds: bool, said: str) -> None:
        if not holds:
            self.findings.append(said)

    def needs(self, what: str, at_least: int = 1) -> None:
        """`goes_on` waits for this fault, and `reckon` asks whether it struck."""
        self._needed[what] = at_least

    def misses(self, what: str) -> bool:
        """Whether this fault is needed and has not struck yet."""
        return self._struck(what) < self._needed.get(what, 0)

    def must_have_hit(self, what: str, at_least: int = 1) -> None:
        """The vacuity guard: a fault that did not strike proves nothing."""
        found = self._struck(what)
        self.must(found >= at_least, f"the fault did not strike: {what} {found} times, at least {at_least} are needed")

    def _struck(self, what: str) -> int:
        return self.counts[what] + self.tally.read()[what]

    def measure(self, what: str, seconds: Sequence[float]) -> float:
        """Note the middle, the 99th percentile and the worst of some latencies; returns the 99th percentile."""
        ordered = sorted(seconds)
        self.counts[f"{what} measured"] = len(ordered)
        if not ordered:
            return math.inf
        p99 = ordered[min(len(ordered) - 1, math.ceil(0.99 * len(ordered)) - 1)]
        self.measures[f"{what} p50 s"] = round(ordered[len(ordered) // 2], 3)
        self.measures[f"{what} p99 s"] = round(p99, 3)
        self.measures[f"{what} max s"] = round(ordered[-1], 3)
        return p99

    # -- the end -----------------------------------------------------------------------------------------------------
    async def settle(self, transactor: LateTransactor, patience: float = RECOVERY_SECONDS) -> bool:
        """Wait until every run has ended, as long as some do; says whether that came about."""
        until, left = time.monotonic() + patience, math.inf
        while time.monotonic() < until:
            with suppress(StoreError):
                counts = await transactor.store.count_runs(TENANT)
                living = sum(count for state, count in counts.items() if state not in RUN_TERMINAL)
                if not living:
                    return True
                if living < left:
                    until, left = time.monotonic() + patience, living
            await asyncio.sleep(0.1)
        return False

    async def registered(self, transactor: LateTransactor, members: Sequence[Member]) -> None:
        """Wait until the database knows these workers: before that, they have not begun to heed signals."""
        wanted = {str(member.pid) for member in members}
        async with asyncio.timeout(RECOVERY_SECONDS):
            while wanted:
                await asyncio.sleep(0.05)
                wanted -= {row.id.split(":")[2] for row in await transactor.store.list_workers(TENANT)}

    async def reckon(self) -> None:
        """Faults are over: let good workers finish, end them in good order, and audit everything, once."""
        if self._reckoned:
            return
        self._reckoned = True
        for what, at_least in self._needed.items():
            self.must_have_hit(what, at_least)
        await self.fleet.end_all()
        began = time.monotonic()
        self.url = self.direct
        finishers = await self.workers(2)
        async with self.looking() as transactor:
            await self.registered(transactor, finishers)
            self.must(await self.settle(transactor), "not every run ended after the faults had stopped")
            self.measures["recovery s"] = round(time.monotonic() - began, 2)
            for finisher in finishers:
                status = await self.fleet.end(finisher, signal.SIGTERM)
                self.must(status == 0, f"a worker that was asked to stop ended with status {status}")
            await self._audit(transactor)
        self.counts.update(self.tally.read())
        self.must(not self.counts["late writes accepted"], "a late write was accepted")
        errors = self.folder / "errors.log"
        if errors.exists():
            self.findings.append(f"a process logged an error: {errors.read_text(encoding='utf-8')[:2000]}")

    async def _audit(self, transactor: LateTransactor) -> None:
        expected = {
            run_id: Expected(run_id, self.kinds[kind].ending, self.kinds[kind].effects)
            for run_id, kind in self.acknowledged.values()
        }
        for key, run_ids in self.acks.read().items():
            self.must(len(run_ids) == 1, f"the key {key} made {len(run_ids)} runs")
            self.extra_keys.add(key)
            for run_id in run_ids:
                expected[run_id] = Expected(run_id, self.kinds["chain"].ending, self.kinds["chain"].effects)
        self.counts["acknowledged"] += len(expected)
        audit = Audit(transactor, self.ledger.read())
        await audit.run(expected, keys=len(self.acknowledged) + len(self.extra_keys))
        self.counts.update(audit.counts)
        self.findings += audit.findings
        if self.direct.startswith("sqlite"):
            import apsw

            connection = apsw.Connection(self.direct.removeprefix("sqlite:///"))
            said = connection.execute("pragma integrity_check").get
            connection.close()
            self.must(said == "ok", f"the file is damaged: {said}")


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """What one scenario on one database came to."""

    scenario: str
    store: str
    verdict: str
    seconds: float
    counts: dict[str, int] = {}
    measures: dict[str, float] = {}
    findings: tuple[str, ...] = ()
    why: str = ""
