"""Commands of definitions and their versions: `publish`, `check`, `schemas`, `withdraw`, `diff`, `migrate`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from msgspec.structs import asdict, replace

from stepkeep.cli.answering import SHORTEST_ID, find_run, of_run, print_answer, print_value, table
from stepkeep.cli.arguments import LARGEST, Apps, By, Elsewhere, Text, WrittenAs, arg, opt
from stepkeep.cli.command import Commands, CommandValues, program
from stepkeep.cli.printer import BAD_USAGE, SUCCEEDED, answer, console, page, quiet_stdout
from stepkeep.cli.session import is_python, load_handlers, load_workflow, workflow_in
from stepkeep.cli.settings import CommandNeeds, Settings
from stepkeep.definition.bounds import MAX_VERSION
from stepkeep.kernel.errors import InvalidInput

if TYPE_CHECKING:
    from stepkeep.definition.native.reader import CheckReport
    from stepkeep.dialects.dialect import JudgedDialect
    from stepkeep.engine import AsyncEngine
    from stepkeep.operations.answers import Answer
    from stepkeep.operations.continuation.migrating import MigrationPreview, MigrationsPreview
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


@program.command("check", CommandNeeds.NOTHING)
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
        "problems": [asdict(problem) for problem in report.problems],
        "warnings": [asdict(warning) for warning in report.warnings],
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


@program.command("dialects", CommandNeeds.NOTHING)
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
        from stepkeep.cli.render.explained import mermaid_of

        page("\n".join(mermaid_of(judged)))
    else:
        from stepkeep.cli.render.explained import pages_of

        for part in pages_of(judged):
            console().print(part)
    return SUCCEEDED


def description(judged: JudgedDialect) -> Mapping[str, object]:
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


@program.command("diff")
def diff(
    settings: Settings,
    first: Annotated[str, arg("A", "WORKFLOW@VERSION, or the id of a run.")],
    second: Annotated[Text, arg("B", "Another one of the same kind.")] = None,
    step: Annotated[Text, opt("--step", "STEP", "With one run: a step whose attempts are compared.")] = None,
    attempts: Annotated[
        tuple[int, int] | None,
        opt("--attempts", "N M", "With --step: two numbers of attempts; the last two by default.", min=1, max=LARGEST),
    ] = None,
    live: Annotated[bool, opt("--live", "Also which live runs of version A could continue under version B.")] = False,
) -> int:
    """Compare two versions of a workflow, two runs, or two attempts of a step.

    Of versions: steps that were added, removed or changed, and what that means for runs of the old version.
    """
    if second is None or step is not None:
        return _of_attempts(settings, first, second, step, attempts)
    if attempts is not None:
        raise InvalidInput("--attempts goes with one run and --step.")
    of_versions = [version_in(text) for text in (first, second)]
    if second.isascii() and second.isdigit() and len(second) < SHORTEST_ID:
        raise InvalidInput(f"a version is written WORKFLOW@VERSION: stepkeep diff {first}@1 {first}@{second}.")
    if live and None in of_versions:
        raise InvalidInput("--live goes with two versions: WORKFLOW@VERSION.")

    async def compare(engine: AsyncEngine) -> Any:
        (old, new) = of_versions
        if old is not None and new is not None:
            if old[0] != new[0]:
                raise InvalidInput(f"{first} and {second} are versions of different workflows.")
            return await engine.compare_versions(old[0], old[1], new[1], live=live)
        if of_versions != [None, None]:
            raise InvalidInput("give two versions, each as WORKFLOW@VERSION, or two runs.")
        return await engine.compare_runs(await find_run(engine, first), await find_run(engine, second))

    def words(view: Any) -> Iterator[str]:
        from stepkeep.cli.render.lines import run_lines, version_lines

        return run_lines(view) if of_versions[0] is None else version_lines(view)

    return print_answer(settings, compare, words)


def _of_attempts(
    settings: Settings, run: str, second: str | None, step: str | None, numbers: tuple[int, int] | None
) -> int:
    if second is not None or step is None:
        raise InvalidInput("give two versions or two runs; or one run, and the --step whose attempts are compared.")
    from stepkeep.cli.render.lines import attempt_lines
    from stepkeep.operations.runs.run_differences import compare_attempts

    async def compare(engine: AsyncEngine, run_id: str) -> Any:
        return compare_attempts(await engine.show(run_id, step=step), numbers)

    return print_answer(settings, of_run(run, compare), attempt_lines)


def version_in(text: str) -> tuple[str, int] | None:
    """The workflow and the version that a text names; None if it has no `@`."""
    name, at, version = text.rpartition("@")
    if not at:
        return None
    if not name or not version.isascii() or not version.isdigit():
        raise InvalidInput(f"a version is written WORKFLOW@VERSION, as order@3; not {text[:80]!r}.")
    if len(version) > len(str(MAX_VERSION)) or int(version) > MAX_VERSION:
        raise InvalidInput(f"a version is a whole number from 1 to {MAX_VERSION}, not {version[:20]}.")
    return name, int(version)


def _preview(told: Any, settings: Settings, options: Sequence[str]) -> Iterator[str]:
    if "allowed" in told:
        yield from _one(told)
        if told.allowed:
            yield f"Do it: {settings.command('migrate', told.run_id, *options)}"
    else:
        yield from _all(told)
        if told.could_migrate:
            yield f"Do it: {settings.command('migrate', *options)}"


def _migrated(told: Any, settings: Settings) -> Iterator[str]:
    if "job" in told:
        yield f"job {told.job} migrates {told.runs} live runs to version {told.to}; workers carry it out"
        yield f"Follow it: {settings.command('jobs', 'show', told.job)}"
    else:
        again = "" if told.created else " (it was migrated before)"
        yield f"run {told.run_id} goes on as {told.new_run_id} under version {told.version}{again}"
        yield f"look at it with: {settings.command('show', told.new_run_id)}"


@program.command("migrate")
def migrate(
    settings: Settings,
    to: Annotated[int, opt("--to", "VERSION", "The version to go on under.", bounds_of="migrations.migrate to")],
    run: Annotated[Text, arg("RUN", "The run's id, or enough of its beginning or end.")] = None,
    all_of: Annotated[Text, opt("--all", "WORKFLOW", "Every live run of this workflow, by a job.")] = None,
    of: Annotated[
        int | None,
        opt("--of", "VERSION", "With --all: only runs of this version.", bounds_of="migrations.migrate_all of"),
    ] = None,
    dry_run: Annotated[bool, opt("--dry-run", "Only say which runs could be migrated, and why others stay.")] = False,
    reason: Annotated[str, opt("--reason", "TEXT", "Kept with the end of the run.")] = "",
    by: By = None,
) -> int:
    """Go on with live runs under another version, where that is safe.

    A run ends as cancelled and goes on as a new one, which adopts what had settled. Exit status 1 if the run stays.
    """
    if (run is None) is (all_of is None):
        raise InvalidInput("Name a run, or a workflow with --all: one of the two.")
    if of is not None and all_of is None:
        raise InvalidInput("--of goes with --all: a single run has one version.")

    async def work(engine: AsyncEngine) -> Answer:
        migrations = engine.migrations
        if all_of is not None and dry_run:
            return await migrations.preview_all(all_of, to, of=of, by=by)
        if all_of is not None:
            return await migrations.migrate_all(all_of, to, of=of, reason=reason, by=by)
        run_id = await find_run(engine, str(run))
        if dry_run:
            return await migrations.preview(run_id, to, by=by)
        return await migrations.migrate(run_id, to, reason=reason, by=by)

    typed = {"--all": all_of, "--of": of, "--to": to, "--reason": reason or None, "--by": by}
    options = [word for name, value in typed.items() if value is not None for word in (name, str(value))]
    return print_answer(
        settings,
        work,
        lambda told: _preview(told, settings, options) if dry_run else _migrated(told, settings),
        under="migration",
        fails=lambda told: told.get("must_stay") or not told.get("allowed", True),
    )


def _all(told: MigrationsPreview) -> Iterator[str]:
    yield f"{told.could_migrate} of {told.examined} live runs could go on under version {told.to}"
    for state in told.states:
        yield f"  {state.runs:>6}  {state.state}, version {state.version}: {'could' if state.allowed else 'stay'}"
    for why in told.reasons:
        yield f"  {why.runs:>6}  {why.reason}"
    for gate in told.reopens:
        yield f"  {gate.runs:>6}  {gate.step} opens anew: the steps behind it differ"


def _one(told: MigrationPreview) -> Iterator[str]:
    if told.allowed:
        yield f"run {told.run_id} can go on under version {told.to}"
        yield f"  adopted: {_named(told.adopted)}"
        yield f"  runs:    {_named(told.runs)}"
        if told.reopens:
            yield f"  opens anew, because the steps behind it differ: {_named(told.reopens)}"
    else:
        yield f"run {told.run_id} stays with version {told.from_}:"
        yield from (f"  {reason}" for reason in told.reasons)
    if told.added or told.removed:
        yield f"  added: {_named(told.added)}; removed: {_named(told.removed)}"


def _named(steps: list[str]) -> str:
    return ", ".join(steps) or "nothing"
