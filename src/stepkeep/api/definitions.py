"""Workflows: publish a definition in any dialect, check one, and walk the failure paths of a published one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from stepkeep.api.handwritten import Routes
from stepkeep.api.requests import BoundedRequest
from stepkeep.api.routing import JsonAnswer
from stepkeep.definition.bounds import MAX_VERSION
from stepkeep.definition.native.reader import CheckReport, accepted
from stepkeep.definition.python.declared import KINDS, declared_registry
from stepkeep.definition.python.registry import Registry
from stepkeep.definition.text.document import parse_document
from stepkeep.dialects.registry import examine, names
from stepkeep.engine.groups import ActingEngine
from stepkeep.kernel.definition import Definition, SubWorkflow, encode_definition
from stepkeep.kernel.errors import DefinitionError, InvalidInput
from stepkeep.operations.answers import Answer, says
from stepkeep.operations.aside import aside
from stepkeep.operations.definitions.publish import DefinitionSummary, find_plan, published_below
from stepkeep.simulate.report import simulate

routes = Routes("Workflows")

MAX_DEFINITION_BYTES = 256 * 1024
DECLARED = {"definition", "elsewhere", *KINDS}
YAML_TYPES = ("application/yaml", "application/x-yaml", "text/yaml")
TYPES = ("application/json", *YAML_TYPES)
EXAMPLE = """workflow: hello
steps:
  - name: greet
    uses: greet
"""
BODY: dict[str, Any] = {
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
ANY_BODY = {
    **BODY,
    "content": {"application/yaml": {"schema": {}, "example": EXAMPLE}, "application/json": {"schema": {}}},
}
"""What is checked may be anything: the answer says what is wrong with it."""

WorkflowName = Annotated[str, Meta(description="The name of a workflow.", examples=["hello"])]
VersionNumber = Annotated[int, Meta(ge=1, le=MAX_VERSION)]
WrittenAs = Annotated[
    Annotated[str, Meta(pattern=f"^(native|{'|'.join(names())})$")] | None,
    says("What it is written in, if it does not show."),
]


class PublishedAnswer(Answer, kw_only=True):
    """The version that was published, or was there with the same content."""

    definition: DefinitionSummary
    warnings: list[dict[str, Any]]


class CheckedDefinition(Answer, kw_only=True):
    """Everything that is wrong with a definition, and advice."""

    ok: bool
    workflow: str | None
    dialect: str | None
    version: int | None
    steps: int | None
    document: Annotated[dict[str, Any] | None, says("The definition, every default made explicit.")]
    problems: list[dict[str, Any]]
    warnings: list[dict[str, Any]]


@routes(
    "POST /workflows",
    "publish",
    "publish_workflow",
    "Publish a workflow",
    status=201,
    done="Published",
    also="Was there",
    answers=PublishedAnswer,
    reads=BODY,
)
async def publish_workflow(request: BoundedRequest, engine: ActingEngine, as_: WrittenAs = None) -> JsonAnswer:
    """A published version never changes: the same content again is answered with 200, other content with 409."""
    report = await _report(request, engine, as_)
    definition = accepted(report)
    before = await _versions(engine, definition.name)
    plan = await engine.publish(definition)
    found = next(one for one in await _versions(engine, definition.name) if one.version == plan.definition.version)
    is_new = found.version not in {one.version for one in before}
    said = PublishedAnswer(definition=found, warnings=[msgspec.structs.asdict(one) for one in report.warnings])
    return JsonAnswer(
        said, 201 if is_new else 200, {"Location": f"/workflows/{found.workflow}/versions/{found.version}"}
    )


@routes("POST /workflows/check", "definitions", "check_workflow", "Check a definition", reads=ANY_BODY)
async def check_workflow(request: BoundedRequest, engine: ActingEngine, as_: WrittenAs = None) -> CheckedDefinition:
    """All problems at once, with their places. Nothing is published."""
    try:
        report = await _report(request, engine, as_)
    except DefinitionError as problem:
        report = CheckReport(definition=None, problems=problem.problems)
    made = report.definition
    return CheckedDefinition(
        ok=not report.problems,
        workflow=None if made is None else made.name,
        dialect=None if made is None else made.dialect,
        version=None if made is None else made.version,
        steps=None if made is None else len(made.steps),
        document=None if made is None else msgspec.json.decode(encode_definition(made)),
        problems=[msgspec.structs.asdict(one) for one in report.problems],
        warnings=[msgspec.structs.asdict(one) for one in report.warnings],
    )


async def _versions(engine: ActingEngine, name: str) -> list[DefinitionSummary]:
    return (await engine.definitions(name=name)).definitions


async def _report(request: BoundedRequest, engine: ActingEngine, as_: str | None) -> CheckReport:
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


MOST_PATHS = 200
"""Paths that one request walks; `unwalked` counts the others."""


class Simulation(Answer, kw_only=True):
    """What `stepkeep simulate --json` prints."""

    workflow: str
    version: int
    dialect: str
    steps: list[str]
    paths: int
    unwalked: int
    longest: dict[str, Any]
    findings: list[dict[str, Any]]
    endings: list[dict[str, Any]]
    bounded: Sequence[str] = ()
    children: Sequence[dict[str, Any]] = ()


@routes(
    "GET /workflows/{name:path}/simulation",
    "definitions",
    "simulate_workflow",
    "Walk the failure paths of a workflow",
    answers=Simulation,
)
async def simulate_workflow(
    engine: ActingEngine,
    name: WorkflowName,
    version: Annotated[VersionNumber | None, says("The highest one by default.")] = None,
) -> JsonAnswer:
    """Through the engine's own decisions, on a virtual clock. At most 200 paths of it and of each workflow that it
    starts; `unwalked` counts the others."""
    plan = await find_plan(engine.transactor, name, version, tenant=engine.tenant)
    below = await published_below(engine.transactor, plan.definition, tenant=engine.tenant)

    def find(child: SubWorkflow) -> Definition | None:
        return below.get((child.workflow, child.version))

    walk = lambda: JsonAnswer(simulate(plan.definition, max_paths=MOST_PATHS, find=find).plain())  # noqa: E731
    return await aside(engine.tenant, walk)
