"""The service over a real database, two tenants with keys, and clients that send real requests through it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2

import stepkeep as sk
from stepkeep.api.app import Application, create_app
from stepkeep.api.server import address_of, listen, make_server
from stepkeep.definition.python.registry import HandlerSpec, Registry
from stepkeep.engine import AsyncEngine
from stepkeep.operations.access import Scope
from tests.confined import confine

TENANT, RIVAL = "acme", "rival"
EVERYTHING = tuple(scope.value for scope in Scope)

HELLO = sk.Workflow("hello")
HELLO.step("greet", "api.greet")
GATED = sk.Workflow("gated")
GATED.approval("sign")
GATED.step("greet", "api.greet", after="sign")


def handlers() -> Registry:
    registry = Registry()
    registry.register(HandlerSpec(name="api.greet", function=lambda name="you": f"Hello, {name}"))
    return registry


class Stage:
    """One process that serves."""

    def __init__(self, url: str, engine: AsyncEngine) -> None:
        self.url, self.engine = url, engine
        self.app: Application = create_app(engine)
        self._keys: dict[tuple[str, ...], str] = {}

    def host(self, tenant: str = TENANT) -> AsyncEngine:
        """An engine of the host program, which needs no key."""
        return AsyncEngine(self.url, tenant=tenant, actor="root", registry=handlers())

    async def key(self, *scopes: str, tenant: str = TENANT, owner: str = "ann", **options: Any) -> str:
        """A key of a person, who is registered first if need be."""
        wanted = (tenant, owner, *scopes)
        if wanted not in self._keys or options:
            async with self.host(tenant) as host:
                if owner not in [one["name"] for one in (await host.users.list()).users]:
                    await host.users.create(owner)
                made = await host.keys.create(owner, scopes=scopes or EVERYTHING, **options)
            if options:
                return str(made["secret"])
            self._keys[wanted] = str(made["secret"])
        return self._keys[wanted]

    def client(self, key: str | None = None) -> httpx2.AsyncClient:
        """A client with this key."""
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        transport = httpx2.ASGITransport(app=self.app, raise_app_exceptions=True)
        return httpx2.AsyncClient(transport=transport, base_url="http://service", headers=headers)

    @asynccontextmanager
    async def serving(self, key: str | None = None) -> AsyncIterator[httpx2.AsyncClient]:
        """A client of a real server on loopback."""
        server, listener = make_server(self.app), listen("127.0.0.1", 0)
        ready = asyncio.Event()
        server.told = ready.set
        running = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            await ready.wait()
            headers = {} if key is None else {"Authorization": f"Bearer {key}"}
            async with httpx2.AsyncClient(base_url=address_of(listener), headers=headers, timeout=60) as client:
                yield client
        finally:
            server.should_exit = True
            await running

    async def publish(self, *workflows: sk.Workflow, tenant: str = TENANT) -> None:
        async with self.host(tenant) as host:
            for one in workflows:
                await host.publish(one)


@asynccontextmanager
async def on(url: str, *, serves_as: str | None = None) -> AsyncIterator[Stage]:
    """Act on a service over this database; `serves_as` is the URL that the service itself has.

    With STEPKEEP_SERVE_AS=api each service on PostgreSQL has a role under row-level security.
    """
    if serves_as is None and url.startswith("postgres") and os.environ.get("STEPKEEP_SERVE_AS") == "api":
        serves_as = confine(url)
    async with AsyncEngine(serves_as or url, actor="service", registry=handlers()) as engine:
        yield Stage(url, engine)


def told(response: httpx2.Response, status: int, code: str) -> dict[str, Any]:
    """The problem that an answer tells."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert body["status"] == status
    assert body["code"] == code, body
    assert body["type"] == f"urn:stepkeep:problem:{code}"
    assert "Traceback" not in response.text
    return body
