"""Workflows: publish a definition in any dialect, check one, list and show the published ones."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from fastapi import Path, Query
from pydantic import BaseModel, Field
from starlette.requests import Request

from stepkeep.api.bodies import DIALECTS, Anything, Cursor, Limit, Moment, Page, page
from stepkeep.api.requests import BoundedRequest
from stepkeep.api.routing import Answer, Engine, answers, router
from stepkeep.definition.bounds import MAX_VERSION
from stepkeep.definition.declared import KINDS, declared_registry
from stepkeep.definition.document import parse_document
from stepkeep.definition.native import CheckReport, accepted
from stepkeep.definition.registry import Registry
from stepkeep.dialects.registry import examine
from stepkeep.kernel.errors import DefinitionError, InvalidInput, NotFound, Problem
from stepkeep.operations.aside import aside
from stepkeep.operations.publish import find_plan

routes = router("Workflows")

MAX_DEFINITION_BYTES = 256 * 1024
DECLARED = {"definition", "elsewhere", *KINDS}
YAML_TYPES = ("application/yaml", "application/x-yaml", "text/yaml")
TYPES = ("application/json", *YAML_TYPES)
EXAMPLE = """workflow: hello
steps:
  - name: greet
    uses: greet
"""
BODY = {
    "requestBody": {
        "required": True,
        "description": "A definition in the native format or in a dialect, as JSON or YAML. With what the decorators "
        "of its handlers say, JSON: `{definition: TEXT_OR_OBJECT, handlers: {NAME: {undo, retry, timeout, …}}}`, and "
        "`agents` like `handlers`. Then every handler must be among them, unless `elsewhere` is true. A step whose "
        "handler is not known, and whose effect a rollback would leave behind, must say its `undo` or its `effect`.",
        "content": {
            "application/yaml": {"schema": {"type": "string"}, "example": EXAMPLE},
            "application/json": {"schema": {"type": "object"}},
        },
    }
}

ANY_BODY = {
    "requestBody": {
        **BODY["requestBody"],
        "content": {
            "application/yaml": {"schema": {}, "example": EXAMPLE},
            "application/json": {"schema": {}},
        },
    }
}
"""What is checked may be anything: the answer says what is wrong with it."""

WorkflowName = Annotated[str, Path(description="The name of a workflow.", examples=["hello"])]
VersionNumber = Annotated[int, Path(ge=1, le=MAX_VERSION)]
WrittenAs = Annotated[
    str | None,
    Query(alias="as", pattern=f"^(native|{DIALECTS})$", description="What it is written in, if it does not show."),
]


class Withdrawal(BaseModel):
    """Since when a version is withdrawn, by whom and why."""

    at: Moment
    by: str
    reason: str


class DefinitionSummary(BaseModel):
    """A published version of a workflow."""

    workflow: str
    version: int
    dialect: str
    digest: str
    published_at: Moment
    published_by: str
    withdrawn: Withdrawal | None = Field(default=None, description="Set while no run of it may start.")


class Definitions(Page):
    """Published workflows by name and version."""

    definitions: list[DefinitionSummary]


class Published(BaseModel):
    """The version that was published, or was there with the same content."""

    definition: DefinitionSummary
    warnings: list[Anything]


class PlaceDifference(BaseModel):
    """A place in a field at which two versions differ, with both values as texts: durations have their units."""

    place: str
    old: str
    new: str


class FieldDifference(BaseModel):
    """A field that differs. Its `kind` is `meaning`, `setting` or `edge`."""

    field: str
    kind: str
    old: Any = None
    new: Any = None
    places: list[PlaceDifference]


class StepDifference(BaseModel):
    """A step that was `added`, `removed` or `changed`."""

    name: str
    change: str
    differences: list[FieldDifference]


class VersionName(BaseModel):
    """A version of a workflow."""

    workflow: str
    version: int


class ReasonToStay(BaseModel):
    """Why runs could not continue under the new version, and how many."""

    reason: str
    runs: int


class StayingRun(BaseModel):
    """A run that could not continue under the new version."""

    run_id: str
    reasons: list[str]


class LiveRuns(BaseModel):
    """The live runs of the old version."""

    examined: int
    is_complete: bool
    could_continue: int
    must_stay: int
    reasons: list[ReasonToStay]
    examples: list[StayingRun]


class VersionDifferences(BaseModel):
    """What differs between two versions."""

    from_: VersionName = Field(alias="from")
    to: VersionName
    same: bool
    workflow: list[FieldDifference]
    steps: list[StepDifference]
    consequences: list[str]
    live: LiveRuns | None = None


class DefinitionView(BaseModel):
    """A published version with its definition, every default made explicit."""

    definition: DefinitionSummary
    document: Anything


class Check(BaseModel):
    """Everything that is wrong with a definition, and advice."""

    ok: bool
    workflow: str | None
    dialect: str | None
    version: int | None
    steps: int | None
    problems: list[Anything]
    warnings: list[Anything]


@routes.post(
    "/workflows",
    operation_id="publish_workflow",
    summary="Publish a workflow",
    status_code=201,
    response_model=None,
    openapi_extra=BODY,
    responses={**answers(Published, status=201, says="Published"), **answers(Published, says="Was there")},
)
async def publish_workflow(request: Request, engine: Engine, as_: WrittenAs = None) -> Answer:
    """A published version never changes: the same content again is answered with 200, other content with 409."""
    report = await _report(request, engine, as_)
    definition = accepted(report)
    before = await _versions(engine, definition.name)
    plan = await engine.publish(definition)
    found = next(one for one in await _versions(engine, definition.name) if one["version"] == plan.definition.version)
    is_new = found["version"] not in {one["version"] for one in before}
    said = {"definition": found, "warnings": [_told(one) for one in report.warnings]}
    return Answer(
        said, 201 if is_new else 200, {"Location": f"/workflows/{found['workflow']}/versions/{found['version']}"}
    )


@routes.post(
    "/workflows/check",
    operation_id="check_workflow",
    summary="Check a definition",
    response_model=None,
    openapi_extra=ANY_BODY,
    responses=answers(Check),
)
async def check_workflow(request: Request, engine: Engine, as_: WrittenAs = None) -> Answer:
    """All problems at once, with their places. Nothing is published."""
    try:
        report = await _report(request, engine, as_)
    except DefinitionError as problem:
        report = CheckReport(definition=None, problems=problem.problems)
    made = report.definition
    return Answer(
        {
            "ok": not report.problems,
            "workflow": None if made is None else made.name,
            "dialect": None if made is None else made.dialect,
            "version": None if made is None else made.version,
            "steps": None if made is None else len(made.steps),
            "problems": [_told(one) for one in report.problems],
            "warnings": [_told(one) for one in report.warnings],
        }
    )


@routes.get(
    "/workflows",
    operation_id="list_workflows",
    summary="List published workflows",
    response_model=None,
    responses=answers(Definitions),
)
async def list_workflows(
    engine: Engine,
    name: Annotated[str | None, Query(max_length=255, description="Only the versions of this one.")] = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Answer:
    """By name and version."""
    found = (await engine.definitions(name=name))["definitions"]
    shown, following = page(found, lambda one: f"{one['workflow']}@{one['version']}", cursor, limit)
    return Answer({"definitions": shown, "next": following})


@routes.get(
    "/workflows/{name:path}/compare",
    operation_id="compare_versions",
    summary="Compare two versions of a workflow",
    response_model=None,
    responses=answers(VersionDifferences),
)
async def compare_versions(
    engine: Engine,
    name: WorkflowName,
    old: Annotated[int | None, Query(ge=1, le=MAX_VERSION, description="By default the one before `new`.")] = None,
    new: Annotated[int | None, Query(ge=1, le=MAX_VERSION, description="By default the highest one.")] = None,
    live: Annotated[bool, Query(description="Also examine the live runs of the old version.")] = False,
) -> Answer:
    """What differs, and what it means for runs of the old version."""
    versions = [one["version"] for one in await _versions(engine, name)]
    if not versions:
        raise NotFound(f"there is no published workflow {name}")
    now = versions[-1] if new is None else new
    earlier = [one for one in versions if one < now]
    was = (earlier or [now])[-1] if old is None else old
    return Answer(await engine.compare_versions(name, was, now, live=live))


@routes.get(
    "/workflows/{name:path}/versions/{version}",
    operation_id="get_workflow_version",
    summary="Show a version of a workflow",
    response_model=None,
    responses=answers(DefinitionView),
)
async def get_workflow_version(engine: Engine, name: WorkflowName, version: VersionNumber) -> Answer:
    return await _show(engine, name, version)


@routes.get(
    "/workflows/{name:path}",
    operation_id="get_workflow",
    summary="Show the highest version of a workflow",
    response_model=None,
    responses=answers(DefinitionView),
)
async def get_workflow(engine: Engine, name: WorkflowName) -> Answer:
    return await _show(engine, name, None)


async def _show(engine: Engine, name: str, version: int | None) -> Answer:
    plan = await find_plan(engine.transactor, name, version, tenant=engine.tenant)
    found = [one for one in await _versions(engine, name) if one["version"] == plan.definition.version]
    if not found:
        raise NotFound(f"there is no published workflow {name}")
    return Answer({"definition": found[0], "document": msgspec.json.decode(plan.document)})


async def _versions(engine: Engine, name: str) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = (await engine.definitions(name=name))["definitions"]
    return listed


async def _report(request: Request, engine: Engine, as_: str | None) -> CheckReport:
    assert isinstance(request, BoundedRequest)
    body = await request.read(media_types=TYPES, limit=MAX_DEFINITION_BYTES)
    if not body:
        raise InvalidInput("the body is empty: send a definition as YAML or JSON.")
    is_json = request.headers.get("content-type", "").startswith("application/json")
    # A large definition takes a while: other requests go on meanwhile.
    return await aside(request.share, _examine, body, "json" if is_json else "yaml", as_, engine.registry)


def _examine(body: bytes, syntax: Literal["json", "yaml"], as_: str | None, own: Registry) -> CheckReport:
    document = parse_document(body, "body", syntax=syntax)
    if not (isinstance(document.data, dict) and {"definition", "handlers"} <= set(document.data) <= DECLARED):
        return examine(document, own, as_, all_known=False)
    written, declared = document.data["definition"], {key: document.data.get(key, {}) for key in KINDS}
    for key, said in declared.items():
        if not isinstance(said, dict):
            raise InvalidInput(f"`{key}` is a mapping from each name to what its decorator says.")
    elsewhere = document.data.get("elsewhere", False)
    if not isinstance(elsewhere, bool):
        raise InvalidInput("`elsewhere` is true or false: whether there are handlers that `handlers` does not have.")
    text = written if isinstance(written, str) else msgspec.json.encode(written).decode()
    given = parse_document(text, "definition", syntax="yaml")
    return examine(given, declared_registry(declared), as_, all_known=not elsewhere)


def _told(problem: Problem) -> dict[str, Any]:
    return msgspec.structs.asdict(problem)
