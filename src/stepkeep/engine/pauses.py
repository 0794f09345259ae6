"""Pauses of queues, of workflows and of the tenant: `engine.pauses`."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from stepkeep.engine.base import AsyncGroup
from stepkeep.engine.blocking import Blocking, blocking
from stepkeep.operations import pauses
from stepkeep.operations.access import OPERATE, READ
from stepkeep.operations.operation import Actor, Name, Words, group, operation
from stepkeep.operations.pauses import PauseList

Queue = Annotated[str, Meta(max_length=255, description="Its name; the default queue is empty.")]


@group("pauses", "Pauses")
class AsyncPauses(AsyncGroup):
    """Pauses of queues and of the whole tenant, of which workers claim nothing, and of workflows, whose new runs start
    paused. A run is paused by `engine.pause`.

    >>> engine.pauses.list().pauses
    []
    """

    @operation(
        OPERATE,
        "POST /pauses/queue",
        "pause_queue",
        "Claim nothing more from a queue",
        example={"queue": "printers", "reason": "out of paper"},
    )
    async def pause_queue(self, queue: Queue, *, reason: Words = "", by: Actor = None) -> PauseList:
        """Claim nothing more from a queue; the default one is `""`. What workers hold goes on. They notice it within a
        second.

        >>> _ = engine.publish(hello)
        >>> [one.queue for one in engine.pauses.pause_queue("", reason="the printer is out", by="bea").pauses]
        ['']
        """
        return await pauses.pause_claims(self._store, queue, reason, caller=self._caller(by))

    @operation(
        OPERATE,
        "POST /pauses/queue/resume",
        "resume_queue",
        "Claim from a paused queue again",
        example={"queue": "printers"},
    )
    async def resume_queue(self, queue: Queue, *, by: Actor = None) -> PauseList:
        """Claim from a paused queue again.

        >>> _ = engine.publish(hello)
        >>> _ = engine.pauses.pause_queue("")
        >>> engine.pauses.resume_queue("").pauses
        []
        """
        return await pauses.resume_claims(self._store, queue, caller=self._caller(by))

    @operation(
        OPERATE,
        "POST /pauses/tenant",
        "pause_tenant",
        "Claim nothing more of the whole tenant",
        example={"reason": "an audit"},
    )
    async def pause_tenant(self, *, reason: Words = "", by: Actor = None) -> PauseList:
        """Claim nothing more of the whole tenant. What workers hold goes on. Workers notice it within a second.

        >>> [one.scope for one in engine.pauses.pause_tenant(reason="an audit", by="bea").pauses]
        ['tenant']
        """
        return await pauses.pause_claims(self._store, None, reason, caller=self._caller(by))

    @operation(OPERATE, "POST /pauses/tenant/resume", "resume_tenant", "Claim from the queues of the tenant again")
    async def resume_tenant(self, *, by: Actor = None) -> PauseList:
        """Claim from the queues of the tenant again, but from those that are paused themselves.

        >>> _ = engine.pauses.pause_tenant()
        >>> engine.pauses.resume_tenant().pauses
        []
        """
        return await pauses.resume_claims(self._store, None, caller=self._caller(by))

    @operation(
        OPERATE,
        "POST /pauses/workflow",
        "pause_workflow",
        "Let the runs of a workflow start paused",
        example={"workflow": "order", "reason": "a bad release"},
    )
    async def pause_workflow(self, workflow: Name, *, reason: Words = "", by: Actor = None) -> PauseList:
        """Let the runs of a workflow start paused, however they are started. `jobs.start("pause")` pauses live ones.

        >>> _ = engine.publish(hello)
        >>> _ = engine.pauses.pause_workflow("hello", reason="a bad release", by="bea")
        >>> print(engine.show(engine.start("hello").run_id)["run"]["state"])
        paused
        """
        caller = self._caller(by)
        found = await pauses.pause_workflow(self._store, workflow, reason, caller=caller)
        self._starter.pauses.forget(self._tenant)
        return found

    @operation(
        OPERATE,
        "POST /pauses/workflow/resume",
        "resume_workflow",
        "Let the runs of a workflow start as usual",
        example={"workflow": "order"},
    )
    async def resume_workflow(self, workflow: Name, *, by: Actor = None) -> PauseList:
        """Let the runs of a workflow start as usual. `jobs.start("resume")` resumes those that are paused.

        >>> _ = engine.publish(hello)
        >>> _ = engine.pauses.pause_workflow("hello")
        >>> engine.pauses.resume_workflow("hello").pauses
        []
        """
        found = await pauses.resume_workflow(self._store, workflow, caller=self._caller(by))
        self._starter.pauses.forget(self._tenant)
        return found

    @operation(READ, "GET /pauses", "list_pauses", "What is paused", agents="reads")
    async def list(self) -> PauseList:
        """What is paused: by whom, since when and why. Runs that are paused by themselves are in the state `paused`.

        >>> _ = engine.pauses.pause_tenant(by="ann")
        >>> [one.by for one in engine.pauses.list().pauses]
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
