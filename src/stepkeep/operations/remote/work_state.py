"""What one process of the service remembers about remote workers: who they are, what they hold, and recent answers.

All of it can be lost at any moment: rows, leases and fences in the database decide. A repeated request is answered
again from here only while this process lives; afterwards leases protect what its lost answer had claimed.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from stepkeep.kernel.definition import QueueSpec
from stepkeep.kernel.machine.rows import Worker
from stepkeep.operations.children.children import ChildSweep
from stepkeep.operations.continuation.other_code import CodeSweep
from stepkeep.operations.limits.pauses import PauseReader
from stepkeep.operations.pipeline.call_queues import CallQueues
from stepkeep.operations.pipeline.transact import Claim, Transactor
from stepkeep.store.protocol import Store

KEPT_SECONDS = 120.0
"""For how long an answer is kept for the same request again."""

MOST_ANSWERS = 10_000
MOST_WORKERS = 10_000

Name = tuple[str, str, int, int]
"""A claim: tenant, run, step number, fence."""


class Held(NamedTuple):
    """A claim that a worker holds, as far as this process knows, and until when (monotonic)."""

    worker: int
    until: float
    claim: Claim | None = None


class WorkState:
    """One per process that serves."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.workers: OrderedDict[tuple[str, str], Worker] = OrderedDict()
        self.held: dict[Name, Held] = {}
        self._of_run: dict[tuple[str, str], set[Name]] = {}
        self.swept_at: dict[str, float] = {}
        self._children: dict[str, tuple[Transactor, ChildSweep]] = {}
        self._code: dict[str, tuple[Transactor, CodeSweep]] = {}
        self._call_queues: dict[str, tuple[Store, CallQueues]] = {}
        self.queues: dict[str, tuple[float, dict[int, QueueSpec]]] = {}
        self.pauses = PauseReader(monotonic)
        self.unfit: dict[tuple[str, int, int], float] = {}
        """By tenant, worker and queue: until when the worker is offered no step of the queue, because it has rules."""
        self._answers: OrderedDict[tuple[str, int, str], tuple[float, asyncio.Future[Any]]] = OrderedDict()

    def note_worker(self, row: Worker) -> None:
        self.workers[row.tenant, row.id] = row
        while len(self.workers) > MOST_WORKERS:
            self.workers.popitem(last=False)

    def children_of(self, tenant: str, transactor: Transactor) -> ChildSweep:
        """What looks after the child runs of a tenant, because it may have no other worker than remote ones."""
        known = self._children.get(tenant)
        if known is None or known[0] is not transactor:
            if known is not None:
                known[1].close()
            known = self._children[tenant] = (transactor, ChildSweep(transactor))
        return known[1]

    def code_of(self, tenant: str, transactor: Transactor) -> CodeSweep:
        """What makes flows of a tenant ready again for other code, for the same reason."""
        known = self._code.get(tenant)
        if known is None or known[0] is not transactor:
            known = self._code[tenant] = (transactor, CodeSweep(transactor, tenant))
        return known[1]

    def call_queues_of(self, tenant: str, store: Store) -> CallQueues:
        """The queues of calls and added steps of a tenant. They are read again only where a step needs another one."""

        async def changed() -> None:
            self.queues.pop(tenant, None)

        known = self._call_queues.get(tenant)
        if known is None or known[0] is not store:
            known = self._call_queues[tenant] = (store, CallQueues(store, tenant, changed))
        return known[1]

    def hold(self, name: Name, held: Held) -> None:
        """Note that a worker holds this claim."""
        self.held[name] = held
        self._of_run.setdefault(name[:2], set()).add(name)

    def drop(self, name: Name) -> Claim | None:
        """The claim is over. Returns it, if it was made in this process."""
        held = self.held.pop(name, None)
        names = self._of_run.get(name[:2], set())
        names.discard(name)
        if not names:
            self._of_run.pop(name[:2], None)
        return None if held is None else held.claim

    def holds_run(self, tenant: str, run_id: str, worker: int, now: float) -> bool:
        """Whether the worker holds a step of this run, as far as this process knows."""
        return any(
            self.held[name].worker == worker and self.held[name].until >= now
            for name in self._of_run.get((tenant, run_id), ())
        )

    async def once(self, name: tuple[str, int, str | None], now: float, work: Callable[[], Awaitable[Any]]) -> Any:
        """Do the work of a request; the same request again gets the answer of the first, also while that is under
        way. An error is not kept."""
        tenant, worker, request = name
        if request is None:
            return await work()
        while self._answers and next(iter(self._answers.values()))[0] < now - KEPT_SECONDS:
            self._answers.popitem(last=False)
        while len(self._answers) >= MOST_ANSWERS:
            self._answers.popitem(last=False)
        known = self._answers.get((tenant, worker, request))
        if known is not None:
            return await asyncio.shield(known[1])
        # A task of its own: a client that goes away must not cancel what the same request again waits for.
        task = asyncio.ensure_future(work())
        self._answers[tenant, worker, request] = (now, task)

        def ended(done: asyncio.Future[Any]) -> None:
            if done.cancelled() or done.exception() is not None:
                self._answers.pop((tenant, worker, request), None)

        task.add_done_callback(ended)
        return await asyncio.shield(task)
