"""Pauses of queues, of workflows and of the tenant, as the engine offers them: `engine.pauses`.

Each method checks its arguments and calls one operation. `sync_pauses` has the same methods for programs without an
event loop. It decides nothing.
"""

from __future__ import annotations

from typing import Any

from stepkeep.engine_arguments import optional_key
from stepkeep.operations import pauses, validate
from stepkeep.operations.access import Access, Acting, guarded
from stepkeep.store.protocol import Store


@guarded("pauses.")
class AsyncPauses:
    """Pauses of queues and of the whole tenant, of which workers claim nothing, and of workflows, whose new runs start
    paused. A run is paused by `engine.pause`."""

    def __init__(self, store: Store, access: Access, known: pauses.PauseReader) -> None:
        self._store, self.access, self._known = store, access, known

    async def pause_queue(self, queue: str, *, reason: str = "", by: str | None = None) -> dict[str, Any]:
        """Claim nothing more from a queue; the default one is `""`. What workers hold goes on."""
        name = _queue(queue)
        return await pauses.pause_claims(self._store, self.access.tenant, name, reason, acting=self._acting(by))

    async def resume_queue(self, queue: str, *, by: str | None = None) -> dict[str, Any]:
        """Claim from a paused queue again."""
        name = _queue(queue)
        return await pauses.resume_claims(self._store, self.access.tenant, name, acting=self._acting(by))

    async def pause_tenant(self, *, reason: str = "", by: str | None = None) -> dict[str, Any]:
        """Claim nothing more of the whole tenant. What workers hold goes on."""
        return await pauses.pause_claims(self._store, self.access.tenant, None, reason, acting=self._acting(by))

    async def resume_tenant(self, *, by: str | None = None) -> dict[str, Any]:
        """Claim from the queues of the tenant again, but from those that are paused themselves."""
        return await pauses.resume_claims(self._store, self.access.tenant, None, acting=self._acting(by))

    async def pause_workflow(self, workflow: str, *, reason: str = "", by: str | None = None) -> dict[str, Any]:
        """Let the runs of a workflow start paused, however they are started. `jobs.start("pause")` pauses live ones."""
        name, acting = validate.key("the workflow", workflow), self._acting(by)
        found = await pauses.pause_workflow(self._store, self.access.tenant, name, reason, acting=acting)
        self._known.forget(self.access.tenant)
        return found

    async def resume_workflow(self, workflow: str, *, by: str | None = None) -> dict[str, Any]:
        """Let the runs of a workflow start as usual. `jobs.start("resume")` resumes those that are paused."""
        name, acting = validate.key("the workflow", workflow), self._acting(by)
        found = await pauses.resume_workflow(self._store, self.access.tenant, name, acting=acting)
        self._known.forget(self.access.tenant)
        return found

    async def list(self) -> dict[str, Any]:
        """What is paused: by whom, since when and why."""
        return await pauses.list_pauses(self._store, self.access.tenant)

    def _acting(self, by: str | None) -> Acting:
        return self.access.acting(optional_key("by", by))


def _queue(name: object) -> str:
    """The name of a queue; that of the default one is empty."""
    return "" if type(name) is str and not name else validate.key("the name of a queue", name)
