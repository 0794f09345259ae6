"""The tour: a directory, a database in it, three acts, and the log of all that, verified.

Called by `stepkeep demo`. It touches nothing outside its directory and needs no network.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

from stepkeep.cli.answering import open_engine
from stepkeep.cli.commands.records import judge, write_log
from stepkeep.cli.commands.show import print_report
from stepkeep.cli.printer import FAILED, SUCCEEDED, answer, console, quiet_stdout
from stepkeep.cli.progress import Screen, screen_for
from stepkeep.cli.render.consoles import Text
from stepkeep.cli.settings import Settings
from stepkeep.cli.working import Follower, work_on
from stepkeep.definition.native.reader import load_text
from stepkeep.definition.python.handlers import load_app
from stepkeep.engine import AsyncEngine
from stepkeep.kernel.definition import Definition
from stepkeep.kernel.errors import InvalidInput, StepkeepError
from stepkeep.kernel.machine.states import RUN_TERMINAL
from stepkeep.operations.pipeline.plans import plan_of

HANDLERS = "stepkeep.cli.demo.handlers"
PATIENCE = 20.0


class DemoStage:
    """What the audience sees: headings, sentences, moving progress and pictures; or nothing, with `--json`."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._console = None if settings.json else console()

    def heading(self, text: str) -> None:
        if self._console is not None:
            self._console.print()
            self._console.rule(f" {text} ", align="left", characters="─")

    def say(self, text: str, style: str = "") -> None:
        if self._console is not None:
            self._console.print(Text(text, style), soft_wrap=True)

    def type(self, *words: str) -> None:
        """A command, as the audience could type it."""
        self.say(f"$ {self.settings.command(*words)}", "bold")

    def shell(self, *words: str) -> None:
        """A command of the shell's own."""
        self.say(f"$ {shlex.join(words)}", "bold")

    def picture(self, view: dict[str, Any]) -> None:
        """The same picture that `stepkeep show` draws."""
        if self._console is not None:
            self.say("")
            self.type("show", view["run"]["id"])
            print_report(view, self.settings)

    def screen(self) -> Screen:
        return screen_for(json=self.settings.json)


def definition(engine: AsyncEngine, name: str) -> Definition:
    """A definition that is packaged with the demonstration."""
    text = files("stepkeep.cli.demo").joinpath(name).read_text("utf-8")
    return load_text(text, name, engine.registry)


async def roll_back(engine: AsyncEngine, stage: DemoStage) -> str:
    """A step fails for good, and what was done before it is undone."""
    stage.heading("1  A failure that leaves nothing behind")
    stage.say("Account, workspace, billing. Billing is refused for good, so what was done is taken back in reverse.")
    started = await engine.start(definition(engine, "onboarding.yaml"), {"company": "northwind"})
    worked = await work_on(engine, started.run_id, stage.screen(), concurrency=4)
    stage.picture(worked.view)
    return started.run_id


async def crash(engine: AsyncEngine, stage: DemoStage, directory: Path) -> str:
    """A worker is killed in the middle; another takes over where it stood."""
    stage.heading("2  A worker that is killed")
    ledger = directory / "executions.txt"
    ledger.unlink(missing_ok=True)
    ledger.touch()
    with _worker(engine, directory, "first") as first:
        stage.say(f"A worker process ({first.pid}) begins an import. In the middle of `convert` it gets SIGKILL.")
        started = await engine.start(definition(engine, "import.yaml"), {"ledger": str(ledger)})
        await _until(lambda: "convert" in _executions(ledger), first)
        first.send_signal(signal.SIGKILL)
        first.wait()
    stage.say(f"Worker {first.pid} is dead (exit status {first.returncode}). The database was not told.", "bold red")
    with _worker(engine, directory, "second") as second:
        stage.say(f"Another worker ({second.pid}) waits until the lease of 1 s has run out, and goes on.")
        await _follow(engine, stage, started.run_id, second)
    for name, processes in _executions(ledger).items():
        times = "once" if len(processes) == 1 else f"{len(processes)} times"
        stage.say(f"  {name:<14} executed {times}, by {' and '.join(f'process {pid}' for pid in processes)}")
    stage.picture((await engine.show(started.run_id)).as_json())
    return started.run_id


