"""Gauges that only the database knows: live runs, queues, workers, outbox. Read at most every `FRESH_SECONDS`.

Each count reads a bounded part of an index. Scrapes that arrive together share one reading, and one that fails or
takes too long leaves the last values with their age. It changes nothing. `exposition` asks for it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable

from stepkeep.kernel.errors import StepkeepError
from stepkeep.metrics.families import Family, gauge
from stepkeep.operations.logs.retention import first_id_at
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.operations.runs import counting
from stepkeep.operations.runs.diagnosis import Staff, read_staff
from stepkeep.operations.runs.staffing import title
from stepkeep.operations.runs.status import LATE, MOST_STUCK
from stepkeep.store.listing import LIVE as LIVE_STATES
from stepkeep.store.records import Backlog

log = logging.getLogger("stepkeep.metrics")

FRESH_SECONDS = 10.0
READ_SECONDS = 5.0
"""How long a reading may take in all."""
MOST_TENANTS = 50
MOST_QUEUES = 100
MOST_SINKS = 50
"""The most labels of each kind for one tenant. The rest is added up under `OTHER`."""
OTHER = "(other)"
SECOND = 1_000_000
LIVE = tuple(sorted(str(state) for state in LIVE_STATES))

Rows = dict[str, dict[tuple[str, ...], float]]


class StoreGauges:
    """The gauges of some tenants: of all that exist, or of the one given."""

    def __init__(
        self, transactor: Transactor, tenant: str | None = None, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._transactor, self._tenant, self._monotonic = transactor, tenant, monotonic
        self._rows: Rows = {}
        self._read_at: float | None = None
        self._tried_at = float("-inf")
        self._is_up, self._took = False, 0.0
        self._reading = asyncio.Lock()

    async def families(self) -> list[Family]:
        """The gauges, at most `FRESH_SECONDS` old while the database answers."""
        async with self._reading:
            if self._monotonic() - self._tried_at >= FRESH_SECONDS:
                await self._read()
        return [*(gauge(name, values) for name, values in self._rows.items()), *self._about()]

    def _about(self) -> list[Family]:
        told: list[Family] = [
            gauge("stepkeep_store_up", {(): float(self._is_up)}),
            gauge("stepkeep_store_read_seconds", {(): self._took}),
        ]
        if self._read_at is not None:
            told.append(gauge("stepkeep_store_age_seconds", {(): self._monotonic() - self._read_at}))
        return told

    async def _read(self) -> None:
        began = self._tried_at = self._monotonic()
        try:
            async with asyncio.timeout(READ_SECONDS):
                self._rows = await self._collect()
        except (StepkeepError, TimeoutError) as problem:
            self._is_up = False
            log.warning("the gauges of the database cannot be read: %s", str(problem) or "it took too long")
        else:
            self._is_up, self._read_at = True, self._monotonic()
        self._took = self._monotonic() - began

    async def _collect(self) -> Rows:
        store, rows = self._transactor.store, Rows()
        names, unmeasured = await self._tenants()
        for tenant in names:
            for read in (self._runs, self._queues, self._outbox):
                await _merge(rows, read(tenant))
        # One store, unless its role sees one tenant at a time.
        views = list(dict.fromkeys(map(store.for_tenant, names)))
        stuck = [run for view in views for run in await view.stuck_runs(MOST_STUCK)]
        mine = [owner for owner, _ in stuck if self._tenant in (None, owner)]
        rows["stepkeep_stuck_runs"] = {(): float(len(mine))}
        rows["stepkeep_tenants_unmeasured"] = {(): float(unmeasured)}
        rows["stepkeep_store_bytes"] = {(): float((await store.status()).size_bytes)}
        return rows

    async def _tenants(self) -> tuple[list[str], int]:
        if self._tenant is not None:
            return [self._tenant], 0
        known = {"default", *(await self._transactor.store.people.list_tenant_names())}
        names = sorted(known)
        return names[:MOST_TENANTS], max(0, len(names) - MOST_TENANTS)

    async def _runs(self, tenant: str) -> Rows:
        store = self._transactor.store.for_tenant(tenant)
        now = await store.now()
        counts = await counting.count_runs(store, tenant, after=first_id_at(now), late_by=now - LATE)
        waiting = await store.slots.count_waiting(tenant, counting.MOST)
        rough = {
            "stepkeep_runs": counts.live.is_estimate or not counts.live.is_complete,
            "stepkeep_late_timers": not counts.late_is_complete,
            "stepkeep_runs_waiting_for_slot": waiting >= counting.MOST,
        }
        return {
            "stepkeep_runs": {(tenant, state): float(counts.live.parts.get(state, 0)) for state in LIVE},
            "stepkeep_late_timers": {(tenant,): float(counts.late)},
            "stepkeep_runs_waiting_for_slot": {(tenant,): float(waiting)},
            "stepkeep_count_is_rough": {(tenant, name): float(is_rough) for name, is_rough in rough.items()},
        }

    async def _queues(self, tenant: str) -> Rows:
        store = self._transactor.store.for_tenant(tenant)
        staff = await read_staff(store, tenant)
        backlog = await store.read_backlog(sorted(staff.specs), counting.MOST)
        states = Counter(
            "silent" if one.is_silent(staff.now) else str(one.row.state)
            for one in staff.workers
            if one.row.state != "shutdown"
        )
        depth, oldest = queue_rows(tenant, backlog, staff)
        return {
            "stepkeep_queue_depth": depth,
            "stepkeep_queue_oldest_seconds": oldest,
            "stepkeep_workers": {(tenant, state): float(count) for state, count in states.items()},
            "stepkeep_count_is_rough": {
                (tenant, "stepkeep_queue_depth"): float(any(one.depth >= counting.MOST for one in backlog))
            },
        }

    async def _outbox(self, tenant: str) -> Rows:
        store, rows = self._transactor.store.for_tenant(tenant), Rows()
        now = await store.now()
        for place, lag in enumerate(await store.deliveries.count_cursors(tenant)):
            label = (tenant, lag.sink if place < MOST_SINKS else OTHER)
            late = 0.0 if lag.oldest_at is None else max(0, now - lag.oldest_at) / SECOND
            _add(rows, "stepkeep_outbox_waiting", label, lag.waiting)
            _add(rows, "stepkeep_outbox_dead", label, lag.dead)
            seen = rows.setdefault("stepkeep_outbox_lag_seconds", {})
            seen[label] = max(seen.get(label, 0.0), late)
        return rows


def queue_rows(
    tenant: str, backlog: list[Backlog], staff: Staff
) -> tuple[dict[tuple[str, ...], float], dict[tuple[str, ...], float]]:
    """Depth and oldest age of each queue with ready steps, deepest first up to the bound, the rest together."""
    depth: dict[tuple[str, ...], float] = defaultdict(float)
    oldest: dict[tuple[str, ...], float] = defaultdict(float)
    for place, one in enumerate(sorted(backlog, key=lambda one: -one.depth)):
        label = (tenant, title(staff.specs[one.queue]) if place < MOST_QUEUES else OTHER)
        depth[label] += one.depth
        oldest[label] = max(oldest[label], max(0, staff.now - one.oldest_at) / SECOND)
    return depth, oldest


def _add(rows: Rows, name: str, label: tuple[str, ...], value: float) -> None:
    values = rows.setdefault(name, {})
    values[label] = values.get(label, 0.0) + value


async def _merge(rows: Rows, reading: Awaitable[Rows]) -> None:
    for name, values in (await reading).items():
        rows.setdefault(name, {}).update(values)


PAUSE_SECONDS = 0.25
KEPT = 40
"""How many of the last measurements count: ten seconds, so that no scrape misses a long stop."""


class LoopLag:
    """The lag of the running loop."""

    def __init__(self) -> None:
        self._last: list[float] = [0.0]
        self._task: asyncio.Task[None] | None = None

    @property
    def seconds(self) -> float:
        """The most by which it was late in the last ten seconds."""
        return max(self._last)

    def begin(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._measure(), name="loop lag")

    async def close(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _measure(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            await asyncio.sleep(PAUSE_SECONDS)
            self._last = [*self._last[1 - KEPT :], max(0.0, loop.time() - began - PAUSE_SECONDS)]
