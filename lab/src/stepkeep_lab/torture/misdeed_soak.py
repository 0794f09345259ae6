"""One worker serves very many runs with misbehaving handlers, mixed with correct ones; then its resources are checked.

Every run must end as its misdeed says. Afterwards all slots are free, and threads, descriptors, processes and memory
are what they were. The worker runs in this process, so that its threads can be counted. `stepkeep lab misdeeds` and a
test call it.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from stepkeep.definition.python.registry import HandlerSpec, Registry
from stepkeep.edges.safe_text import inert_line
from stepkeep.kernel.definition import Definition, Handler, Retry, StepDefinition
from stepkeep.kernel.machine.states import RUN_TERMINAL, RunState
from stepkeep.kernel.people.authority import Caller
from stepkeep.kernel.plan import Plan
from stepkeep.operations.definitions.publish import publish
from stepkeep.operations.pipeline.start import Starter, StartRequest
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.store.connect import connect
from stepkeep.store.protocol import Store
from stepkeep.worker.loop import Worker
from stepkeep.worker.settings import Settings
from stepkeep_lab.reports import commit, write_report
from stepkeep_lab.torture.misdeeds import HONEST, MISDEEDS, Misdeed

ACTOR = "misdeeds"
WINDOW = 1_000
"""How many runs are under way at once."""
GROUP = 200
LOOK_SECONDS = 0.02
SETTLE_SECONDS = 20.0
STUCK_SECONDS = 120.0
WARM_UP = 0.1
"""Which part of the runs comes before the first count: pools fill, caches too."""
SAMPLES = 10
MAX_FINDINGS = 50
MEMORY_KB = 64 * 1024
"""How much a worker may grow after the warm-up, whatever the number of runs: the allocator does not give all back."""

SETTINGS = Settings(concurrency=200, threads=16, grace_seconds=10.0, sweep_seconds=0.2, result_bytes=500_000)


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """What the process holds at one moment, after `runs` of them."""

    runs: int
    slots_free: int
    threads: int
    own_threads: int
    descriptors: int
    processes: int
    memory_kb: int


class Soak(msgspec.Struct, frozen=True, kw_only=True):
    """What became of it. `descriptors` are counted without the one that each idle process of the worker has."""

    seed: int
    runs: int
    store: str
    seconds: float
    per_second: float
    ended: dict[str, int]
    logged: dict[str, int]
    before: Held
    after: Held
    samples: tuple[Held, ...]
    findings: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not self.findings


def run_soak(url: str, *, runs: int, seed: int, told: Callable[[Held], None] = lambda held: None) -> Soak:
    """Serve this many runs; the seed repeats what is drawn, not how it is scheduled."""
    with _overheard() as logged:
        return asyncio.run(_Soaking(url, runs, seed, told, logged).whole())


class _Soaking:
    def __init__(self, url: str, runs: int, seed: int, told: Callable[[Held], None], logged: Counter[str]) -> None:
        self._url, self._runs, self._seed, self._told, self._logged = url, runs, seed, told, logged
        self._rng = random.Random(seed)  # noqa: S311 - draws misdeeds
        self._tenant = f"misdeeds-{seed}-{os.getpid()}-{time.time_ns()}"
        self._open: dict[str, Misdeed] = {}
        self._ended: Counter[str] = Counter()
        self._findings: list[str] = []
        self._samples: list[Held] = []

    async def whole(self) -> Soak:
        store = connect(self._url)
        await store.open()
        try:
            await store.migrate()
            return await self._serve(store)
        finally:
            await store.close()

    async def _serve(self, store: Store) -> Soak:
        transactor, registry = Transactor(store), Registry()
        plans = [await self._publish(transactor, registry, each) for each in (*HONEST, *MISDEEDS)]
        worker = Worker(transactor, registry, app="misdeeds", tenant=self._tenant, settings=SETTINGS)
        serving = asyncio.create_task(worker.serve())
        began = time.monotonic()
        try:
            drawn, starter = self._draw(plans), Starter(transactor)
            warm = max(len(plans), int(len(drawn) * WARM_UP))
            await self._feed(store, starter, worker, drawn[:warm])
            before = await self._settled(worker)
            self._samples.append(before)
            await self._feed(store, starter, worker, drawn[warm:])
            seconds = time.monotonic() - began
            after = await self._settled(worker)
        finally:
            worker.stop()
            await serving
        self._judge(before, after)
        return Soak(
            seed=self._seed,
            runs=self._runs,
            store=self._url.partition(":")[0],
            seconds=round(seconds, 1),
            per_second=round(self._runs / seconds, 1),
            ended=dict(sorted(self._ended.items())),
            logged=dict(sorted(self._logged.items())),
            before=before,
            after=after,
            samples=tuple(self._samples),
            findings=tuple(self._findings),
        )

    async def _publish(self, transactor: Transactor, registry: Registry, misdeed: Misdeed) -> tuple[Misdeed, Plan]:
        registry.register(
            HandlerSpec(
                name=misdeed.name,
                function=misdeed.function,
                mode=misdeed.mode,
                transactional=misdeed.transactional,
            )
        )
        step = StepDefinition(
            name="do",
            order=0,
            executor=Handler(name=misdeed.name),
            retry=Retry(max_attempts=1),
            timeout=misdeed.timeout,
            transactional=misdeed.transactional,
        )
        definition = Definition(name=misdeed.name, version=1, steps=(step,))
        return misdeed, await publish(transactor, definition, caller=Caller(self._tenant, ACTOR))

    # -- runs --------------------------------------------------------------------------------------------------------
    def _draw(self, plans: Sequence[tuple[Misdeed, Plan]]) -> list[tuple[Misdeed, Plan]]:
        """What the runs do. The first of them show each kind once, however few there are."""
        first = self._rng.sample(plans, min(self._runs, len(plans)))
        weights = [misdeed.weight for misdeed, _ in plans]
        return first + self._rng.choices(plans, weights, k=self._runs - len(first))

    async def _feed(
        self, store: Store, starter: Starter, worker: Worker, drawn: Sequence[tuple[Misdeed, Plan]]
    ) -> None:
        """Start these, a window of them at a time, and judge each when it has ended."""
        begun = 0
        moved_at = time.monotonic()
        while begun < len(drawn) or self._open:
            while begun < len(drawn) and len(self._open) <= WINDOW - GROUP:
                group = drawn[begun : begun + GROUP]
                begun += len(group)
                started = await asyncio.gather(*(starter.start(self._request(plan)) for _, plan in group))
                for (misdeed, _), run in zip(group, started, strict=True):
                    self._open[run.run_id] = misdeed
            worker.wake()
            await asyncio.sleep(LOOK_SECONDS)
            now, moved = time.monotonic(), await self._collect(store)
            if moved:
                moved_at = now
            elif now - moved_at > STUCK_SECONDS:
                self._find(f"{len(self._open)} runs do not end: {dict(Counter(m.name for m in self._open.values()))}")
                return
            if self._samples and self._done >= self._samples[-1].runs + self._runs / SAMPLES:
                self._samples.append(_held(worker, self._done))
                self._told(self._samples[-1])

    @property
    def _done(self) -> int:
        return self._ended.total()

    def _request(self, plan: Plan) -> StartRequest:
        return StartRequest(plan=plan, caller=Caller(self._tenant, ACTOR), input=b"{}")

    async def _collect(self, store: Store) -> int:
        """Judge the runs that have ended since the last look; says how many."""
        states = await store.read_states([(self._tenant, run_id) for run_id in self._open])
        ended = {run_id: found.state for (_, run_id), found in states.items() if found.state in RUN_TERMINAL}
        for run_id, state in ended.items():
            await self._judge_run(store, run_id, self._open.pop(run_id), state)
        return len(ended)

    async def _judge_run(self, store: Store, run_id: str, misdeed: Misdeed, state: RunState) -> None:
        attempts = await store.read_attempts(self._tenant, run_id)
        self._ended[misdeed.name] += 1
        if len(attempts) != 1:
            self._find(f"run {run_id} of {misdeed.name} had {len(attempts)} attempts instead of one")
            return
        [attempt] = attempts
        output = (await store.read_outputs([(self._tenant, run_id, 0)])).get((self._tenant, run_id, 0))
        wrong = misdeed.complaint(state, attempt.category, attempt.error, output)
        if wrong is not None:
            self._find(f"run {run_id} of {wrong}")

    # -- what is left ------------------------------------------------------------------------------------------------
    async def _settled(self, worker: Worker) -> Held:
        """What the process holds once nothing more comes back by itself."""
        until = time.monotonic() + SETTLE_SECONDS
        held = _held(worker, self._done)
        while (held.slots_free < SETTINGS.concurrency or worker.held) and time.monotonic() < until:
            await asyncio.sleep(0.1)
            held = _held(worker, self._done)
        return held

    def _judge(self, before: Held, after: Held) -> None:
        if after.slots_free != SETTINGS.concurrency:
            self._find(f"{SETTINGS.concurrency - after.slots_free} of {SETTINGS.concurrency} slots did not come back")
        foreign = (before.threads - before.own_threads, after.threads - after.own_threads)
        if foreign[1] > foreign[0] + 1:
            self._find(f"threads that are not the worker's: {foreign[0]} before, {foreign[1]} after")
        if after.own_threads > 3 * SETTINGS.pool + 1:
            self._find(f"the worker has {after.own_threads} threads")
        if after.processes > SETTINGS.pool:
            self._find(f"{after.processes} processes are left, of at most {SETTINGS.pool}")
        if after.descriptors > before.descriptors + 4:
            self._find(f"descriptors: {before.descriptors} before, {after.descriptors} after")
        if after.memory_kb > before.memory_kb + MEMORY_KB:
            self._find(f"memory: {before.memory_kb} KB before, {after.memory_kb} KB after")
        for said, count in self._logged.items():
            if said.startswith("ERROR stepkeep.worker"):
                self._find(f"logged {count} times: {said}")

    def _find(self, finding: str) -> None:
        if len(self._findings) < MAX_FINDINGS:
            self._findings.append(inert_line(finding))


def _held(worker: Worker, runs: int) -> Held:
    gc.collect()
    threads = [thread.name for thread in threading.enumerate()]
    processes = _children()
    return Held(
        runs=runs,
        slots_free=worker.free_slots,
        threads=len(threads),
        own_threads=sum(name.startswith("stepkeep-") for name in threads),
        descriptors=len(os.listdir("/proc/self/fd")) - processes,
        processes=processes,
        memory_kb=int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024,
    )


def _children() -> int:
    """How many processes this one has started that still run or that nothing has waited for."""
    found = 0
    for task in Path("/proc/self/task").iterdir():
        children = task / "children"
        if children.exists():
            found += len(children.read_text().split())
    return found


class _Overhearing(logging.Handler):
    """Formats every record, as a real handler would, and keeps how often each was said."""

    def __init__(self, logged: Counter[str]) -> None:
        super().__init__(logging.INFO)
        self._logged = logged

    def emit(self, record: logging.LogRecord) -> None:
        self.format(record)
        self._logged[f"{record.levelname} {record.name}: {record.msg:.80}"] += 1


@contextmanager
def _overheard() -> Iterator[Counter[str]]:
    """Keep the log of the soak off the terminal."""
    logged: Counter[str] = Counter()
    handler = _Overhearing(logged)
    loggers = [logging.getLogger(name) for name in ("stepkeep", "asyncio")]
    before = [each.propagate for each in loggers]
    for each in loggers:
        each.addHandler(handler)
        each.propagate = False
    try:
        yield logged
    finally:
        for each, propagate in zip(loggers, before, strict=True):
            each.removeHandler(handler)
            each.propagate = propagate


# -- the report --------------------------------------------------------------------------------------------------------
def as_json(soak: Soak) -> dict[str, object]:
    """Everything, as plain data."""
    return {"ok": soak.ok, "commit": commit(), **msgspec.to_builtins(soak)}


def page(soak: Soak) -> str:
    """The same for people, in Markdown."""
    figures = ("slots_free", "threads", "own_threads", "descriptors", "processes", "memory_kb")
    lines = [
        "# One worker, many misdeeds",
        "",
        f"{soak.runs:,} runs on {soak.store} with seed {soak.seed}: {soak.seconds:g} s, {soak.per_second:g} runs/s.",
        f"Commit `{commit()}`.",
        "",
        f"Verdict: **{'nothing was lost' if soak.ok else 'FAILED'}**.",
        "",
        "| runs | " + " | ".join(name.replace("_", " ") for name in figures) + " |",
        "|---:" * (len(figures) + 1) + "|",
        *(
            f"| {held.runs:,} | " + " | ".join(f"{getattr(held, name):,}" for name in figures) + " |"
            for held in (*soak.samples, soak.after)
        ),
        "",
        *(f"- {finding}" for finding in soak.findings),
        "| misdeed | runs | must end as |",
        "|---|---:|---|",
        *(f"| {each.name} | {soak.ended.get(each.name, 0):,} | {_must(each)} |" for each in (*HONEST, *MISDEEDS)),
        "",
    ]
    return "\n".join(lines)


def _must(misdeed: Misdeed) -> str:
    return "succeeded" if misdeed.category is None else f"{misdeed.category}: {misdeed.says}"


def write(soak: Soak, folder: Path) -> None:
    """`misdeeds.json` and `misdeeds.md` in this folder."""
    write_report(folder, "misdeeds", as_json(soak), page(soak))