async def approve(engine: AsyncEngine, stage: DemoStage) -> str:
    """A run that waits for a person, and costs nothing while it does."""
    stage.heading("3  A decision in between")
    stage.say("A draft is written; then the run waits, in the database, until a person decides.")
    started = await engine.start(definition(engine, "publication.yaml"), {"title": "Hello"})
    worked = await work_on(engine, started.run_id, stage.screen(), concurrency=4)
    gate = worked.view["run"]["waiting_for"][0]["step"]
    stage.type("approve", started.run_id, gate, "--comment", "reads well")
    record = await engine.approve(started.run_id, gate, comment="reads well")
    stage.say(f"{gate} {record['decision']} by {record['by']}")
    worked = await work_on(engine, started.run_id, stage.screen(), concurrency=4, resumed=True)
    stage.picture(worked.view)
    return started.run_id


@contextlib.contextmanager
def _worker(engine: AsyncEngine, directory: Path, name: str) -> Iterator[subprocess.Popen[bytes]]:
    """A real worker process; it ends with the act."""
    command = [sys.executable, "-m", "stepkeep", "worker", "--app", HANDLERS, "--name", name]
    command += ["--db", engine.store.url, "--tenant", engine.tenant, "--grace", "1"]
    with (directory / f"{name}-worker.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=os.environ.copy())
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


async def _follow(engine: AsyncEngine, stage: DemoStage, run_id: str, worker: subprocess.Popen[bytes]) -> None:
    """Show how a run goes on in another process, until it has ended."""
    plan = await plan_of(engine.transactor, engine.tenant, run_id)
    with stage.screen() as screen:
        async with Follower(engine, run_id, plan, screen).watching(resumed=True) as follower:
            await _until(lambda: follower.state in RUN_TERMINAL, worker)


async def _until(is_so: Callable[[], bool], worker: subprocess.Popen[bytes]) -> None:
    """Look until it is so, for as long as the audience is patient and the worker lives."""
    try:
        async with asyncio.timeout(PATIENCE):
            while not is_so():
                if worker.poll() is not None:
                    raise StepkeepError(f"the demonstration's worker ended by itself, with status {worker.returncode}")
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise StepkeepError(f"the demonstration's worker did not get on within {PATIENCE:.0f} s") from None


def _executions(ledger: Path) -> dict[str, list[str]]:
    """Which processes executed which step, as the handlers wrote it down."""
    found: dict[str, list[str]] = defaultdict(list)
    for line in ledger.read_text(encoding="utf-8").splitlines():
        name, _, pid = line.partition(" ")
        found[name].append(pid)
    return found


EXPECTED = ["rolled_back", "succeeded", "succeeded"]


def tour(directory: str | None, *, json: bool) -> int:
    """Give the tour; the exit status says whether everything went as promised."""
    place = _folder_of(directory)
    settings = Settings(db=f"sqlite:///{place / 'stepkeep.db'}", json=json)
    with quiet_stdout(json):
        load_app(HANDLERS)
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
    stage = DemoStage(settings)
    log = place / "log.jsonl"
    async with open_engine(settings, creates=True) as engine:
        runs = [
            await roll_back(engine, stage),
            await crash(engine, stage, place),
            await approve(engine, stage),
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


def _say_goodbye(stage: DemoStage, runs: list[str]) -> None:
    stage.heading("Try next")
    stage.shell("export", f"STEPKEEP_DB={stage.settings.db}")
    stage.type("runs")
    stage.type("show", runs[1][-8:], "--json")
    stage.type("rerun", runs[2][-8:], "--app", HANDLERS)
    stage.say("and then your own: stepkeep check flow.yaml, stepkeep run flow.yaml --app handlers.py")
    stage.say("The same in web pages, with a retry, a gate and a rollback to click through:")
    stage.type("dev", "--app", HANDLERS)
