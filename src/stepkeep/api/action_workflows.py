"""Workflows and plans of seed 003, below `/v1/workspaces/{workspaceId}`. A workspace is a tenant.

Only workflows that were published in this dialect are here: another one has no ports and tiers to show. A workflow is
published as a version, which never changes. `action_service` has runs and approvals.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

import msgspec
from fastapi import Path
from pydantic import BaseModel, ConfigDict, Field

from stepkeep.api.action_service import DIALECT, Cursor, Workspace, own_workspace
from stepkeep.api.bodies import RUN_ID, Anything, Body, Limit, page
from stepkeep.api.routing import Answer, Engine, answers, router
from stepkeep.definition.bounds import MAX_VERSION
from stepkeep.definition.document import parse_document
from stepkeep.definition.native import accepted
from stepkeep.dialects.action.plan import plan_id
from stepkeep.dialects.action.shapes import operation_of
from stepkeep.dialects.registry import examine
from stepkeep.engine import AsyncEngine
from stepkeep.kernel.errors import Conflict, InvalidInput, NotFound
from stepkeep.operations.aside import aside
from stepkeep.operations.publish import find_plan
from stepkeep.operations.withdrawn import list_withdrawn

routes = router("Dialect action")

Tier = Literal["Auto", "Assisted", "HumanApprove", "ManualOnly"]
WorkflowOf = Annotated[str, Path(alias="workflowId", max_length=255, description="Its name.", examples=["invoice"])]
PlanOf = Annotated[
    str, Path(alias="planId", max_length=255, description="`planId` of a run or approval.", examples=[f"{RUN_ID}/plan"])
]


class NewActionWorkflow(Body):
    """A version of a workflow, in the seed's fields. The workspace is that of the address."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "name": "Read an invoice",
                    "executionTier": "Auto",
                    "actions": [
                        {"actionId": "read", "order": 1, "portFamily": "FinanceAccounting", "operation": "invoice:read"}
                    ],
                }
            ]
        }
    )

    name: str = Field(min_length=1, max_length=4000)
    executionTier: Tier  # noqa: N815 - the seed's name
    actions: list[Anything] = Field(min_length=1, max_length=10_000)
    workflowId: str | None = Field(  # noqa: N815
        default=None, min_length=1, max_length=255, description="By default made from the name."
    )
    version: int | None = Field(default=None, ge=1, le=MAX_VERSION, description="By default the next one.")
    schemaVersion: Literal[1, 2] = 1  # noqa: N815
    description: str = Field(default="", max_length=4000)
    active: bool = True
    edges: list[Anything] | None = None
    capabilities: Anything | None = None
    sodConstraints: list[Anything] | None = None  # noqa: N815


class ChangedActionWorkflow(Body):
    """Whether runs of a workflow may start, and why."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"active": False, "rationale": "replaced"}]})

    active: bool
    rationale: str = Field(default="changed over HTTP", min_length=1, max_length=4000)


class WorkflowV1(BaseModel):
    """A workflow in the seed's shape."""

    schemaVersion: int  # noqa: N815
    workflowId: str  # noqa: N815
    workspaceId: str  # noqa: N815
    name: str
    description: str
    version: int
    active: bool
    executionTier: str  # noqa: N815
    actions: list[Anything]


class WorkflowPage(BaseModel):
    """Workflows by name, each in its highest version."""

    items: list[WorkflowV1]
    nextCursor: str | None = None  # noqa: N815


class PlanV1(BaseModel):
    """The effects that a run should have, and those that were verified."""

    model_config = ConfigDict(extra="allow")

    planId: str  # noqa: N815
    plannedEffects: list[Anything]  # noqa: N815
    verifiedEffects: list[Anything]  # noqa: N815


@routes.post(
    "/v1/workspaces/{workspaceId}/workflows",
    operation_id="create_action_workflow",
    summary="Publish a workflow",
    status_code=201,
    response_model=None,
    responses={**answers(WorkflowV1, status=201, says="Published"), **answers(WorkflowV1, says="Was there")},
)
async def create_action_workflow(engine: Engine, workspace: Workspace, body: NewActionWorkflow) -> Answer:
    """Without a version, the next one, or the highest one if it says the same. A version with other content is 409, and
    a definition with problems 422."""
    own_workspace(engine, workspace)
    written = {name: value for name, value in body.model_dump().items() if value is not None}
    written |= {"workspaceId": engine.tenant, "workflowId": body.workflowId or _id_of(body.name)}
    before = await _highest(engine, written["workflowId"])
    if body.version is not None or before is None:
        return await _publish(engine, {"version": 1, **written})
    try:
        return await _publish(engine, {**written, "version": before})
    except Conflict:
        return await _publish(engine, {**written, "version": before + 1})


@routes.get(
    "/v1/workspaces/{workspaceId}/workflows",
    operation_id="list_action_workflows",
    summary="List workflows",
    response_model=None,
    responses=answers(WorkflowPage),
)
async def list_action_workflows(
    engine: Engine, workspace: Workspace, cursor: Cursor = None, limit: Limit = 50
) -> Answer:
    """Those that were published in this dialect."""
    own_workspace(engine, workspace)
    names = {
        one["workflow"]: one["dialect"] for one in (await engine.definitions())["definitions"]
    }  # the highest version comes last
    mine = sorted(name for name, dialect in names.items() if dialect == DIALECT)
    shown, following = page(mine, str, cursor, limit)
    return Answer({"items": [await _workflow(engine, name) for name in shown], "nextCursor": following})


