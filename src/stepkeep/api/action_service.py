"""The service of seed 003: its addresses and bodies below `/v1/workspaces/{workspaceId}`. A workspace is a tenant.

Each route calls the operation of its native sibling and answers in the seed's shapes (`?as=action`). Another workspace
than that of the key is 404. `action_workflows` has workflows and plans. What is not here is in docs/dialects/action.md.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Path, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request

from stepkeep.api.bodies import RUN_ID, Anything, Body, IdempotencyKey, Limit
from stepkeep.api.idempotency import under_way
from stepkeep.api.routing import Answer, Engine, answers, router
from stepkeep.engine import AsyncEngine
from stepkeep.kernel.errors import InvalidInput, NotFound
from stepkeep.operations.publish import Newest, find_plan

routes = router("Dialect action")

DIALECT = "action"
Workspace = Annotated[str, Path(alias="workspaceId", max_length=255, description="The tenant.", examples=["default"])]
RunOf = Annotated[str, Path(alias="runId", max_length=255, description="The id of a run.", examples=[RUN_ID])]
ApprovalOf = Annotated[
    str, Path(alias="approvalId", max_length=600, description="RUN:STEP.", examples=[f"{RUN_ID}:sign"])
]
Cursor = Annotated[str | None, Query(max_length=600, description="`nextCursor` of the page before.")]


class NewActionRun(Body):
    """A run of a workflow."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"workflowId": "hello", "parameters": {"name": "Ada"}}]})

    workflowId: str = Field(max_length=255)  # noqa: N815 - the seed's name
    parameters: dict[str, Any] = Field(default={})


class ApprovalDecision(Body):
    """A decision, with the reason for it."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"decision": "Approved", "rationale": "the price fits"}]})

    decision: Literal["Approved", "Denied", "RequestChanges"]
    rationale: str = Field(min_length=1, max_length=4000)


class Intervention(Body):
    """What a person does to a run, and why."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"interventionType": "annotate", "rationale": "the bank has a holiday"}]}
    )

    interventionType: Literal["pause", "resume", "escalate", "annotate", "freeze"]  # noqa: N815 - the seed's name
    rationale: str = Field(min_length=8, max_length=4000)
    target: str | None = Field(default=None, max_length=255, description="The action; of `escalate` and `annotate`.")


class RunV1(BaseModel):
    """A run in the seed's shape."""

    model_config = ConfigDict(extra="allow")

    runId: str  # noqa: N815
    workspaceId: str  # noqa: N815
    workflowId: str  # noqa: N815
    correlationId: str  # noqa: N815
    initiatedByUserId: str  # noqa: N815
    status: str
    createdAtIso: str  # noqa: N815


class RunPage(BaseModel):
    """Runs, newest first."""

    items: list[RunV1]
    nextCursor: str | None = None  # noqa: N815


class ItemPage(BaseModel):
    """A page of items."""

    items: list[Anything]
    nextCursor: str | None = None  # noqa: N815


class DecidedApproval(BaseModel):
    """An approval that was decided."""

    approvalId: str  # noqa: N815
    runId: str  # noqa: N815
    status: str
    decidedByUserId: str | None  # noqa: N815


@routes.post(
    "/v1/workspaces/{workspaceId}/runs",
    operation_id="create_action_run",
    summary="Create a run",
    status_code=201,
    response_model=None,
    responses={**answers(RunV1, status=201, says="Created"), **answers(RunV1, says="Created before")},
)
async def create_action_run(
    request: Request, engine: Engine, workspace: Workspace, body: NewActionRun, idempotency_key: IdempotencyKey = None
) -> Answer:
    """An unknown workflow is 400."""
    own_workspace(engine, workspace)
    try:
        plan = await find_plan(engine.transactor, body.workflowId, None, tenant=engine.tenant)
    except NotFound as missing:
        raise InvalidInput(str(missing)) from None
    with under_way(request, engine, "start", idempotency_key):
        started = await engine.start(Newest(plan), body.parameters, idempotency_key=idempotency_key)
    return Answer(await _run(engine, started.run_id), 201 if started.created else 200)


@routes.get(
    "/v1/workspaces/{workspaceId}/runs",
    operation_id="list_action_runs",
    summary="List runs",
    response_model=None,
    responses=answers(RunPage),
)
async def list_action_runs(engine: Engine, workspace: Workspace, cursor: Cursor = None, limit: Limit = 50) -> Answer:
    own_workspace(engine, workspace)
    try:
        found = (await engine.runs(before=cursor, limit=limit, as_=DIALECT))["runs"]
    except NotFound:
        raise InvalidInput("cursor is `nextCursor` of the page before.") from None
    items = [{**one, "workspaceId": engine.tenant} for one in found]
    return Answer({"items": items, "nextCursor": items[-1]["runId"] if len(items) == limit else None})


