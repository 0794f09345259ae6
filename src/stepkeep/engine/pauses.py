"""Pauses of queues, of workflows and of the tenant, as the engine offers them: `engine.pauses`.

Each method checks its arguments and calls one operation. It decides nothing.
"""

from __future__ import annotations

from typing import Any

from stepkeep.engine.base import AsyncGroup
from stepkeep.engine.blocking import Blocking, blocking
from stepkeep.operations import pauses, validate
from stepkeep.operations.access import guarded


@guarded("pauses.")
class AsyncPauses(AsyncGroup):
    """Pauses of queues and of the whole tenant, of which workers claim nothing, and of workflows, whose new runs start
    paused. A run is paused by `engine.pause`.

    >>> engine.pauses.list()["pauses"]
    []
    """

    async def pause_queue(self, queue: str, *, reason: str = "", by: str | None = None) -> dict[str, Any]:
        """Claim nothing more from a queue; the default one is `""`. What workers hold goes on.

        >>> _ = engine.publish(hello)
        >>> [one["queue"] for one in engine.pauses.pause_queue("", reason="the printer is out", by="bea")["pauses"]]
        ['']
        """
        name = _queue(queue)
        return await pauses.pause_claims(self._store, self._tenant, name, reason, acting=self._acting(by))

    async def resume_queue(self, queue: str, *, by: str | None = None) -> dict[str, Any]:
        """Claim from a paused queue again.

        >>> _ = engine.publish(hello)
        >>> _ = engine.pauses.pause_queue("")
        >>> engine.pauses.resume_queue("")["pauses"]
        []
        """
        name = _queue(queue)
        return await pauses.resume_claims(self._store, self._tenant, name, acting=self._acting(by))

    async def pause_tenant(self, *, reason: str = "", by: str | None = None) -> dict[str, Any]:
        """Claim nothing more of the whole tenant. What workers hold goes on.

        >>> [one["scope"] for one in engine.pauses.pause_tenant(reason="an audit", by="bea")["pauses"]]
        ['tenant']
        """
        return await pauses.pause_claims(self._store, self._tenant, None, reason, acting=self._acting(by))

    async def resume_tenant(self, *, by: str | None = None) -> dict[str, Any]:
        """Claim from the queues of the tenant again, but from those that are paused themselves.

        >>> _ = engine.pauses.pause_tenant()
        >>> engine.pauses.resume_tenant()["pauses"]
        []
        """
        return await pauses.resume_claims(self._store, self._tenant, None, acting=self._acting(by))

    async def pause_workflow(self, workflow: str, *, reason: str = "", by: str | None = None) -> dict[str, Any]:
        """Let the runs of a workflow start paused, however they are started. `jobs.start("pause")` pauses live ones.

        >>> _ = engine.publish(hello)
        >>> _ = engine.pauses.pause_workflow("hello", reason="a bad release", by="bea")
        >>> print(engine.show(engine.start("hello").run_id)["run"]["state"])
        paused
        """
        name, acting = validate.key("the workflow", workflow), self._acting(by)
        found = await pauses.pause_workflow(self._store, self._tenant, name, reason, acting=acting)
        self._starter.pauses.forget(self._tenant)
        return found

    async def resume_workflow(self, workflow: str, *, by: str | None = None) -> dict[str, Any]:
        """Let the runs of a workflow start as usual. `jobs.start("resume")` resumes those that are paused.

        >>> _ = engine.publish(hello)
        >>> _ = engine.pauses.pause_workflow("hello")
        >>> engine.pauses.resume_workflow("hello")["pauses"]
        []
        """
        name, acting = validate.key("the workflow", workflow), self._acting(by)
        found = await pauses.resume_workflow(self._store, self._tenant, name, acting=acting)
        self._starter.pauses.forget(self._tenant)
        return found

    async def list(self) -> dict[str, Any]:
        """What is paused: by whom, since when and why.

        >>> _ = engine.pauses.pause_tenant(by="ann")
        >>> [one["by"] for one in engine.pauses.list()["pauses"]]
        ['ann']
        """
        return await pauses.list_pauses(self._store, self._tenant)


class Pauses(Blocking[AsyncPauses]):
    pause_queue = blocking(AsyncPauses.pause_queue)
    resume_queue = blocking(AsyncPauses.resume_queue)
    pause_tenant = blocking(AsyncPauses.pause_tenant)
    resume_tenant = blocking(AsyncPauses.resume_tenant)
    pause_workflow = blocking(AsyncPauses.pause_workflow)
    resume_workflow = blocking(AsyncPauses.resume_workflow)
    list = blocking(AsyncPauses.list)


def _queue(name: object) -> str:
    """The name of a queue; that of the default one is empty."""
    return "" if type(name) is str and not name else validate.key("the name of a queue", name)
