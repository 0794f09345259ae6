"""A real service with a worker, in a thread of its own, for tests of clients without an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import stepkeep as sk
from stepkeep.api.app import create_app
from stepkeep.api.server import address_of, listen, make_server
from stepkeep.definition.registry import Registry
from stepkeep.engine import AsyncEngine
from stepkeep.operations.access import Scope

TENANT = "acme"


def make_key(url: str, owner: str, *scopes: str, kind: str = "user") -> str:
    """A key of a principal, who is registered first if need be."""
    with sk.open(url, tenant=TENANT, actor="root") as engine:
        if owner not in [one["name"] for one in engine.users.list().users]:
            engine.users.create(owner, kind=kind)
        chosen = scopes or tuple(scope.value for scope in Scope)
        return str(engine.keys.create(owner, scopes=chosen).secret)


@contextmanager
def serving(url: str, registry: Registry) -> Iterator[str]:
    """The address of a service over this database, whose worker has these handlers."""
    ready = threading.Event()
    found: dict[str, Any] = {}

    async def serve() -> None:
        async with AsyncEngine(url, tenant=TENANT, actor="service", registry=registry) as engine:
            await engine.start_worker(concurrency=8)
            listener = listen("127.0.0.1", 0)
            server = make_server(create_app(engine))
            server.told = ready.set
            found.update(loop=asyncio.get_running_loop(), server=server, address=address_of(listener))
            await server.serve(sockets=[listener])

    def run() -> None:
        try:
            asyncio.run(serve())
        finally:
            ready.set()

    thread = threading.Thread(target=run)
    thread.start()
    assert ready.wait(60)
    try:
        yield found["address"]
    finally:
        found["loop"].call_soon_threadsafe(setattr, found["server"], "should_exit", True)
        thread.join(60)
