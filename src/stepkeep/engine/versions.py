"""Published versions of workflows: `engine.versions`."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from stepkeep.definition.bounds import MAX_VERSION
from stepkeep.engine.base import AsyncGroup
from stepkeep.engine.blocking import Blocking, blocking
from stepkeep.operations import validate
from stepkeep.operations.access import OPERATE, READ
from stepkeep.operations.definitions import withdrawn
from stepkeep.operations.definitions.publish import DefinitionView, show_published
from stepkeep.operations.definitions.withdrawn import MAX_REASON, Restored, Withdrawn
from stepkeep.operations.operation import Actor, Row, group, operation

WorkflowName = Annotated[str, Meta(max_length=255, description="The name of a workflow.", examples=["hello"])]
Version = Annotated[int, Meta(ge=1, le=MAX_VERSION)]
Reason = Annotated[str, Meta(min_length=1, max_length=MAX_REASON)]


@group("versions", "Workflows")
class AsyncVersions(AsyncGroup):
    """Shows published versions, withdraws them, and restores them.

    >>> _ = engine.publish(hello)
    >>> engine.versions.withdraw("hello", 1, reason="it greets the wrong person").state
    'withdrawn'
    """

    @operation(
        READ,
        "GET /workflows/{name:path}",
        "get_workflow",
        "Show the highest version of a workflow",
        names={"workflow": "name"},
        here=("version",),
        elsewhere=[
            Row(
                READ,
                "GET /workflows/{name:path}/versions/{version}",
                "get_workflow_version",
                "Show a version of a workflow",
                names={"workflow": "name"},
            )
        ],
    )
    async def show(self, workflow: WorkflowName, version: Version | None = None) -> DefinitionView:
        """A published version with its definition, every default made explicit; by default the highest one.

        >>> _ = engine.publish(hello)
        >>> found = engine.versions.show("hello")
        >>> found.definition.version, found.document["steps"][0]["name"]
        (1, 'greet')
        """
        name = validate.key("the name of a workflow", workflow)
        return await show_published(self._transactor, name, version, tenant=self._tenant)

    @operation(
        OPERATE,
        "POST /workflows/{name:path}/versions/{version}/withdraw",
        "withdraw_version",
        "Withdraw a version of a workflow",
        names={"workflow": "name"},
        example={"reason": "it pays twice"},
    )
    async def withdraw(
        self, workflow: WorkflowName, version: Version, *, reason: Reason, by: Actor = None
    ) -> Withdrawn:
        """Let no run of a published version start any more. Its live runs go on.

        The answer names the triggers that would start it: their firings are refused on record.

        >>> _ = engine.publish(hello)
        >>> engine.versions.withdraw("hello", 1, reason="it greets the wrong person").triggers
        []
        """
        told = await withdrawn.withdraw(self._transactor, workflow, version, caller=self._caller(by), reason=reason)
        self._starter.withdrawals.forget(self._tenant)
        return told

    @operation(
        OPERATE,
        "POST /workflows/{name:path}/versions/{version}/restore",
        "restore_version",
        "Restore a withdrawn version",
        names={"workflow": "name"},
    )
    async def restore(self, workflow: WorkflowName, version: Version, *, by: Actor = None) -> Restored:
        """Let runs of a withdrawn version start again.

        >>> _ = engine.publish(hello)
        >>> _ = engine.versions.withdraw("hello", 1, reason="it greets the wrong person")
        >>> engine.versions.restore("hello", 1).state
        'published'
        """
        told = await withdrawn.restore(self._transactor, workflow, version, caller=self._caller(by))
        self._starter.withdrawals.forget(self._tenant)
        return told


class Versions(Blocking[AsyncVersions]):
    show, withdraw = blocking(AsyncVersions.show), blocking(AsyncVersions.withdraw)
    restore = blocking(AsyncVersions.restore)
