"""Pauses for programs without an event loop: the methods of `pauses`, called and awaited.

It has no logic of its own: each method calls the one of the same name. `sync_engine.Engine` makes the object.
"""

from __future__ import annotations

from typing import Any

from stepkeep.pauses import AsyncPauses
from stepkeep.sync_administration import Call


class Pauses:
    """Pauses of queues and of the whole tenant, of which workers claim nothing, and of workflows, whose new runs start
    paused. A run is paused by `engine.pause`.

    >>> engine.pauses.list()["pauses"]
    []
    """

    def __init__(self, core: AsyncPauses, call: Call) -> None:
        self._core, self._call = core, call

    def pause_queue(self, queue: str, *, reason: str = "", by: str | None = None) -> dict[str, Any]:
        """Claim nothing more from a queue; the default one is `""`. What workers hold goes on.

        >>> _ = engine.publish(hello)
        >>> [one["queue"] for one in engine.pauses.pause_queue("", reason="the printer is out", by="bea")["pauses"]]
        ['']
        """
        return self._call(self._core.pause_queue(queue, reason=reason, by=by))

    def resume_queue(self, queue: str, *, by: str | None = None) -> dict[str, Any]:
        """Claim from a paused queue again.

        >>> _ = engine.publish(hello)
        >>> _ = engine.pauses.pause_queue("")
        >>> engine.pauses.resume_queue("")["pauses"]
        []
        """
        return self._call(self._core.resume_queue(queue, by=by))

    def pause_tenant(self, *, reason: str = "", by: str | None = None) -> dict[str, Any]:
        """Claim nothing more of the whole tenant. What workers hold goes on.

        >>> [one["scope"] for one in engine.pauses.pause_tenant(reason="an audit", by="bea")["pauses"]]
        ['tenant']
        """
        return self._call(self._core.pause_tenant(reason=reason, by=by))

    def resume_tenant(self, *, by: str | None = None) -> dict[str, Any]:
        """Claim from the queues of the tenant again, but from those that are paused themselves.

        >>> _ = engine.pauses.pause_tenant()
        >>> engine.pauses.resume_tenant()["pauses"]
        []
        """
        return self._call(self._core.resume_tenant(by=by))

    def pause_workflow(self, workflow: str, *, reason: str = "", by: str | None = None) -> dict[str, Any]:
        """Let the runs of a workflow start paused, however they are started. `jobs.start("pause")` pauses live ones.

        >>> _ = engine.publish(hello)
        >>> _ = engine.pauses.pause_workflow("hello", reason="a bad release", by="bea")
        >>> print(engine.show(engine.start("hello").run_id)["run"]["state"])
        paused
        """
        return self._call(self._core.pause_workflow(workflow, reason=reason, by=by))

    def resume_workflow(self, workflow: str, *, by: str | None = None) -> dict[str, Any]:
        """Let the runs of a workflow start as usual. `jobs.start("resume")` resumes those that are paused.

        >>> _ = engine.publish(hello)
        >>> _ = engine.pauses.pause_workflow("hello")
        >>> engine.pauses.resume_workflow("hello")["pauses"]
        []
        """
        return self._call(self._core.resume_workflow(workflow, by=by))

    def list(self) -> dict[str, Any]:
        """What is paused: by whom, since when and why.

        >>> _ = engine.pauses.pause_tenant(by="ann")
        >>> [one["by"] for one in engine.pauses.list()["pauses"]]
        ['ann']
        """
        return self._call(self._core.list())
