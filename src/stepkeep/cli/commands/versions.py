"""`stepkeep diff` and `migrate`: what differs between versions, runs or attempts; live runs under another version."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

from stepkeep.cli.answering import SHORTEST_ID, find_run, of_run, print_answer
from stepkeep.cli.arguments import LARGEST, By, Text, arg, opt
from stepkeep.cli.command import program
from stepkeep.cli.settings import Settings
from stepkeep.definition.bounds import MAX_VERSION
from stepkeep.kernel.errors import InvalidInput

if TYPE_CHECKING:
    from stepkeep.engine import AsyncEngine
    from stepkeep.operations.answers import Answer
    from stepkeep.operations.continuation.migrating import MigrationPreview, MigrationsPreview


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

    def words(told: Any) -> Iterator[str]:
        if dry_run:
            yield from _all(told) if all_of is not None else _one(told)
            if told.could_migrate if all_of is not None else told.allowed:
                typed = {"--all": all_of, "--of": of, "--to": to, "--reason": reason or None, "--by": by}
                options = [word for name, value in typed.items() if value is not None for word in (name, str(value))]
                yield f"Do it: {settings.command('migrate', *([told.run_id] if all_of is None else []), *options)}"
        elif all_of is not None:
            yield f"job {told.job} migrates {told.runs} live runs to version {told.to}; workers carry it out"
            yield f"Follow it: {settings.command('jobs', 'show', told.job)}"
        else:
            again = "" if told.created else " (it was migrated before)"
            yield f"run {told.run_id} goes on as {told.new_run_id} under version {told.version}{again}"
            yield f"look at it with: {settings.command('show', told.new_run_id)}"

    return print_answer(
        settings,
        work,
        words,
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
