"""Handlers: random compositions of misdeeds, run by a real worker on SQLite.

Judges that the run ends or waits with a clear outcome, that its record can be read in every form, and that the worker
has all its slots again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import msgspec

import stepkeep as sk
from stepkeep.dialects import registry as dialects
from stepkeep.edges.safe_text import exception_text
from stepkeep.kernel.machine.states import RunState
from stepkeep_lab.fuzz.chance import shorter
from stepkeep_lab.fuzz.misdeeds import ACTS, ENDINGS, EXCEPTIONS
from stepkeep_lab.fuzz.odd_values import VALUES
from stepkeep_lab.fuzz.target import Limits, Target, Verdict, broken

SETTLED_SECONDS = 6.0
FREE_SECONDS = 4.0
CONCURRENCY = 2
DOCUMENT = """
workflow: {mode}
timeout: 1h
steps:
  - {{name: misbehave, uses: fuzz.{mode}, timeout: 2s, retry: {{max_attempts: 1, initial: 1ms}}}}
"""
MODES = ("coroutine", "thread")


class Misdeed(msgspec.Struct, frozen=True):
    """A handler: where it runs, what it does on its way (act, name of a value), and how it ends."""

    mode: str
    acts: tuple[tuple[str, str], ...]
    ending: str
    value: str


class Handlers(Target[Misdeed]):
    name = "handlers"
    what = "Handlers that emit, cost, log, wait, raise and return what they should not, in a real worker on SQLite."
    holds = (
        "The run ends or waits with a clear outcome and can be read in every form. "
        "The worker lives on with all of its slots."
    )
    limits = Limits(cpu_seconds=10.0, wall_seconds=60.0, memory_mb=2_000, batch=100)

    def __init__(self, misbehave: Callable[[Misdeed, sk.Context], object] | None = None) -> None:
        self._misbehave = misbehave or misbehaved
        self._case: Misdeed | None = None
        self._runner = asyncio.Runner()
        self._engine: sk.AsyncEngine | None = None
        self._plans: dict[str, Any] = {}
        self._worker: Any = None
        self._serving: asyncio.Task[None] | None = None
        self._guard = threading.Lock()
        self._inside = 0

    # -- the stage -----------------------------------------------------------------------------------------------------
    def open(self, folder: Path) -> None:
        # Records are formatted as anywhere, which is where odd exceptions break; nobody reads them.
        self._devnull = Path(os.devnull).open("w", encoding="utf-8", errors="replace")  # noqa: SIM115 - closed in close
        logging.basicConfig(stream=self._devnull, level=logging.INFO)
        self._runner.run(self._open(folder))

    async def _open(self, folder: Path) -> None:
        registry = sk.Registry()

        @sk.step("fuzz.coroutine", registry=registry)
        async def coroutine(ctx: sk.Context) -> Any:
            if self._case is not None:
                return self._misbehave(self._case, ctx)
            until = self._arrive()
            while self._inside < CONCURRENCY and time.monotonic() < until:  # noqa: ASYNC110 - no attempt waits for long
                await asyncio.sleep(0.002)
            return self._met()

        @sk.step("fuzz.thread", registry=registry)
        def thread(ctx: sk.Context) -> Any:
            if self._case is not None:
                return self._misbehave(self._case, ctx)
            until = self._arrive()
            while self._inside < CONCURRENCY and time.monotonic() < until:
                time.sleep(0.002)
            return self._met()

        self._engine = await sk.AsyncEngine(f"sqlite:///{folder}/handlers.db", registry=registry).__aenter__()
        for mode in MODES:
            file = folder / f"{mode}.yaml"
            file.write_text(DOCUMENT.format(mode=mode), encoding="utf-8")
            self._plans[mode] = await self._engine.publish(file)
        await self._hire()

    async def _hire(self) -> None:
        assert self._engine is not None
        self._worker = self._engine.worker(concurrency=CONCURRENCY, threads=CONCURRENCY)
        self._serving = asyncio.create_task(self._worker.serve())

    def close(self) -> None:
        self._runner.run(self._close())
        self._devnull.close()

    async def _close(self) -> None:
        await self._dismiss()
        if self._engine is not None:
            await self._engine.__aexit__(None, None, None)

    async def _dismiss(self) -> None:
        if self._serving is not None:
            self._worker.stop(grace=0.5)
            with contextlib.suppress(Exception, asyncio.CancelledError):
                await asyncio.wait_for(self._serving, 5.0)

    # Well-behaved attempts wait for each other: they succeed only if every slot has one of them at the same time.
    def _arrive(self) -> float:
        with self._guard:
            self._inside += 1
        return time.monotonic() + FREE_SECONDS / 2

    def _met(self) -> dict[str, bool]:
        if self._inside < CONCURRENCY:
            raise sk.fail(f"only {self._inside} of {CONCURRENCY} slots are free")
        return {"well": True}

    # -- cases ---------------------------------------------------------------------------------------------------------
    def generate(self, random: Random) -> Misdeed:
        acts = tuple(
            (random.choice(tuple(ACTS)), random.choice(tuple(VALUES))) for _ in range(random.choice((0, 0, 1, 2)))
        )
        ending = random.choice(tuple(EXCEPTIONS)) if random.random() < 0.4 else random.choice(tuple(ENDINGS))
        return Misdeed(random.choice(MODES), acts, ending, random.choice(tuple(VALUES)))

    def check(self, case: Misdeed) -> Verdict:
        return self._runner.run(self._check(case))

    async def _check(self, case: Misdeed) -> Verdict:
        assert self._engine is not None
        self._case = case
        run_id = (await self._engine.start(self._plans[case.mode])).run_id
        found = await self._engine.wait(run_id, seconds=SETTLED_SECONDS, until_blocked=True)
        self._case = None
        try:
            return await self._outcome(run_id, found) or Verdict(outcome=str(found.state))
        finally:
            if found.state is RunState.BLOCKED:
                await self._engine.cancel(run_id)

    async def _outcome(self, run_id: str, found: sk.Result) -> Verdict | None:
        if not found.finished and found.state is not RunState.BLOCKED:
            await self._replace_worker()
            return broken("ends or waits", f"after {SETTLED_SECONDS:g} s the run is {found.state}")
        if found.state is RunState.FAILED and not found.error:
            return broken("ends with a clear outcome", "failed without a reason")
        return await self._readable(run_id) or await self._free()

    async def _readable(self, run_id: str) -> Verdict | None:
        engine = self._engine
        assert engine is not None
        try:
            for name in dialects.names():
                await engine.show(run_id, as_=name)
            await engine.runs(limit=2)
            certificate = await engine.certify(run_id)
        except Exception as error:  # noqa: BLE001 - whatever it is, the run cannot be read
            return broken("can be read in every form", exception_text(error))
        return None if certificate.ok else broken("conforms", certificate.page()[:500])

    async def _free(self) -> Verdict | None:
        """Whether every slot works: as many well-behaved runs of each kind as there are slots, at once."""
        engine, serving = self._engine, self._serving
        assert engine is not None
        assert serving is not None
        found: list[sk.Result] = []
        for mode in MODES:
            self._inside = 0
            runs = [(await engine.start(self._plans[mode])).run_id for _ in range(CONCURRENCY)]
            found += [await engine.wait(run, seconds=FREE_SECONDS) for run in runs]
        if serving.done():
            problem = serving.exception()
            await self._replace_worker()
            return broken("leaves the worker alive", "it stopped" if problem is None else exception_text(problem))
        if stuck := [one.error or str(one.state) for one in found if one.state is not RunState.SUCCEEDED]:
            await self._replace_worker()
            return broken("gives its slot back", f"well-behaved runs: {', '.join(stuck)}")
        return None

    async def _replace_worker(self) -> None:
        await self._dismiss()
        await self._hire()

    def show(self, case: Misdeed) -> str:
        acts = "".join(f"{act} ({value}), then " for act, value in case.acts)
        return f"{case.mode}: {acts}{case.ending} ({case.value})"

    def smaller(self, case: Misdeed) -> Iterator[Misdeed]:
        for acts in shorter(case.acts):
            yield msgspec.structs.replace(case, acts=tuple(acts))


def misbehaved(case: Misdeed, ctx: sk.Context) -> object:
    """Do what the case says; called where a handler is called."""
    for act, value in case.acts:
        # A handler may well go on after it was refused something.
        with contextlib.suppress(Exception):
            ACTS[act](ctx, VALUES[value]())
    if case.ending in EXCEPTIONS:
        raise EXCEPTIONS[case.ending]()
    return ENDINGS[case.ending](VALUES[case.value]())