@routes.get(
    "/v1/workspaces/{workspaceId}/runs/{runId}",
    operation_id="get_action_run",
    summary="Show a run",
    response_model=None,
    responses=answers(RunV1),
)
async def get_action_run(engine: Engine, workspace: Workspace, run_id: RunOf) -> Answer:
    own_workspace(engine, workspace)
    return Answer(await _run(engine, run_id))


@routes.post(
    "/v1/workspaces/{workspaceId}/runs/{runId}/cancel",
    operation_id="cancel_action_run",
    summary="Cancel a run",
    response_model=None,
    responses=answers(RunV1),
)
async def cancel_action_run(engine: Engine, workspace: Workspace, run_id: RunOf) -> Answer:
    """A run that is cancelled already is answered as it is; one that ended otherwise is 409."""
    own_workspace(engine, workspace)
    await engine.cancel(run_id)
    return Answer(await _run(engine, run_id))


@routes.post(
    "/v1/workspaces/{workspaceId}/runs/{runId}/interventions",
    operation_id="intervene_in_action_run",
    summary="Intervene in a run",
    response_model=None,
    responses=answers(RunV1),
)
async def intervene_in_action_run(engine: Engine, workspace: Workspace, run_id: RunOf, body: Intervention) -> Answer:
    """Each kind needs the scope of its own operation: `pause`, `resume` and `freeze` operate, the others decide."""
    own_workspace(engine, workspace)
    kind, why, target = body.interventionType, body.rationale, body.target
    if target is not None and kind not in ("escalate", "annotate"):
        raise InvalidInput(f"target names an action, and `{kind}` is about the whole run. Leave it out.")
    if kind == "pause":
        await engine.pause(run_id, reason=why)
    elif kind == "resume":
        await engine.resume(run_id, reason=why)
    elif kind == "freeze":
        await engine.interventions.freeze(run_id, reason=why)
    elif kind == "escalate":
        await engine.interventions.escalate(run_id, target, reason=why)
    else:
        await engine.interventions.annotate(run_id, why, step=target)
    return Answer(await _run(engine, run_id))


@routes.get(
    "/v1/workspaces/{workspaceId}/runs/{runId}/evidence",
    operation_id="list_action_evidence",
    summary="The evidence of a run",
    response_model=None,
    responses=answers(ItemPage),
)
async def list_action_evidence(engine: Engine, workspace: Workspace, run_id: RunOf) -> Answer:
    """Derived from the journal, all at once."""
    own_workspace(engine, workspace)
    return Answer({"items": (await _run(engine, run_id))["evidence"], "nextCursor": None})


@routes.get(
    "/v1/workspaces/{workspaceId}/approvals",
    operation_id="list_action_approvals",
    summary="List open approvals",
    response_model=None,
    responses=answers(ItemPage),
)
async def list_action_approvals(
    engine: Engine, workspace: Workspace, cursor: Cursor = None, limit: Limit = 50
) -> Answer:
    own_workspace(engine, workspace)
    found = await engine.approvals(after=cursor, limit=limit)
    items = [
        {
            "schemaVersion": 1,
            "approvalId": f"{one['run_id']}:{one['step']}",
            "workspaceId": engine.tenant,
            "runId": one["run_id"],
            "prompt": one["prompt"],
            "requestedAtIso": one["opened_at"],
            "requestedByUserId": one["asked_by"][0] if one["asked_by"] else None,
            "dueAtIso": one["until"],
            "status": "Pending",
        }
        for one in found["approvals"]
    ]
    return Answer({"items": items, "nextCursor": found.get("next")})


@routes.post(
    "/v1/workspaces/{workspaceId}/approvals/{approvalId}/decide",
    operation_id="decide_action_approval",
    summary="Decide an approval",
    response_model=None,
    responses=answers(DecidedApproval),
)
async def decide_action_approval(
    engine: Engine, workspace: Workspace, approval_id: ApprovalOf, body: ApprovalDecision
) -> Answer:
    """The same decision again is answered as before, another one is 409. `RequestChanges` leaves the approval open, and
    its decisions so far are void."""
    own_workspace(engine, workspace)
    run_id, _, step = approval_id.partition(":")
    if body.decision == "RequestChanges":
        said = await engine.interventions.request_changes(run_id, step or None, comment=body.rationale)
    else:
        decide = engine.approve if body.decision == "Approved" else engine.reject
        said = await decide(run_id, step or None, comment=body.rationale)
    return Answer({"approvalId": approval_id, "runId": run_id, "status": body.decision, "decidedByUserId": said["by"]})


def own_workspace(engine: AsyncEngine, workspace: str) -> None:
    """Another workspace is not there."""
    if workspace != engine.tenant:
        raise NotFound(f"there is no workspace {workspace[:80]!a}.")


async def _run(engine: AsyncEngine, run_id: str) -> dict[str, Any]:
    return {**await engine.show(run_id, as_=DIALECT), "workspaceId": engine.tenant}
