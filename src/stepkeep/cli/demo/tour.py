"""The tour: a directory, a database in it, three acts, and the log of all that, verified.

Called by `stepkeep demo`. It touches nothing outside its directory and needs no network.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from stepkeep.cli.answering import open_engine
from stepkeep.cli.commands.records import judge, write_log
from stepkeep.cli.demo import acts
from stepkeep.cli.demo.acts import Stage
from stepkeep.cli.printer import answer, quiet_stdout
from stepkeep.cli.settings import Settings
from stepkeep.cli.status import FAILED, SUCCEEDED
from stepkeep.definition.apps import load_app
from stepkeep.kernel.errors import InvalidInput

EXPECTED = ["rolled_back", "succeeded", "succeeded"]


def tour(directory: str | None, *, json: bool) -> int:
    """Give the tour; the exit status says whether everything went as promised."""
    place = _folder_of(directory)
    settings = Settings(db=f"sqlite:///{place / 'stepkeep.db'}", json=json)
    with quiet_stdout(json):
        load_app(acts.HANDLERS)
        views, verdict = asyncio.run(_show(settings, place))
    as_promised = [view["run"]["state"] for view in views] == EXPECTED and verdict["ok"]
    if json:
        answer({"demo": {"directory": str(place), "ok": as_promised, "runs": views, "log": verdict}})
    return SUCCEEDED if as_promised else FAILED


def _folder_of(directory: str | None) -> Path:
    if directory is None:
        return Path(tempfile.mkdtemp(prefix="stepkeep-demo-"))
    try:
        Path(directory).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"--directory: {directory} cannot be made: {error.strerror}.") from None
    return Path(directory).resolve()


async def _show(settings: Settings, place: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    stage = Stage(settings)
    log = place / "log.jsonl"
    async with open_engine(settings, creates=True) as engine:
        runs = [
            await acts.roll_back(engine, stage),
            await acts.crash(engine, stage, place),
            await acts.approve(engine, stage),
        ]
        with log.open("wb") as file:
            await write_log(engine, runs, file)
        views = [(await engine.show(run)).as_json() for run in runs]
    found = judge(str(log))
    stage.heading("The record")
    stage.type("log", "export", *(run[-8:] for run in runs), "--output", str(log))
    stage.type("log", "verify", str(log))
    if found.ok:
        stage.say(f"{found.lines} lines, no findings: every change of state is legal, the chain of hashes unbroken.")
    else:
        stage.say(f"{len(found.findings)} findings, the first: {found.findings[0]}", "bold red")
    _say_goodbye(stage, runs)
    return views, {"file": str(log), "lines": found.lines, "ok": found.ok, "findings": len(found.findings)}


def _say_goodbye(stage: Stage, runs: list[str]) -> None:
    stage.heading("Try next")
    stage.shell("export", f"STEPKEEP_DB={stage.settings.db}")
    stage.type("runs")
    stage.type("show", runs[1][-8:], "--json")
    stage.type("rerun", runs[2][-8:], "--app", acts.HANDLERS)
    stage.say("and then your own: stepkeep check flow.yaml, stepkeep run flow.yaml --app handlers.py")
    stage.say("The same in web pages, with a retry, a gate and a rollback to click through:")
    stage.type("dev", "--app", acts.HANDLERS)
