"""`stepkeep definitions`, `publish`, `withdraw`, `restore`, `schemas`, `check` and `dialects`: what people write."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from msgspec.structs import replace

from stepkeep.cli.answering import print_answer, print_value, table
from stepkeep.cli.arguments import Apps, Elsewhere, Text, WrittenAs, arg, opt
from stepkeep.cli.command import Commands, CommandValues, program
from stepkeep.cli.failures import problem_view
from stepkeep.cli.printer import answer, console, page, quiet_stdout
from stepkeep.cli.session import is_python, load_handlers, load_workflow, workflow_in
from stepkeep.cli.settings import Needs, Settings
from stepkeep.cli.status import BAD_USAGE, SUCCEEDED
from stepkeep.kernel.errors import InvalidInput

if TYPE_CHECKING:
    from stepkeep.definition.native.reader import CheckReport
    from stepkeep.dialects.dialect import Judged
    from stepkeep.engine import AsyncEngine
    from stepkeep.operations.definitions.publish import Definitions, DefinitionSummary
    from stepkeep.operations.definitions.schemas import Schemas, SchemaView
    from stepkeep.operations.definitions.withdrawn import Restored, Withdrawn

CHECKED = {"workflow": "name", "dialect": "dialect", "version": "version"}
WORKFLOW = arg("WORKFLOW", "The name of a workflow.")
VERSION = arg("VERSION", "Its number.")


@program.operation("definitions", "definitions", name=arg("NAME", "Only the versions of this workflow."))
def definitions(found: Definitions, asked: CommandValues) -> None:
    """List published workflows with their versions."""
    rows = []
    for one in found.definitions:
        gone = "" if one.withdrawn is None else f"{one.withdrawn.by}: {one.withdrawn.reason}"
        rows.append({**one, "digest": one.digest[:12], "withdrawn": gone})
    table(rows, f"no workflow {'' if asked['name'] is None else asked['name'] + ' '}is published")


@program.command("publish")
def publish(
    settings: Settings,
    file: Annotated[str, arg("FILE", "A definition: YAML, JSON, or FILE.py[:NAME].")],
    app: Apps = None,
    as_: WrittenAs = None,
    elsewhere: Elsewhere = False,
) -> int:
    """Publish a workflow without starting a run. The same version with other content is refused."""
    with quiet_stdout(settings.json):
        workflow = load_workflow(settings, file, None if elsewhere else load_handlers(app or []), as_, advises=True)

    async def work(engine: AsyncEngine) -> DefinitionSummary:
        plan = await engine.publish(workflow)
        found = await engine.definitions(name=plan.definition.name)
        return next(one for one in found.definitions if one.version == plan.definition.version)

    def words(one: DefinitionSummary) -> str:
        return f"{one.workflow} version {one.version} is published, digest {one.digest[:12]}"

    return print_answer(settings, work, words, under="definition", creates=True)


@program.operation(
    "withdraw",
    "versions.withdraw",
    under="withdrawn",
    workflow=WORKFLOW,
    version=VERSION,
    reason=opt("--reason", "TEXT", "Why; it stays on record.", show_default=False),
)
def withdraw(one: Withdrawn, asked: CommandValues) -> Iterator[str]:
    """Let no run of a published version start any more. Its live runs go on; `stepkeep restore` takes it back."""
    which = f"version {asked['version']} of {asked['workflow']}"
    yield f"{which} is withdrawn: no run of it starts; its live runs go on"
    for name in one.triggers:
        said = "its firings are refused until you pause it, or publish a version"
        yield f"the trigger {name} would start it: {said}"


@program.operation("restore", "versions.restore", under="restored", workflow=WORKFLOW, version=VERSION)
def restore(_: Restored, asked: CommandValues) -> str:
    """Let runs of a withdrawn version start again."""
    return f"version {asked['version']} of {asked['workflow']} is restored: its runs start again"


schemas = Commands("schemas", "JSON Schemas that definitions refer to by name.")


def _document(file: Path, _: str) -> Any:
    from stepkeep.definition.text.document import read_document

    return read_document(file).data


@schemas.operation(
    "publish",
    "publish_schema",
    creates=True,
    schema=arg("FILE", "A JSON Schema: JSON or YAML.", typed_as="file", kind=Path, reads=_document),
    ref=opt("--ref", "REF", "The name by which definitions refer to it.", show_default=False),
)
def publish_schema(found: SchemaView, _: CommandValues) -> str:
    """Publish a JSON Schema under a reference. A published schema never changes."""
    return f"schema {found.schema.ref} is published, digest {found.schema.digest[:12]}"


@schemas.operation("list", "schemas")
def list_schemas(found: Schemas, _: CommandValues) -> None:
    """List published schemas by reference."""
    table([{**one, "digest": one.digest[:12]} for one in found.schemas], "no schema is published")


@schemas.operation("show", "schema", ref=arg("REF", "The reference of a published schema."))
def show_schema(found: SchemaView, _: CommandValues) -> list[str]:
    """Print a published schema."""
    import msgspec

    return msgspec.json.format(msgspec.json.encode(found.schema.document)).decode().splitlines()


@program.command("check", Needs.NOTHING)
def check(
    settings: Settings,
    file: Annotated[str, arg("FILE", "A definition: YAML, JSON or Python.")],
    app: Apps = None,
    as_: WrittenAs = None,
    strict: Annotated[bool, opt("--strict", "Let advice fail the check, too.")] = False,
    explain: Annotated[bool, opt("--explain", "Show the definition as the engine has it, with every default.")] = False,
) -> int:
    """Say everything that is wrong with a definition, with its place, and give advice.

    With --app, the names of handlers are checked, too.
    """
    report = _report(file, app or (), as_)
    made, is_ok = report.definition, not (report.problems or (strict and report.warnings))
    view: dict[str, Any] = {
        "file": file,
        "ok": is_ok,
        **{name: getattr(made, field, None) for name, field in CHECKED.items()},
        "steps": None if made is None else len(made.steps),
        "problems": [problem_view(problem) for problem in report.problems],
        "warnings": [problem_view(warning) for warning in report.warnings],
    }
    if explain and made is not None and settings.json:
        from stepkeep.cli.render.explained import plain_definition

        view = {"definition": plain_definition(made)} | view
    print_value(settings, view, _check_words(file, report, explain))
    return SUCCEEDED if is_ok else BAD_USAGE


def _check_words(file: str, report: CheckReport, explain: bool) -> Iterator[str]:
    yield from (str(problem) for problem in report.problems)
    yield from (str(replace(warning, message=f"warning: {warning.message}")) for warning in report.warnings)
    if explain and report.definition is not None:
        from stepkeep.cli.render.explained import explained

        yield from explained(report.definition, None if is_python(file) else file)
    yield _verdict(file, report)


def _report(file: str, apps: list[str] | tuple[()], as_: str | None) -> CheckReport:
    from stepkeep.dialects.registry import check_file

    handlers = load_handlers(apps) if apps else None
    return workflow_in(file).check() if is_python(file) else check_file(file, handlers, as_)


def _verdict(file: str, report: CheckReport) -> str:
    advice = _count(len(report.warnings), "warning")
    if report.definition is None:
        return f"{file}: {_count(len(report.problems), 'problem')}"
    name, version, steps = report.definition.name, report.definition.version, len(report.definition.steps)
    about = f"{name} version {version}, {_count(steps, 'step')}"
    return f"{file}: {about}, " + (f"no problems, {advice}" if report.warnings else "no problems")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


@program.command("dialects", Needs.NOTHING)
def dialects(
    settings: Settings,
    name: Annotated[Text, arg("NAME", "One dialect, in full.")] = None,
    mermaid: Annotated[bool, opt("--mermaid", "Draw its machines as Mermaid diagrams.")] = False,
    schema: Annotated[bool, opt("--schema", "The JSON Schema of its format.")] = False,
) -> int:
    """List the dialects, or tell all about one: states, arrows, extensions with their reasons, defaults."""
    from stepkeep.dialects import registry

    if name is None:
        if mermaid or schema:
            raise InvalidInput("Say which dialect: stepkeep dialects NAME --mermaid.")
        known = [registry.judged(one) for one in registry.names()]
        rows = [{"name": one.name, "seed": one.seed, "title": one.title} for one in known]
        if not settings.json:
            table(rows, "")
        return print_value(settings, {"dialects": rows}, None)
    if schema:
        answer(dict(registry.dialect(name).schema))
        return SUCCEEDED
    judged = registry.judged(name)
    if settings.json:
        answer(description(judged))
    elif mermaid:
        from stepkeep.cli.render.machines import mermaid_of

        page("\n".join(mermaid_of(judged)))
    else:
        from stepkeep.cli.render.machines import pages_of

        for part in pages_of(judged):
            console().print(part)
    return SUCCEEDED


def description(judged: Judged) -> dict[str, Any]:
    """All that a dialect's file says, as JSON."""
    return {
        "name": judged.name,
        "seed": judged.seed,
        "title": judged.title,
        "machines": [
            {
                "noun": view.noun,
                "states": list(view.states),
                "terminal": sorted(view.terminal),
                "arrows": [arrow._asdict() for arrow in view.arrows],
                "forbidden": [pair._asdict() for pair in view.forbidden],
                "extra": dict(view.extra),
                "extensions": [extension._asdict() for extension in view.extensions],
                "shows": dict(view.shows),
            }
            for view in judged.views
        ],
        "invariants": [{"name": one.name, "cites": one.cites} for one in judged.invariants],
        "defaults": [default._asdict() for default in judged.defaults],
    }
