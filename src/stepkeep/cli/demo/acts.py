"""The three acts. Each starts a run, shows its progress, and returns its id.

They use only what the commands offer; only the duration of the steps is artificial.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

from stepkeep.cli.commands.show import print_report
from stepkeep.cli.printer import console
from stepkeep.cli.render.consoles import Text
from stepkeep.cli.screens import Screen, screen_for
from stepkeep.cli.settings import Settings
from stepkeep.cli.working import Follower, work_on
from stepkeep.definition.native.reader import load_text
from stepkeep.engine import AsyncEngine
from stepkeep.kernel.definition import Definition
from stepkeep.kernel.errors import StepkeepError
from stepkeep.kernel.machine.states import RUN_TERMINAL
from stepkeep.operations.pipeline.plans import plan_of

HANDLERS = "stepkeep.cli.demo.handlers"
PATIENCE = 20.0


class Stage:
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


async def roll_back(engine: AsyncEngine, stage: Stage) -> str:
    """A step fails for good, and what was done before it is undone."""
    stage.heading("1  A failure that leaves nothing behind")
    stage.say("Account, workspace, billing. Billing is refused for good, so what was done is taken back in reverse.")
    started = await engine.start(definition(engine, "onboarding.yaml"), {"company": "northwind"})
    worked = await work_on(engine, started.run_id, stage.screen(), concurrency=4)
    stage.picture(worked.view)
    return started.run_id


async def crash(engine: AsyncEngine, stage: Stage, directory: Path) -> str:
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


async def approve(engine: AsyncEngine, stage: Stage) -> str:
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
    command = [sys.executable, "-m", "stepkeep.cli", "worker", "--app", HANDLERS, "--name", name]
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


async def _follow(engine: AsyncEngine, stage: Stage, run_id: str, worker: subprocess.Popen[bytes]) -> None:
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
