"""Makes a worker that works over the HTTP API of a service. The command line calls it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from stepkeep.definition.python.registry import Registry
from stepkeep.kernel.errors import StoreUnavailable
from stepkeep.network.service import RemoteService
from stepkeep.worker.loop import Worker
from stepkeep.worker.outage import Outage
from stepkeep.worker.remote.channel import Channel
from stepkeep.worker.remote.membership import RemoteMembership
from stepkeep.worker.remote.transactor import RemoteTransactor
from stepkeep.worker.runtime import Runtime


@asynccontextmanager
async def remote_worker(
    url: str, key: str | Callable[[], str], registry: Registry, *, waits: bool = True, **options: Any
) -> AsyncIterator[Worker]:
    """A worker of the key's owner, in the key's tenant. With `waits`, a service that does not answer yet is waited
    for. Raises NotAllowed for a key that may not work."""
    service = RemoteService(url, key)
    try:
        told = await _queues_of_service(service, waits)
        channel = Channel(service)
        transactor = RemoteTransactor(channel, told["tenant"])
        yield Worker(
            transactor,
            registry,
            tenant=told["tenant"],
            owner=told["owner"],
            membership=partial(RemoteMembership, channel, transactor.remote.notifier),
            **options,
        )
    finally:
        await service.close()


async def _queues_of_service(service: RemoteService, waits: bool) -> Any:
    outage, tries = Outage(Runtime(), "the service"), 0
    while True:
        try:
            told = (await service.request("GET", "/work/queues")).json()
        except StoreUnavailable as problem:
            if not waits:
                raise
            outage.met(problem)
            await outage.pause(tries)
            tries += 1
        else:
            outage.over()
            return told