@routes.get(
    "/v1/workspaces/{workspaceId}/workflows/{workflowId}",
    operation_id="get_action_workflow",
    summary="Show a workflow",
    response_model=None,
    responses=answers(WorkflowV1),
)
async def get_action_workflow(engine: Engine, workspace: Workspace, name: WorkflowOf) -> Answer:
    """In its highest version."""
    own_workspace(engine, workspace)
    return Answer(await _workflow(engine, name))


@routes.patch(
    "/v1/workspaces/{workspaceId}/workflows/{workflowId}",
    operation_id="change_action_workflow",
    summary="Activate or deactivate a workflow",
    response_model=None,
    responses=answers(WorkflowV1),
)
async def change_action_workflow(
    engine: Engine, workspace: Workspace, name: WorkflowOf, body: ChangedActionWorkflow
) -> Answer:
    """Of its highest version, which is withdrawn or restored. Other content is another version: publish it."""
    own_workspace(engine, workspace)
    found = await _workflow(engine, name)
    if body.active:
        await engine.versions.restore(name, found["version"])
    else:
        await engine.versions.withdraw(name, found["version"], reason=body.rationale)
    return Answer({**found, "active": body.active})


@routes.delete(
    "/v1/workspaces/{workspaceId}/workflows/{workflowId}",
    operation_id="archive_action_workflow",
    summary="Archive a workflow",
    response_model=None,
    responses=answers(WorkflowV1),
)
async def archive_action_workflow(engine: Engine, workspace: Workspace, name: WorkflowOf) -> Answer:
    """Every version is withdrawn: no run of it starts any more, and live runs go on. A version is never deleted."""
    own_workspace(engine, workspace)
    found = await _workflow(engine, name)
    for one in (await engine.definitions(name=name))["definitions"]:
        if not one.get("withdrawn"):
            await engine.versions.withdraw(name, one["version"], reason="archived")
    return Answer({**found, "active": False})


@routes.get(
    "/v1/workspaces/{workspaceId}/plans/{planId:path}",
    operation_id="get_action_plan",
    summary="Show the plan of a run",
    response_model=None,
    responses=answers(PlanV1),
)
async def get_action_plan(engine: Engine, workspace: Workspace, plan: PlanOf) -> Answer:
    """A plan is derived from its run."""
    own_workspace(engine, workspace)
    run_id = plan.partition("/")[0]
    if plan != plan_id(run_id):
        raise NotFound(f"there is no plan {plan[:80]!a}.")
    found = await engine.show(run_id, as_=DIALECT)
    return Answer({**found["plan"], "workspaceId": engine.tenant})


async def _publish(engine: AsyncEngine, written: dict[str, Any]) -> Answer:
    document = msgspec.json.encode(written)
    # A large definition takes a while: other requests go on meanwhile.
    work = lambda: examine(parse_document(document, "body", syntax="json"), None, DIALECT)  # noqa: E731
    report = await aside(engine.tenant, work)
    definition = accepted(report)
    known = {one["version"] for one in (await engine.definitions(name=definition.name))["definitions"]}
    made = (await engine.publish(definition)).definition
    return Answer(_shown(engine, made), 200 if made.version in known else 201)


async def _workflow(engine: AsyncEngine, name: str) -> dict[str, Any]:
    found = (await find_plan(engine.transactor, name, None, tenant=engine.tenant)).definition
    if found.dialect != DIALECT:
        raise NotFound(f"there is no workflow {name[:80]!a} of this dialect.")
    shown = _shown(engine, found)
    if (found.name, found.version) in await list_withdrawn(engine.store, engine.tenant):
        shown["active"] = False
    return shown


async def _highest(engine: AsyncEngine, name: str) -> int | None:
    listed = (await engine.definitions(name=name))["definitions"]
    return max((one["version"] for one in listed), default=None)


def _shown(engine: AsyncEngine, definition: Any) -> dict[str, Any]:
    """WorkflowV1 of a published definition."""
    about = definition.about
    steps = {step["name"]: step for step in msgspec.to_builtins(definition)["steps"]}
    return {
        "schemaVersion": about["schemaVersion"],
        "workflowId": definition.name,
        "workspaceId": engine.tenant,
        "name": about["name"],
        "description": definition.description,
        "version": definition.version,
        "active": about.get("active", True),
        "executionTier": about["executionTier"],
        "actions": [
            {"actionId": name, "order": order, "operation": operation_of(steps[name]), **said}
            for order, (name, said) in enumerate(about["actions"].items(), 1)
        ],
    }


def _id_of(name: str) -> str:
    """The id of a workflow that has none.

    >>> _id_of("Correct an invoice")
    'correct-an-invoice'
    """
    made = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:100]
    if not made:
        raise InvalidInput("workflowId is missing, and the name has no letter or digit to make one from.")
    return made
