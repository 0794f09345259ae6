"""Health, readiness, version and the description of the service, which need no key; and its metrics, which do.

`/healthz` says that the process answers. `/readyz` says that it can do its work: the database answers, its schema is
the expected one, and the process is not about to stop. Metrics are numbers of all tenants together, so that only keys
of the tenant `default` may read them; a port without a key (`serve --metrics-port`) shows the same.
"""

from __future__ import annotations

import asyncio
import platform
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from importlib.metadata import version as installed_version
from typing import Annotated, Any

from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from stepkeep.api.access import OPEN
from stepkeep.api.handwritten import Routes
from stepkeep.api.problems import STOPPING, ApiError, kind_of
from stepkeep.api.routing import service_of
from stepkeep.api.service import Service
from stepkeep.engine.groups import ActingEngine
from stepkeep.kernel.errors import NotAllowed, PermissionDenied, StepkeepError, StoreUnavailable
from stepkeep.metrics.port import HealthAnswer, Port, open_port
from stepkeep.operations.answers import Answer
from stepkeep.store.migrations import require_migrated

routes = Routes("Service")

CHECK_SECONDS = 2.0
"""How long the database may take to answer a readiness check."""


async def check_ready(service: Service) -> None:
    """Raise what keeps the service from its work."""
    if service.stopping.is_set():
        raise ApiError(STOPPING, "stopping")
    store = service.engine.store
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            require_migrated(await store.status(), is_embedded=store.is_embedded)
            with suppress(PermissionDenied):  # a role of its own may lack this right
                # A write that changes nothing: a database that is read-only refuses it.
                await store.drop_mailbox("default", "readiness", "none")
    except TimeoutError:
        raise StoreUnavailable(f"the database did not answer within {CHECK_SECONDS:.0f} s") from None
    if service.load.is_troubled:
        raise StoreUnavailable("the database refused the last write a moment ago")


@asynccontextmanager
async def open_metrics_port(listener: socket.socket | None, service: Service) -> AsyncIterator[None]:
    """Show the metrics and the health of this service on a socket of their own inside the block, if there is one."""
    if listener is None:
        yield
        return

    async def healthy() -> HealthAnswer:
        return HealthAnswer(True, {"status": "ok"})

    async def ready() -> HealthAnswer:
        try:
            await check_ready(service)
        except (ApiError, StepkeepError) as problem:
            kind = problem.kind if isinstance(problem, ApiError) else kind_of(problem)
            return HealthAnswer(False, {"status": "not ready", "code": kind.code})
        return HealthAnswer(True, {"status": "ready"})

    async with open_port(listener, Port(service.metrics, healthy, ready), service.metrics):
        yield


class Health(Answer, kw_only=True):
    """The process answers."""

    status: Annotated[str, Meta(examples=["ok"])]


class Readiness(Answer, kw_only=True):
    """The service can do its work."""

    status: Annotated[str, Meta(examples=["ready"])]
    database: Annotated[str, Meta(examples=["sqlite"])]


class Version(Answer, kw_only=True):
    """What is running."""

    version: Annotated[str, Meta(examples=["0.1.0"])]
    python: Annotated[str, Meta(examples=["3.11.9"])]


@routes("GET /healthz", OPEN, "get_health", "Does the process answer?")
async def health() -> Health:
    """It does not ask the database: a process that waits for one must not be restarted for it."""
    return Health(status="ok")


@routes("GET /readyz", OPEN, "get_readiness", "Can it do its work?")
async def readiness(request: Request) -> Readiness:
    """503 while the database is away, not migrated, read-only or has just refused a write, and from the moment on at
    which the process is to stop."""
    service = service_of(request)
    await check_ready(service)
    store = service.engine.store
    return Readiness(status="ready", database=type(store).__name__.removesuffix("Store").lower())


@routes("GET /version", OPEN, "get_version", "What is running?")
async def version() -> Version:
    return Version(version=installed_version("stepkeep"), python=platform.python_version())


@routes("GET /openapi.json", OPEN, "get_openapi", "This description", done="Successful Response")
async def openapi(request: Request) -> Any:
    return request.app.state.document()


OPERATORS = "default"
"""The tenant whose keys may read numbers of the whole process."""


@routes(
    "GET /metrics",
    "metrics",
    "get_metrics",
    "The metrics of this process",
    done="Metrics in the text format of Prometheus, or OpenMetrics if the client accepts it",
    media="text/plain",
)
async def get_metrics(
    request: Request, engine: ActingEngine, accept: Annotated[str, Meta(max_length=1000)] = ""
) -> Response:
    """Numbers of all tenants: the key belongs to the tenant `default`. Values from the database may be 10 s old."""
    if engine.tenant != OPERATORS:
        raise NotAllowed(
            f"metrics are numbers of all tenants: use a key of the tenant {OPERATORS}, or the port of metrics.",
            "tenant",
            engine.actor,
        )
    body, media_type = await service_of(request).metrics.text(accept)
    return Response(body, headers={"Content-Type": media_type})
