"""The engine's part about definitions: publish workflows and schemas, and find what can be started.

Each method checks its arguments and calls operations. It starts nothing. `AsyncEngine` inherits it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from stepkeep.definition import arguments
from stepkeep.definition.bounds import MAX_VERSION
from stepkeep.dialects.registry import load_file
from stepkeep.engine.arguments import (
    looks_like_a_file,
    optional_key,
)
from stepkeep.engine.base import AsyncBase
from stepkeep.kernel.definition import Definition
from stepkeep.kernel.errors import (
    InvalidInput,
)
from stepkeep.kernel.plan import Plan
from stepkeep.operations import (
    validate,
)
from stepkeep.operations.access import Scope
from stepkeep.operations.publish import Newest, as_draft, find_plan, is_published, list_published, publish
from stepkeep.operations.schemas import list_schemas, publish_schema, resolve_schemas, show_schema
from stepkeep.operations.triggers.manage import install
from stepkeep.operations.versions import compare_versions

if TYPE_CHECKING:
    from stepkeep.definition.python import Workflow

log = logging.getLogger("stepkeep.engine")

MOST_KNOWN_PLANS = 1_000
BEFORE = "Call engine.publish(workflow) before the transaction begins."

Runnable: TypeAlias = "Workflow | Definition | Plan | Newest | str | Path"
"""What can be started: a workflow object, a definition, the path of a definition file, a published name, or the
result of `publish`, which is fastest for many runs of the same workflow."""


def names_version(workflow: Runnable) -> bool:
    """Whether the caller says which version is started; a name alone stands for the newest."""
    return not isinstance(workflow, Newest) and not (isinstance(workflow, str) and not looks_like_a_file(workflow))


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
        plan = await publish(self.transactor, definition, tenant=self.tenant, actor=self.actor)
        if plan.definition_id not in self._installed:
            await install(self._firer, plan.definition, tenant=self.tenant, actor=self.actor)
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
        from stepkeep.definition.python import Workflow

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

    async def publish_schema(self, ref: str, schema: Mapping[str, Any]) -> dict[str, Any]:
        """Publish a JSON Schema, to which definitions refer with `{ref: NAME}`. A published schema never changes.

        >>> engine.publish_schema("invoice/v1", {"type": "object", "required": ["id"]})["schema"]["ref"]
        'invoice/v1'
        """
        return await publish_schema(self.transactor, ref, schema, tenant=self.tenant, actor=self.actor)

    async def schemas(self) -> dict[str, Any]:
        """Published schemas by reference.

        >>> published = engine.publish_schema("order/v1", {"type": "object"})
        >>> "order/v1" in [one["ref"] for one in engine.schemas()["schemas"]]
        True
        """
        return await list_schemas(self.transactor, tenant=self.tenant)

    async def schema(self, ref: str) -> dict[str, Any]:
        """One published schema with its document.

        >>> published = engine.publish_schema("order/v1", {"type": "object"})
        >>> engine.schema("order/v1")["schema"]["document"]
        {'type': 'object'}
        """
        return await show_schema(self.transactor, ref, tenant=self.tenant)

    async def definitions(self, *, name: str | None = None) -> dict[str, Any]:
        """Published workflows with their versions, by name and version.

        >>> _ = engine.publish(hello)
        >>> [(one["workflow"], one["version"]) for one in engine.definitions()["definitions"]]
        [('hello', 1)]
        """
        wanted = optional_key("the name of a workflow", name)
        return await list_published(self.transactor, wanted, tenant=self.tenant)

    async def compare_versions(self, workflow: str, old: int, new: int, *, live: bool = False) -> dict[str, Any]:
        """What differs between two versions of a workflow, and what it means for runs of the old one.

        With `live`, also how many of its live runs could continue under the new version, and why others could not.

        >>> _ = engine.publish(hello)
        >>> engine.compare_versions("hello", 1, 1)["same"]
        True
        """
        name = validate.key("the name of a workflow", workflow)
        was, now = [arguments.whole("compare_versions: a version", one, 1, MAX_VERSION) for one in (old, new)]
        wanted = arguments.flag("compare_versions: live", live)
        return await compare_versions(self.transactor, name, was, now, tenant=self.tenant, live=wanted)
