"""`stepkeep migrate`: live runs go on under another version of their workflow, or the reasons why they stay.

It calls the engine and prints; it decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

from stepkeep.cli.arguments import LARGEST, By, arg, opt
from stepkeep.cli.asking import find_run, tell
from stepkeep.cli.settings import Settings
from stepkeep.kernel.errors import InvalidInput

if TYPE_CHECKING:
    from stepkeep.engine import AsyncEngine
    from stepkeep.operations.answers import Answer
    from stepkeep.operations.migrating import MigrationPreview, MigrationsPreview


def migrate(
    settings: Settings,
    to: Annotated[int, opt("--to", "VERSION", "The version to go on under.", min=1, max=LARGEST)],
    run: Annotated[str | None, arg("RUN", "The run's id, or enough of its beginning or end.")] = None,
    all_of: Annotated[str | None, opt("--all", "WORKFLOW", "Every live run of this workflow, by a job.")] = None,
    of: Annotated[
        int | None, opt("--of", "VERSION", "With --all: only runs of this version.", min=1, max=LARGEST)
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

    return tell(
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
