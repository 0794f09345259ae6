"""`stepkeep migrate`: live runs go on under another version of their workflow, or the reasons why they stay.

It calls the engine and prints; it decides nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from stepkeep.cli.arguments import LARGEST, By
from stepkeep.cli.printer import answer, say
from stepkeep.cli.session import find_run, open_engine
from stepkeep.cli.settings import Settings
from stepkeep.cli.status import FAILED, SUCCEEDED
from stepkeep.kernel.errors import InvalidInput


def migrate(
    settings: Settings,
    to: Annotated[int, typer.Option("--to", metavar="VERSION", min=1, max=LARGEST, help="The version to go on under.")],
    run: Annotated[
        str | None,
        typer.Argument(metavar="RUN", help="The run's id, or enough of its beginning or end.", show_default=False),
    ] = None,
    all_of: Annotated[
        str | None,
        typer.Option("--all", metavar="WORKFLOW", help="Every live run of this workflow, by a job."),
    ] = None,
    of: Annotated[
        int | None,
        typer.Option("--of", metavar="VERSION", min=1, max=LARGEST, help="With --all: only runs of this version."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say which runs could be migrated, and why others stay.")
    ] = False,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Kept with the end of the run.")] = "",
    by: By = None,
) -> int:
    """Go on with live runs under another version, where that is safe.

    A run ends as cancelled and goes on as a new one, which adopts what had settled. Exit status 1 if the run stays.
    """
    if (run is None) is (all_of is None):
        raise InvalidInput("Name a run, or a workflow with --all: one of the two.")
    if of is not None and all_of is None:
        raise InvalidInput("--of goes with --all: a single run has one version.")
    told = asyncio.run(_ask(settings, run, all_of, of, to, dry_run, reason, by))
    if settings.json:
        answer({"migration": told})
    else:
        for line in _page(told, dry_run):
            say(line)
        if "new_run_id" in told:
            say(f"look at it with: {settings.command('show', told['new_run_id'])}")
        if "job" in told:
            say(f"Follow it: {settings.command('jobs', 'show', told['job'])}")
        if told.get("allowed") or told.get("could_migrate"):
            typed = {"--all": all_of, "--of": of, "--to": to, "--reason": reason or None, "--by": by}
            words = [word for name, value in typed.items() if value is not None for word in (name, str(value))]
            say(f"Do it: {settings.command('migrate', *([told['run_id']] if all_of is None else []), *words)}")
    stays = told.get("must_stay", 0) or not told.get("allowed", True)
    return FAILED if stays else SUCCEEDED


async def _ask(
    settings: Settings,
    run: str | None,
    workflow: str | None,
    of: int | None,
    to: int,
    dry_run: bool,
    reason: str,
    by: str | None,
) -> dict[str, Any]:
    async with open_engine(settings) as engine:
        migrations = engine.migrations
        if workflow is not None:
            if dry_run:
                return await migrations.preview_all(workflow, to, of=of, by=by)
            return await migrations.migrate_all(workflow, to, of=of, reason=reason, by=by)
        assert run is not None
        run_id = await find_run(engine, run)
        if dry_run:
            return await migrations.preview(run_id, to, by=by)
        return await migrations.migrate(run_id, to, reason=reason, by=by)


def _page(told: Mapping[str, Any], dry_run: bool) -> Iterator[str]:
    if "new_run_id" in told:
        again = "" if told["created"] else " (it was migrated before)"
        yield f"run {told['run_id']} goes on as {told['new_run_id']} under version {told['version']}{again}"
        return
    if "allowed" in told:
        yield from _one(told)
        return
    if dry_run:
        yield f"{told['could_migrate']} of {told['examined']} live runs could go on under version {told['to']}"
        for row in told["states"]:
            word = "could" if row["allowed"] else "stay"
            yield f"  {row['runs']:>6}  {row['state']}, version {row['version']}: {word}"
        for row in told["reasons"]:
            yield f"  {row['runs']:>6}  {row['reason']}"
        for row in told["reopens"]:
            yield f"  {row['runs']:>6}  {row['step']} opens anew: the steps behind it differ"
        return
    yield f"job {told['job']} migrates {told['runs']} live runs to version {told['to']}; workers carry it out"


def _one(told: Mapping[str, Any]) -> Iterator[str]:
    names = {word: ", ".join(told[word]) or "nothing" for word in ("adopted", "runs", "reopens", "added", "removed")}
    if told["allowed"]:
        yield f"run {told['run_id']} can go on under version {told['to']}"
        yield f"  adopted: {names['adopted']}"
        yield f"  runs:    {names['runs']}"
        if told["reopens"]:
            yield f"  opens anew, because the steps behind it differ: {names['reopens']}"
    else:
        yield f"run {told['run_id']} stays with version {told['from']}:"
        for reason in told["reasons"]:
            yield f"  {reason}"
    if told["added"] or told["removed"]:
        yield f"  added: {names['added']}; removed: {names['removed']}"
