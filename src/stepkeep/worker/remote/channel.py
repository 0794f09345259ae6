"""The requests of one remote worker, with errors in the words that the worker knows from a database.

A refused key is an outage for the worker, because the key in its file may be replaced. `transactor`, `membership` and
`notices` share one channel.
"""

from __future__ import annotations

from typing import Any, TypeVar

from stepkeep.kernel.errors import LoginRefused, NotAllowed, NotFound, PermissionDenied, StepkeepError, StoreUnavailable
from stepkeep.network.service import RemoteService, again, decode

T = TypeVar("T")


class WorkerForgotten(StoreUnavailable):
    """The service has no such worker: its database is another one now."""


class Channel:
    """One service, and the id of the worker once it is registered."""

    def __init__(self, service: RemoteService) -> None:
        self.service = service
        self.worker_id = ""

    def path(self, what: str) -> str:
        return f"/work/workers/{self.worker_id}/{what}"

    async def ask(
        self, kind: type[T], method: str, path: str, body: Any = None, *, tries: int = 1, seconds: float = 30.0
    ) -> T:
        """Send a request that may be sent again; returns its answer."""
        try:
            answer = await again(lambda: self.service.request(method, path, body=body, seconds=seconds), tries=tries)
            found: T = decode(answer.body, kind)
            return found
        except (NotAllowed, NotFound) as problem:
            raise as_outage(problem) from None


def as_outage(problem: StepkeepError) -> StepkeepError:
    """What a refusal of the whole worker means to its loop: try again later."""
    if isinstance(problem, NotFound):
        return WorkerForgotten("the service does not know this worker; it registers anew with its next heartbeat.")
    if isinstance(problem, NotAllowed) and problem.rule.startswith("key"):
        return LoginRefused(str(problem))
    return PermissionDenied(str(problem)) if isinstance(problem, NotAllowed) else problem
