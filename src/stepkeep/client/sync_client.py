"""The client of a service for programs without an event loop: `Engine` over an `AsyncClient` in place of a database."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from typing import Any, Unpack, cast

from stepkeep.client.async_client import AsyncClient
from stepkeep.engine import AsyncEngine, Engine
from stepkeep.engine.hosted import WorkerOptions
from stepkeep.engine.loop_thread import LoopThread
from stepkeep.kernel.errors import InvalidInput
from stepkeep.operations.operation import needs_database


class Client(Engine):
    """A service and everything one can do with it, in the words of `Engine`.

    Workers run elsewhere. The tenant and the actor are those of the key.

        with Client("https://flows.example.org", key="sk_…") as client:
            result = client.run("hello", {"name": "Ada"})
    """

    def __init__(
        self, url: str | os.PathLike[str], *, key: str | None = None, seconds: float = 30.0, **options: Any
    ) -> None:
        for name, value in options.items():
            if value is not None and not (name == "tenant" and value == "default"):
                raise InvalidInput(f"`{name}` is for a database. The key of a service names the tenant and the actor.")
        self._client = AsyncClient(url, key=key, seconds=seconds)
        # It has the methods that `Engine` calls; those that need a database refuse with a reason.
        self._core = cast(AsyncEngine, self._client)
        self._guard = threading.Lock()
        self._thread: LoopThread | None = None
        self._is_closed = False
        self._is_entered = False

    def __repr__(self) -> str:
        return f"<stepkeep.Client of {self._client.service.url}>"

    def serve(self, *, signals: bool = True, **options: Unpack[WorkerOptions]) -> None:
        """Refused: `stepkeep worker --server URL` is the worker of a service."""
        raise needs_database("serve")

    def follow(self, run_id: str, *, after: int = 0) -> Iterator[Mapping[str, Any]]:
        """The journal of a run as it grows, until the run has ended."""
        entries = self._client.follow(run_id, after=after)

        async def following() -> Mapping[str, Any] | None:
            return await anext(entries, None)

        while (entry := self._call(following())) is not None:
            yield entry
