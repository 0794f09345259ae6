"""A port of its own for metrics and health checks, without a key: `/metrics`, `/healthz` and `/readyz`.

It answers on the loop of the process that it tells about, so that a loop that hangs does not answer. Nobody but the
monitoring should reach it; by default it listens on loopback. `stepkeep worker` and `serve` open it.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, MutableMapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, NamedTuple, TypedDict

import msgspec
import uvicorn

from stepkeep.metrics.exposition import Exposition
from stepkeep.network.listening import BACKLOG
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.worker.loop import Worker

JSON = "application/json"


class HealthAnswer(NamedTuple):
    """The answer to a health check."""

    is_good: bool
    body: Mapping[str, object]


Check = Callable[[], Awaitable[HealthAnswer]]


class Port:
    """The application behind the port."""

    def __init__(self, exposition: Exposition, healthy: Check, ready: Check) -> None:
        self._exposition = exposition
        self._checks = {"/healthz": healthy, "/readyz": ready}

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        status, body, media_type = await self._answer(scope)
        headers = [(b"content-type", media_type.encode()), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _answer(self, scope: MutableMapping[str, Any]) -> tuple[int, bytes, str]:
        path = scope["path"]
        if scope["method"] not in ("GET", "HEAD"):
            return 405, msgspec.json.encode({"error": "only GET"}), JSON
        if path == "/metrics":
            accept = next((value for name, value in scope["headers"] if name == b"accept"), b"")
            return 200, *await self._exposition.text(accept.decode("latin-1"))
        check = self._checks.get(path)
        if check is None:
            known = ["/metrics", *self._checks]
            return 404, msgspec.json.encode({"error": "not found", "there_is": known}), JSON
        told = await check()
        return 200 if told.is_good else 503, msgspec.json.encode(told.body), JSON


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        # The process has its own way to stop.
        yield


@asynccontextmanager
async def open_port(listener: socket.socket, app: Port, exposition: Exposition) -> AsyncIterator[None]:
    """Answer on this socket inside the block."""
    config = uvicorn.Config(
        app,
        loop="none",
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=BACKLOG,
        limit_concurrency=100,
        timeout_graceful_shutdown=1,
    )
    server = _Server(config)
    exposition.begin()
    running = asyncio.create_task(server.serve(sockets=[listener]), name="metrics port")
    try:
        yield
    finally:
        server.should_exit = True
        await asyncio.gather(running, return_exceptions=True)
        await exposition.close()


class WorkerHealth(TypedDict):
    """A worker as its health check tells it."""

    worker: str | None
    store_up: bool
    draining: bool
    held: int
    free: int
    loop_lag_seconds: float
    answered_seconds_ago: float
    claimed_seconds_ago: float


@asynccontextmanager
async def open_worker_port(
    listener: socket.socket, transactor: Transactor, worker: Worker, tenant: str
) -> AsyncIterator[None]:
    """Tell about this worker on this socket inside the block."""

    def body() -> WorkerHealth:
        found = worker.vitals()
        return {
            "worker": found.id,
            "store_up": found.is_store_up,
            "draining": found.is_draining,
            "held": found.held,
            "free": found.free,
            "loop_lag_seconds": round(found.loop_lag_seconds, 3),
            "answered_seconds_ago": round(found.answered_seconds_ago, 3),
            "claimed_seconds_ago": round(found.claimed_seconds_ago, 3),
        }

    async def healthy() -> HealthAnswer:
        return HealthAnswer(True, {"status": "ok", **body()})

    async def ready() -> HealthAnswer:
        found = worker.vitals()
        is_ready = found.id is not None and found.is_store_up and not found.is_draining
        return HealthAnswer(is_ready, {"status": "ready" if is_ready else "not ready", **body()})

    exposition = Exposition(transactor, tenant=tenant, workers=lambda: [worker.vitals()])
    async with open_port(listener, Port(exposition, healthy, ready), exposition):
        yield
