"""A real service with a worker, in a thread of its own, for tests of clients without an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Literal, TypeVar

import stepkeep as sk
from stepkeep.api.app import create_app
from stepkeep.api.server import address_of, listen, make_server
from stepkeep.definition.python.registry import Registry
from stepkeep.engine import AsyncEngine
from stepkeep.operations.access import Scope

T = TypeVar("T")
TENANT = "acme"
EVERYTHING = tuple(scope.value for scope in Scope)


class Service:
    """The service over one database. Its engine has a worker, if it is told how many steps that runs and the like."""

    def __init__(self, url: str, registry: Registry, *, tenant: str = TENANT, **worker: Any) -> None:
        self.url, self._worker = url, worker
        self.engine = AsyncEngine(url, tenant=tenant, actor="service", registry=registry)
        self.address = ""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine that runs where the service runs."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    async def prepare(self) -> None:
        """What the engine has before a worker starts."""

    def open(self) -> None:
        self._thread.start()
        self.run(self._open())

    async def _open(self) -> None:
        await self.engine.__aenter__()
        await self.prepare()
        if self._worker:
            await self.engine.start_worker(**self._worker)
        listener = listen("127.0.0.1", 0)
        self.address = address_of(listener)
        self._server, ready = make_server(create_app(self.engine)), asyncio.Event()
        self._server.told = ready.set
        self._serving = asyncio.create_task(self._server.serve(sockets=[listener]))
        await ready.wait()

    def close(self) -> None:
        self.run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()

    async def _close(self) -> None:
        self._server.should_exit = True
        await self._serving
        await self.engine.__aexit__(None, None, None)

    def key(self, owner: str = "ann", *scopes: str) -> str:
        """A new key of a person, who is registered first if need be."""
        return make_key(self.url, owner, *scopes, tenant=self.engine.tenant)


def make_key(
    url: str, owner: str, *scopes: str, kind: Literal["user", "service"] = "user", tenant: str = TENANT
) -> str:
    """A key of a principal, who is registered first if need be."""
    with sk.open(url, tenant=tenant, actor="root") as engine:
        if owner not in [one["name"] for one in engine.users.list().users]:
            engine.users.create(owner, kind=kind)
        return str(engine.keys.create(owner, scopes=scopes or EVERYTHING).secret)


@contextmanager
def serving(url: str, registry: Registry) -> Iterator[str]:
    """The address of a service over this database, whose worker has these handlers."""
    service = Service(url, registry, concurrency=8)
    service.open()
    try:
        yield service.address
    finally:
        service.close()
