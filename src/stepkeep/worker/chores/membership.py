"""Registers this worker in the database: heartbeats every ten seconds, busy or idle, draining, shut down.

It reports and decides nothing; leases and fences alone guard the worker's claims. A worker that was marked as
unresponsive and returns is a new incarnation (or a new registration), and its earlier claims are lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial

from stepkeep.kernel.machine.rows import Worker
from stepkeep.kernel.machine.states import WorkerState
from stepkeep.operations.pipeline import workers
from stepkeep.operations.remote.services import Service, encode_service
from stepkeep.store.protocol import Store

log = logging.getLogger("stepkeep.worker")


class Membership:
    """One registration and its state."""

    def __init__(
        self,
        store: Store,
        *,
        tenant: str,
        app: str,
        capacity: int,
        capabilities: tuple[str, ...],
        owner: str | None = None,
    ) -> None:
        self._store, self._owner = store, owner
        self._tenant, self.app = tenant, app
        self._capacity, self._capabilities = capacity, capabilities
        self._queues: tuple[int, ...] = ()
        self._row: Worker | None = None
        # Each change starts from the row that the last one wrote; of two concurrent ones, one would conflict.
        self._one_at_a_time = asyncio.Lock()

    @property
    def row(self) -> Worker:
        assert self._row is not None, "the worker is not registered yet"
        return self._row

    @property
    def is_registered(self) -> bool:
        return self._row is not None

    async def join(self, queues: tuple[int, ...]) -> None:
        self._queues = queues
        self._row = await workers.register(
            self._store,
            tenant=self._tenant,
            app=self.app,
            capacity=self._capacity,
            capabilities=self._capabilities,
            queues=queues,
            owner=self._owner,
        )

    async def beat(self) -> bool:
        """Send a heartbeat. Returns False if this worker had been given up: its earlier claims are lost."""
        async with self._one_at_a_time:
            before = self.row
            self._row = await self._beaten(before)
            if self._row.state is WorkerState.SHUTDOWN:
                log.warning("worker %s was silent for so long that it was given up; registering anew", before.id)
                await self.join(self._queues)
                return False
            if self._row.incarnation != before.incarnation:
                log.warning("worker %s was given up for lost and is back; it drops what it held", before.id)
                return False
            return True

    async def _beaten(self, before: Worker) -> Worker:
        return await workers.beat(self._store, before)

    async def publish(self, offer: Service) -> None:
        """Publish what this worker serves and how much it holds."""
        await self._store.report_worker(self._tenant, self.row.no, encode_service(offer))

    async def mark(self, busy: bool, since: int | None = None) -> None:
        """Mark the worker as busy (since its first claim) or idle."""
        await self._hop(partial(workers.mark_busy, since=since) if busy else workers.mark_idle)

    async def drain(self) -> None:
        await self._hop(workers.drain)

    async def leave(self) -> None:
        await self._hop(workers.shut_down)

    async def _hop(self, move: Callable[[Store, Worker], Awaitable[Worker]]) -> None:
        async with self._one_at_a_time:
            self._row = await move(self._store, self.row)
