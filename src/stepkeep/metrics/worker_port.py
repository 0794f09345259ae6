"""What `stepkeep worker --metrics-port` answers: metrics, whether the worker lives, and whether it can work.

A worker that waits for its database lives, and is not ready: a restart would not help it.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypedDict

from stepkeep.metrics.exposition import Exposition
from stepkeep.metrics.port import HealthAnswer, Port, open_port
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.worker.loop import Worker


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
