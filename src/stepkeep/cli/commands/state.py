"""`stepkeep state`: write workstreams as the state files of seed 004, and keep them current."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from stepkeep.cli.arguments import arg, finite, opt
from stepkeep.cli.asking import find_run, open_engine
from stepkeep.cli.command import Commands
from stepkeep.cli.printer import answer, say
from stepkeep.cli.settings import Needs, Settings
from stepkeep.cli.status import SUCCEEDED
from stepkeep.kernel.errors import InvalidInput

if TYPE_CHECKING:
    from stepkeep.operations.state_export import Exported

state = Commands("state", "Write the state files of workstreams.")

Folder = Annotated[str, arg("DIR", "The folder of state files, such as .state.")]


@state.command("export", Needs.DATABASE)
def export(
    settings: Settings,
    folder: Folder,
    runs: Annotated[list[str] | None, arg("[RUN]...", "Which runs; the newest of each workstream by default.")] = None,
    follow: Annotated[bool, opt("--follow", "Keep the files current until interrupted.")] = False,
    interval: Annotated[
        float, opt("--interval", "SECONDS", "How often to look.", min=0.05, max=3600, callback=finite)
    ] = 1.0,
) -> int:
    """Write current.json, dag_WS.json, execution_plan_WS.json, checkpoints/WS_latest.json and transitions.jsonl.

    transitions.jsonl has every transition of all workstreams and workers; lines are only appended. With RUN, it has
    these runs. All other files are replaced as a whole. The database stays the state.
    """
    if follow and settings.json:
        raise InvalidInput("--follow tells line by line, not as one object: leave --json away.")
    try:
        done = asyncio.run(_export(settings, folder, runs or [], follow, interval))
    except KeyboardInterrupt:
        return SUCCEEDED
    if settings.json and done is not None:
        answer(
            {
                "export": {
                    "folder": done.folder,
                    "workstreams": list(done.workstreams),
                    "files": done.files,
                    "lines": done.lines,
                }
            }
        )
    elif done is not None:
        _tell(done)
    return SUCCEEDED


async def _export(settings: Settings, folder: str, runs: list[str], follow: bool, interval: float) -> Exported | None:
    from stepkeep.operations.state_export import StateFolder

    async with open_engine(settings, operation="log") as engine:
        chosen = [await find_run(engine, run) for run in runs]
        files = StateFolder(engine.transactor, Path(folder), tenant=engine.tenant, run_ids=chosen)
        if not follow:
            return await files.write()
        async for done in files.follow(interval):
            _tell(done)
        return None


def _tell(done: Exported) -> None:
    if not done.workstreams:
        say(f"no workstream has a run; {done.folder}/current.json says so")
        return
    said = f"{len(done.workstreams)} workstreams" if len(done.workstreams) > 1 else done.workstreams[0]
    say(f"{done.folder}: {said}; {done.files} files written, {done.lines} lines appended")
