"""Refuses a second request with an idempotency key while the first is under way in this process: 409.

The database decides which request creates the run; requests of several processes with one key wait for each other there
and all get the same run. Routes that create something call it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from starlette.requests import Request

from stepkeep.api.problems import IN_FLIGHT, ApiError
from stepkeep.api.routing import service_of
from stepkeep.engine.acting import ActingEngine


@contextmanager
def under_way(request: Request, engine: ActingEngine, operation: str, key: str | None) -> Iterator[None]:
    """Hold the key of this caller and operation while the request is under way."""
    if key is None:
        yield
        return
    held, mine = service_of(request).in_flight, (engine.tenant, operation, key, engine.access.key_scope)
    if mine in held:
        raise ApiError(IN_FLIGHT, "The first request with this key has not ended yet. Send the same request again.")
    held.add(mine)
    try:
        yield
    finally:
        held.discard(mine)
