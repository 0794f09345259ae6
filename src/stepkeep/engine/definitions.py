"""The engine's schemas and definitions, and published versions: `engine.versions`."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from msgspec import Meta

from stepkeep.definition.bounds import MAX_VERSION
from stepkeep.dialects.registry import load_file
from stepkeep.engine.arguments import looks_like_a_file, optional_key
from stepkeep.engine.base import AsyncBase, AsyncGroup
from stepkeep.engine.blocking import Blocking, blocking
from stepkeep.kernel.definition import Definition
from stepkeep.kernel.errors import InvalidInput
from stepkeep.kernel.people.authority import Caller
from stepkeep.kernel.plan import Plan
from stepkeep.operations import validate
from stepkeep.operations.access import OPERATE, READ, Scope
from stepkeep.operations.answers import says
from stepkeep.operations.definitions import withdrawn
from stepkeep.operations.definitions.publish import (
    Definitions,
    DefinitionView,
    Newest,
    as_draft,
    find_plan,
    is_published,
    list_published,
    publish,
    show_published,
)
from stepkeep.operations.definitions.schemas import (
    Schemas,
    SchemaView,
    list_schemas,
    publish_schema,
    resolve_schemas,
    show_schema,
)
from stepkeep.operations.definitions.versions import VersionDifferences, compare_versions
from stepkeep.operations.definitions.withdrawn import MAX_REASON, Restored, Withdrawn
from stepkeep.operations.operation import Actor, Row, group, operation
from stepkeep.operations.runs.diagnosis import UnservedSteps, unserved_steps
from stepkeep.operations.triggers.manage import install
from stepkeep.operations.typed import InPython

if TYPE_CHECKING:
    from stepkeep.definition.python.registry import Output
    from stepkeep.definition.python.workflow import Workflow


log = logging.getLogger("stepkeep.engine")

MOST_KNOWN_PLANS = 1_000
BEFORE = "Call engine.publish(workflow) before the transaction begins."

Runnable: TypeAlias = "Workflow[Output] | Definition | Plan | Newest | str | Path"
"""What can be started: a workflow object, a definition, the path of a definition file, a published name, or the
result of `publish`, which is fastest for many runs of the same workflow."""

Ref = Annotated[str, Meta(description="The reference of a schema.", examples=["order-v1"])]
Document = Annotated[
    Mapping[str, Any], InPython(dict[str, Any]), Meta(description="A JSON Schema.", examples=[{"type": "object"}])
]
WorkflowName = Annotated[str, Meta(max_length=255, description="The name of a workflow.", examples=["hello"])]
OfWorkflow = Annotated[Annotated[str, Meta(max_length=255)] | None, says("Only the versions of this one.")]
Version = Annotated[int, Meta(ge=1, le=MAX_VERSION)]
PublishedVersion = Annotated[Version | None, says("By default the highest one.")]
OldVersion = Annotated[Version | None, says("By default the one before `new`.")]
NewVersion = Annotated[Version | None, says("By default the highest one.")]
Live = Annotated[bool, says("Also examine the live runs of the old version.")]


def names_version(workflow: Runnable) -> bool:
    """Whether the caller says which version is started; a name alone stands for the newest."""
    return not isinstance(workflow, Newest) and not (isinstance(workflow, str) and not looks_like_a_file(workflow))


@group("", "Workflows")
class AsyncDefinitions(AsyncBase):
    """Publishing, and what can be started."""

    async def publish(self, workflow: Runnable) -> Plan:
        """Publish a workflow, or return the published one; a plain name finds the highest published version.

        >>> engine.publish(hello).definition.name
        'hello'
        """
        return await self._publish(workflow)

    async def _plan(self, workflow: Runnable) -> Plan:
        """The plan of what is started. A key that may not publish starts what is published already."""
        if self.access.may(Scope.OPERATE):
            return await self._publish(workflow)
        return await self._published(workflow, "This key lacks the scope operate, which publish needs.")

    async def _publish(self, workflow: Runnable) -> Plan:
        found = await self._definition(workflow)
        if isinstance(found, Plan):
            return found
        if (known := self._plans.get(id(found))) is not None:
            return known[1]
        definition = await self._draft(found) if self._dev else found
        plan = await publish(self.transactor, definition, caller=Caller(self.tenant, self.actor))
        if plan.definition_id not in self._installed:
            await install(self._firer, plan.definition, caller=Caller(self.tenant, self.actor))
            self._installed.add(plan.definition_id)
        if len(self._plans) >= MOST_KNOWN_PLANS:
            self._plans.clear()
        # An unchanged Workflow gives the same definition again, which is kept so that its id stays its own.
        self._plans[id(found)] = found, plan
        return plan

    async def _draft(self, definition: Definition) -> Definition:
        """The definition under a version of its own, if its content was changed since it was published."""
        draft = await as_draft(self.transactor, definition, tenant=self.tenant)
        if draft.version != definition.version:
            log.warning("the workflow has changed: it runs as version %d of %s", draft.version, draft.name)
        return draft

    async def _published(self, workflow: Runnable, hint: str = BEFORE) -> Plan:
        """The plan of a workflow that was published before. Nothing is written: the caller may hold a lock."""
        definition = await self._definition(workflow)
        if not isinstance(definition, Definition):
            return definition
        definition = await resolve_schemas(self.transactor, definition, tenant=self.tenant)
        stored = await self.store.read_definition(self.tenant, definition.name, definition.version)
        if stored is None or not is_published(stored, definition):
            raise InvalidInput(f"{definition.name} is not published yet. {hint}")
        return self.transactor.plans.add(stored)

    async def _definition(self, workflow: Runnable) -> Definition | Plan:
        """The definition of what can be started, or the plan of a published one."""
        if isinstance(workflow, Plan | Newest):
            return workflow if isinstance(workflow, Plan) else workflow.plan
        # A caller with a Workflow has imported it; a worker without one need not.
        from stepkeep.definition.python.workflow import Workflow

        if isinstance(workflow, Workflow):
            workflow = workflow.definition()
        elif isinstance(workflow, Path) or (isinstance(workflow, str) and looks_like_a_file(workflow)):
            workflow = load_file(Path(workflow), self.registry)
        if isinstance(workflow, str):
            name = validate.key("the name of a workflow", workflow)
            return await find_plan(self.transactor, name, None, tenant=self.tenant)
        if not isinstance(workflow, Definition):
            raise InvalidInput(
                f"a {type(workflow).__name__} is no workflow. Pass a Workflow, a file or a published name."
            )
        return workflow

    @operation(
        OPERATE,
        "PUT /schemas/{ref:path}",
        "publish_schema",
        "Publish a JSON Schema",
        tag="Schemas",
        names={"schema": "document"},
    )
    async def publish_schema(self, ref: Ref, schema: Document) -> SchemaView:
        """Publish a JSON Schema, to which definitions refer with `{ref: NAME}`. A published schema never changes: the
        same content again changes nothing, other content is refused.

        >>> engine.publish_schema("invoice/v1", {"type": "object", "required": ["id"]}).schema.ref
        'invoice/v1'
        """
        return await publish_schema(self.transactor, ref, schema, caller=Caller(self.tenant, self.actor))

    @operation(
        READ, "GET /schemas", "list_schemas", "List published schemas", tag="Schemas", pages="schemas", page_key="ref"
    )
    async def schemas(self) -> Schemas:
        """Published schemas by reference.

        >>> published = engine.publish_schema("order/v1", {"type": "object"})
        >>> "order/v1" in [one.ref for one in engine.schemas().schemas]
        True
        """
        return await list_schemas(self.transactor, tenant=self.tenant)

    @operation(READ, "GET /schemas/{ref:path}", "get_schema", "Show a schema", tag="Schemas")
    async def schema(self, ref: Ref) -> SchemaView:
        """One published schema with its document.

        >>> published = engine.publish_schema("order/v1", {"type": "object"})
        >>> engine.schema("order/v1").schema.document
        {'type': 'object'}
        """
        return await show_schema(self.transactor, ref, tenant=self.tenant)

    @operation(
        READ,
        "GET /workflows",
        "list_workflows",
        "List published workflows",
        pages="definitions",
        page_key="workflow@version",
        agents="reads",
    )
    async def definitions(self, *, name: OfWorkflow = None) -> Definitions:
        """Published workflows with their versions, by name and version.

        >>> _ = engine.publish(hello)
        >>> [(one.workflow, one.version) for one in engine.definitions().definitions]
        [('hello', 1)]
        """
        wanted = optional_key("the name of a workflow", name)
        return await list_published(self.transactor, wanted, tenant=self.tenant)

    @operation(
        READ,
        "GET /workflows/{name:path}/unserved",
        "list_unserved_steps",
        "Which steps of a workflow no live worker takes",
        names={"workflow": "name"},
    )
    async def unserved(self, workflow: WorkflowName, version: PublishedVersion = None) -> UnservedSteps:
        """The steps of a published version that would wait, because no live worker could take them.

        >>> _ = engine.publish(hello)
        >>> engine.unserved("hello").unserved
        ['no worker is alive: the run waits until one is started']
        """
        name = validate.key("the name of a workflow", workflow)
        plan = await find_plan(self.transactor, name, version, tenant=self.tenant)
        return UnservedSteps(unserved=await unserved_steps(self.transactor, plan, tenant=self.tenant))

    @operation(
        READ,
        "GET /workflows/{name:path}/compare",
        "compare_versions",
        "Compare two versions of a workflow",
        names={"workflow": "name"},
    )
    async def compare_versions(
        self, workflow: WorkflowName, old: OldVersion = None, new: NewVersion = None, *, live: Live = False
    ) -> VersionDifferences:
        """What differs between two versions of a workflow, and what it means for runs of the old one.

        With `live`, also how many of its live runs could continue under the new version, and why others could not.

        >>> _ = engine.publish(hello)
        >>> engine.compare_versions("hello", 1, 1).same
        True
        """
        name = validate.key("the name of a workflow", workflow)
        return await compare_versions(self.transactor, name, old, new, tenant=self.tenant, live=live)


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
