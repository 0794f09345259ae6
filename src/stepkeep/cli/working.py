"""Works on one run in this process and shows its progress: shared by `run`, `rerun` and `demo`.

A worker runs the steps, and the run's journal shows the progress. It ends when the run has ended, when only people or
messages can change it, or on an interrupt. An interrupted run stays consistent and can be resumed.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from stepkeep.cli.progress import RunProgress, Screen
from stepkeep.edges.own_process import SECRET
from stepkeep.kernel.errors import InvalidInput, StoreError
from stepkeep.kernel.machine.journal import SealedEntry, open_entry
from stepkeep.kernel.machine.states import Phase

if TYPE_CHECKING:
    from stepkeep.definition.python.registry import HandlerSpec, Registry
    from stepkeep.engine import AsyncEngine
    from stepkeep.kernel.definition import Executor
    from stepkeep.kernel.plan import Plan, PlannedStep
    from stepkeep.operations.runs.own_run import Lacking
    from stepkeep.worker.attempts.secrets import SecretReader
    from stepkeep.worker.loop import Worker

LOOK = 0.05
LOOK_AT_PROGRESS = 1.0
GRACE = 5.0


class Worked(NamedTuple):
    """How work on a run ended: its view, the completion tokens issued here, whether it was interrupted, and the steps
    that need a capability which this command was not given."""

    view: dict[str, Any]
    tokens: dict[str, str]
    interrupted: bool
    lacking: tuple[Lacking, ...] = ()


async def work_on(
    engine: AsyncEngine,
    run_id: str,
    screen: Screen,
    *,
    concurrency: int,
    resumed: bool = False,
    serve_all: bool = False,
    capabilities: Sequence[str] = (),
) -> Worked:
    """Be a worker for this run, and with `serve_all` for every run, until there is nothing left to do here.

    It has these capabilities and no other, whatever the definition asks for.
    """
    from stepkeep.cli.tokens import NotingRuntime, open_tokens
    from stepkeep.operations.continuation.successors import successor_of
    from stepkeep.operations.pipeline.plans import plan_of
    from stepkeep.operations.runs.own_run import OwnRun

    plan = await plan_of(engine.transactor, engine.tenant, run_id)
    runtime = NotingRuntime()
    worker = engine.worker(
        app="run",
        concurrency=concurrency,
        capabilities=capabilities,
        runtime=runtime,
        only_run=None if serve_all else run_id,
    )
    await require_handlers(engine, run_id, plan, worker.kinds)
    own = OwnRun(
        engine.transactor,
        engine.tenant,
        run_id,
        capabilities=capabilities,
        report=lambda said: screen.note(f"{said}: give it with --capability, or start a worker that has it"),
    )
    interrupted = asyncio.Event()
    with screen, _stopped_by_signals(worker, interrupted, screen):
        async with Follower(engine, run_id, plan, screen).watching(resumed=resumed):
            await worker.run_until(own.is_over)
    view = (await engine.show(run_id)).as_json()
    given = (engine.transactor, engine.tenant, run_id, view["run"]["output"])
    if not interrupted.is_set() and (following := await successor_of(*given, starts=True)) is not None:
        screen.note(f"run {run_id} continues as run {following}")
        return await work_on(
            engine, following, screen, concurrency=concurrency, serve_all=serve_all, capabilities=capabilities
        )
    tokens = await open_tokens(engine, run_id, plan, runtime.tokens)
    for wait in view["run"]["waiting_for"]:
        if wait["step"] in tokens:
            wait["token"] = tokens[wait["step"]]
    return Worked(view, tokens, interrupted.is_set(), own.stranded)


async def require_handlers(engine: AsyncEngine, run_id: str, plan: Plan, kinds: Sequence[str]) -> None:
    """Refuse to work on a run without its handlers, or with an executor that is not among `kinds`: it would wait
    forever."""
    from stepkeep.kernel.machine.states import STEP_TERMINAL

    rows = await engine.store.read_steps(engine.tenant, run_id)
    require_code(engine, run_id, plan, [plan.of(one) for one in rows if one.state not in STEP_TERMINAL], kinds)


def require_code_to_go_on(
    engine: AsyncEngine, run_id: str, workflow: Plan, again: Collection[str], capabilities: Sequence[str]
) -> None:
    """The same for a run that is not made yet, in which the steps named `again` run: nothing is made in vain."""
    left = [step for step in workflow.steps if step.name in again]
    kinds = engine.worker(app="run", capabilities=capabilities).kinds
    require_code(engine, run_id, workflow, left, kinds, "; or leave the new run to workers (--no-wait)")


def require_code(
    engine: AsyncEngine, run_id: str, plan: Plan, left: Sequence[PlannedStep], kinds: Sequence[str], or_else: str = ""
) -> None:
    """Refuse steps that this program has no code for, or may not run."""
    from stepkeep.definition.native.build import handlers_among
    from stepkeep.worker.attempts.secrets import SecretReader, Secrets

    final = handlers_among(plan.definition.check_capabilities or ())
    missing = dict.fromkeys(name for name in final if engine.registry.get(name) is None)
    secrets = SecretReader(engine.policies.get("secrets", Secrets()))
    _require_kinds(run_id, plan, left, kinds)
    for planned in left:
        if planned.executor is not None:
            _require_secrets(run_id, planned, secrets)
            missing |= dict.fromkeys(_missing(run_id, plan, planned, planned.executor, engine.registry))
    if missing:
        names = ", ".join(list(missing)[:10])
        raise InvalidInput(
            f"no code was given that has the handlers of run {run_id}: {names}. Name it with --app{or_else}."
        )


def _capabilities(planned: PlannedStep) -> tuple[str, ...]:
    undo = planned.definition.undo if planned.phase is Phase.UNDO else None
    own = None if undo is None else undo.capabilities
    return planned.definition.capabilities if own is None else own


def _require_secrets(run_id: str, planned: PlannedStep, secrets: SecretReader) -> None:
    from stepkeep.definition.expressions.scope import secrets_among

    for name in secrets_among(_capabilities(planned)):
        if not secrets.has(name):
            raise InvalidInput(
                f"step {planned.name} of run {run_id} reads the secret {name}, which is not here: "
                f"set {SECRET}{name}, or give --secrets-dir, --secrets-file or --secrets-command."
            )


def _missing(run_id: str, plan: Plan, planned: PlannedStep, executor: Executor, registry: Registry) -> Iterator[str]:
    """The handlers that a step needs and this program does not have."""
    from stepkeep.definition.native.build import handlers_among
    from stepkeep.definition.python.registry import is_built_in
    from stepkeep.kernel.definition import Agent, Handler

    yield from (name for name in handlers_among(_capabilities(planned)) if registry.get(name) is None)
    if isinstance(executor, Agent) and registry.agent(executor.name) is None:
        yield executor.name
    elif isinstance(executor, Handler) and not is_built_in(executor):
        if (spec := registry.get(executor.name)) is None:
            yield executor.name
        else:
            _require_fit(run_id, plan, planned, spec)


def _require_fit(run_id: str, plan: Plan, planned: PlannedStep, spec: HandlerSpec) -> None:
    """Refuse a handler that does not take what the step gives it."""
    from stepkeep.definition.python.registry import misfit

    if (said := misfit(spec, planned.inputs, plan.definition)) is not None:
        raise InvalidInput(
            f"step {planned.name} of run {run_id} cannot run here: {said}. "
            "Run it with the code that fits, or give the parameter a default."
        )


def _require_kinds(run_id: str, plan: Plan, left: Sequence[PlannedStep], kinds: Sequence[str]) -> None:
    """Refuse what this program may not run, in the words of `explain`."""
    from stepkeep.kernel.plan import queue_specs
    from stepkeep.operations.remote.services import kinds_of
    from stepkeep.operations.runs.staffing import title

    specs, final = queue_specs(plan.definition), 2 * len(plan.steps)
    for no in sorted({*(plan.written_no(step.no) for step in left), final}):
        if (spec := specs[no]) is not None and not kinds_of(spec) <= set(kinds):
            raise InvalidInput(
                f"step {plan.at(no).name} of run {run_id} cannot run here: it needs {title(spec)}, and this program "
                "may not do that: see --no-commands, --allow-commands and --no-http. With --serve-all on PostgreSQL, "
                "commands need --allow-commands."
            )


@contextlib.contextmanager
def _stopped_by_signals(worker: Worker, interrupted: asyncio.Event, screen: Screen) -> Any:
    """The first signal gives running steps a moment to finish; the second does not."""
    loop = asyncio.get_running_loop()

    def stop() -> None:
        is_second = interrupted.is_set()
        interrupted.set()
        # First of all: whatever happens to the note, the worker stops.
        worker.stop(0.0 if is_second else GRACE)
        if not is_second:
            screen.note(f"interrupted: running steps have {GRACE:.0f} s to finish (once more to stop them at once)")

    which = (signal.SIGINT, signal.SIGTERM)
    for one in which:
        loop.add_signal_handler(one, stop)
    try:
        yield
    finally:
        for one in which:
            loop.remove_signal_handler(one)


class Follower:
    """Reads a run's journal as it grows and shows what is new."""

    def __init__(self, engine: AsyncEngine, run_id: str, plan: Plan, screen: Screen) -> None:
        self._engine, self._run_id, self._plan, self._screen = engine, run_id, plan, screen
        self._title = f"run {run_id}, {plan.definition.name} v{plan.definition.version}"
        sleeps = frozenset(step.no for step in plan.steps if step.kind.sleeps)
        self._progress = RunProgress(lambda no: plan.at(no).name, plan.size, plan.definition.timeout, sleeps)
        self._ahead, self._far_at = 0, time.monotonic()

    async def begin(self, *, resumed: bool) -> None:
        """Show the run from here on; events before it was resumed are not shown again."""
        from stepkeep.operations.runs.own_run import leased_elsewhere

        while resumed and (page := await self._pages()):
            for sealed in page:
                self._progress.take(open_entry(sealed.body))
        ahead = self._ahead = await self._engine.store.now() - time.time_ns() // 1000
        self._screen.begin(self._title, self._progress, ahead)
        if not resumed:
            return
        self._screen.note(f"{self._progress.settled:,} of {self._progress.size:,} steps were settled before")
        for said in await leased_elsewhere(self._engine.transactor, self._engine.tenant, self._run_id):
            self._screen.note(said)

    @property
    def state(self) -> str:
        """The run's state, as far as the journal was read."""
        return self._progress.state

    @contextlib.asynccontextmanager
    async def watching(self, *, resumed: bool) -> AsyncIterator[Self]:
        """Show what happens meanwhile."""
        await self.begin(resumed=resumed)
        going_on = asyncio.create_task(self._continue_run())
        try:
            yield self
        finally:
            going_on.cancel()
            await asyncio.gather(going_on, return_exceptions=True)
        await self.look()

    async def _continue_run(self) -> None:
        while True:
            # The worker reports an outage; here it only means that there is nothing new to show.
            with contextlib.suppress(StoreError):
                await self.look()
                await self._look_at_progress()
            await asyncio.sleep(LOOK)

    async def look(self) -> None:
        """Show what was recorded since the last read."""
        while page := await self._pages():
            for sealed in page:
                self._screen.show(self._progress.take(open_entry(sealed.body)))

    async def _look_at_progress(self) -> None:
        """Show how far the handlers of running steps say they are. They say it beside the journal."""
        from stepkeep.operations.runs.progress import progress_words, read_progress

        if time.monotonic() - self._far_at < LOOK_AT_PROGRESS or not self._progress.is_any_running:
            return
        self._far_at = time.monotonic()
        engine, at = self._engine, time.time_ns() // 1000 + self._ahead
        steps = await engine.store.read_steps(engine.tenant, self._run_id)
        found = await read_progress(engine.transactor, engine.tenant, self._run_id, steps)
        told = [self._progress.far(no, progress_words(said), at) for no, said in found.items()]
        self._screen.show([one for one in told if one is not None])

    async def _pages(self) -> list[SealedEntry]:
        return await self._engine.store.read_journal(self._engine.tenant, self._run_id, self._progress.seq)
