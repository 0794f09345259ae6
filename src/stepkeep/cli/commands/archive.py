"""`stepkeep archive`: archive ended runs now, one folder each; workers do the same for workflows that declare it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from stepkeep.cli.arguments import ArchiveRoot, arg, opt
from stepkeep.cli.asking import find_run, open_engine
from stepkeep.cli.command import program
from stepkeep.cli.printer import answer, say
from stepkeep.cli.settings import Needs, Settings
from stepkeep.cli.status import FAILED, SUCCEEDED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stepkeep.operations.run_archive import Swept


@program.command("archive", Needs.DATABASE)
def archive(
    settings: Settings,
    runs: Annotated[
        list[str] | None, arg("[RUN]...", "Which ended runs; by default all whose workflow declares it.")
    ] = None,
    to: Annotated[
        str, opt("--to", "DIR", "Where the named runs go; a declaration names its own folder.")
    ] = ".state/archive",
    archive_root: ArchiveRoot = Path(),
) -> int:
    """Archive ended runs, one folder each: log, everything else, manifest, and the state files of a workstream.

    A run that is archived already is left as it is. Exit status 1 if a run could not be archived.
    """
    swept = asyncio.run(_archive(settings, runs or [], to, archive_root))
    if settings.json:
        answer(
            {
                "archive": {
                    "bundles": [
                        {"run": one.run_id, "workflow": one.workflow, "state": one.state, "folder": one.folder,
                         "made": one.made}
                        for one in swept.bundles
                    ],
                    "problems": [{"run": run_id, "why": why} for run_id, why in swept.problems],
                }
            }
        )  # fmt: skip
        return FAILED if swept.problems else SUCCEEDED
    for one in swept.bundles:
        say(f"{one.folder}  {one.workflow} {one.state}" + ("" if one.made else ", was archived before"))
    for run_id, why in swept.problems:
        say(f"run {run_id}: {why}")
    made = sum(one.made for one in swept.bundles)
    said = f"{made} {'run' if made == 1 else 'runs'} archived"
    say(f"{said}; verify one with: stepkeep log verify FOLDER/NAME.manifest.json" if made else said)
    return FAILED if swept.problems else SUCCEEDED


async def _archive(settings: Settings, runs: list[str], to: str, root: Path) -> Swept:
    from stepkeep.operations.run_archive import ArchiveSweeper, Swept, archive_run

    async with open_engine(settings, operation="log") as engine:
        if not runs:
            return await ArchiveSweeper(engine.transactor, tenant=engine.tenant, verify=verified, base=root).sweep()
        chosen = [await find_run(engine, run) for run in runs]
        return Swept(
            bundles=tuple(
                [
                    await archive_run(engine.transactor, run, Path(to), tenant=engine.tenant, verify=verified)
                    for run in chosen
                ]
            )
        )


def verified(manifest: Path) -> Iterator[str]:
    """What the judge finds wrong with an archive."""
    from stepkeep.worker.archives import verified as found

    yield from found(manifest)
