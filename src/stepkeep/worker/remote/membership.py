"""The registration of a remote worker: the same states as with a database, moved by the service.

Its id is made by the service from a random instance, so that a registration whose answer was lost is not made twice.
"""

from __future__ import annotations

import os
import secrets
import socket
from typing import Any

import msgspec
from msgspec.structs import replace

from stepkeep.kernel.machine.rows import Worker
from stepkeep.kernel.machine.states import WorkerState
from stepkeep.operations.remote.services import Service as Offer
from stepkeep.operations.remote.work_messages import Registered
from stepkeep.store.protocol import Store
from stepkeep.worker.chores.membership import Membership
from stepkeep.worker.remote.channel import Channel, WorkerForgotten
from stepkeep.worker.remote.notices import Notices
from stepkeep.worker.remote.requests import Heartbeat, Registration


class RemoteMembership(Membership):
    """One registration over HTTP."""

    def __init__(self, channel: Channel, notices: Notices, store: Store, **given: Any) -> None:
        super().__init__(store, **given)
        self._channel, self._notices = channel, notices
        self._instance = ""

    async def join(self, queues: tuple[int, ...]) -> None:
        self._queues = queues
        self._instance = self._instance or secrets.token_hex(8)
        body = Registration(
            app=self.app,
            instance=self._instance,
            host=socket.gethostname()[:100] or "remote",
            pid=os.getpid(),
            capacity=self._capacity,
            capabilities=tuple(self._capabilities),
        )
        self._row = (await self._channel.ask(Registered, "POST", "/work/workers", body)).worker.row(queues)
        self._instance = ""
        self._channel.worker_id = self._row.id
        self._notices.start(self._row.id)

    async def beat(self) -> bool:
        try:
            return await super().beat()
        except WorkerForgotten:
            await self.join(self._queues)
            return False

    async def _beaten(self, before: Worker) -> Worker:
        return await self._send("heartbeat", Heartbeat())

    async def publish(self, offer: Offer) -> None:
        await self._send("heartbeat", Heartbeat(report=msgspec.to_builtins(offer)))

    async def mark(self, busy: bool, since: int | None = None) -> None:
        """The service knows when the worker claimed."""
        if (self.row.state is WorkerState.BUSY) is busy or self.row.state not in (WorkerState.IDLE, WorkerState.BUSY):
            return
        async with self._one_at_a_time:
            told = await self._send("heartbeat", Heartbeat(busy=busy))
            # The incarnation stays: the next heartbeat must see that it is another one.
            self._row = replace(self.row, state=told.state)

    async def drain(self) -> None:
        async with self._one_at_a_time:
            self._row = await self._send("drain")

    async def leave(self) -> None:
        self._notices.stop()
        async with self._one_at_a_time:
            told = await self._channel.ask(Registered, "DELETE", f"/work/workers/{self.row.id}")
            self._row = told.worker.row(self._queues)

    async def _send(self, what: str, body: Heartbeat | None = None) -> Worker:
        told = await self._channel.ask(Registered, "POST", self._channel.path(what), body)
        return told.worker.row(self._queues)
