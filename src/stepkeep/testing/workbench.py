"""`Workbench`: an engine for tests, on a temporary SQLite file, with a clock that the test moves and handlers replaced.

Everything that decides, stores and reports is the production code; only waiting is missing. Plain functions, no
`async`: each call does everything that needs neither a person nor a deadline, then returns. Tests call it, directly or
as a fixture.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Coroutine, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from stepkeep.definition.durations import parse_duration
from stepkeep.definition.python.registry import HandlerSpec, Registry, default_registry
from stepkeep.definition.python.retry import Duration
from stepkeep.definition.python.workflow import Workflow
from stepkeep.definition.text.document import nearest, parse_document
from stepkeep.dialects.registry import examine, load_file
from stepkeep.engine import AsyncEngine
from stepkeep.kernel.definition import Agent, Definition, Handler
from stepkeep.kernel.errors import DefinitionError, InvalidInput
from stepkeep.kernel.machine.rows import Run, Step
from stepkeep.kernel.machine.states import RUN_TERMINAL, RunState, StepState
from stepkeep.kernel.plan import Plan
from stepkeep.operations.pipeline.transact import Claim
from stepkeep.store.connect import connect
from stepkeep.store.protocol import Store
from stepkeep.store.records import RunFilter
from stepkeep.store.sqlite.store import SqliteStore
from stepkeep.testing.bench_run import BenchRun
from stepkeep.testing.bench_worker import BenchWorker, stub
from stepkeep.testing.replacements import Call, Replacement

T = TypeVar("T")

START = datetime(2026, 1, 1, 9, 0, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LIVE = tuple(state for state in RunState if state not in RUN_TERMINAL)
MOST_RUNS = 10_000
Target = Workflow | Definition | Plan | Path | str


class _Engine(AsyncEngine):
    """The engine over a store that is there already."""

    def __init__(
        self, store: Store, monotonic: Callable[[], float], registry: Registry, tenant: str, actor: str
    ) -> None:
        self.registry, self.tenant, self.actor = registry, tenant, actor
        self._work_on(store, monotonic)


class Workbench:
    """An engine to test workflows on.

    Without a URL it works on a temporary SQLite file, removed at the end; the clock stands at 9:00 on 1 January 2026
    until it is moved. With one (`sqlite:///…`, `postgresql://…`) it works on that database, which should be the test's
    own, and the clock runs. `handlers` are those that steps find unless they are replaced; by default all that were
    registered with `@stepkeep.step`. With `outside`, commands and HTTP requests that are not replaced are really made.
    `secrets` has the values of secrets; one that is not among them is `NAME-for-tests`. The environment is not read.

    >>> from stepkeep.testing import Workbench
    >>> order = '''
    ... workflow: order
    ... timeout: 2d
    ... on_failure: compensate
    ... steps:
    ...   - {name: reserve, uses: stock.reserve, undo: stock.release}
    ...   - {name: sign-off, approval: {deadline: 24h}}
    ...   - {name: ship, uses: courier.book}
    ... '''
    >>> with Workbench() as bench:
    ...     _ = bench.replace("stock.reserve", fails_times=2, returns={"id": 7})
    ...     released = bench.replace("stock.release")
    ...     _ = bench.replace("courier.book", returns="booked")
    ...     run = bench.run(bench.load(order))
    ...     run.assert_waits("sign-off")
    ...     run.assert_attempts("reserve", 3)
    ...     bench.advance("24h")
    ...     run.assert_state("rolled_back")
    ...     run.assert_undone(["reserve"])
    ...     released.calls[0].inputs
    {'id': 7}
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        handlers: Registry | None = None,
        tenant: str = "default",
        actor: str = "tester",
        outside: bool = False,
        secrets: Mapping[str, str] | None = None,
    ) -> None:
        # The store makes the folder when it opens: a workbench that is never entered leaves nothing behind.
        self._folder: Path | None = None
        if url is None:
            self._folder = Path(tempfile.gettempdir(), f"stepkeep-workbench-{uuid.uuid4()}")
            store: Store = SqliteStore(self._folder / "workbench.db", read_us=lambda: _micros(START))
        else:
            store = connect(url)
        # Where the database's clock stands still, the remembered clock must stand still as well.
        monotonic = time.monotonic if self._folder is None else float
        self.registry = Registry()
        self._base = default_registry if handlers is None else handlers
        self._engine = _Engine(store, monotonic, self.registry, tenant, actor)
        self._worker = BenchWorker(
            self._engine.transactor,
            self.registry,
            tenant,
            find=self._replacement,
            pass_time=self._pass_time,
            outside=outside,
            secrets=lambda name: (secrets or {}).get(name, f"{name}-for-tests"),
        )
        self._by_handler: dict[str, Replacement] = {}
        self._by_step: dict[str, Replacement] = {}
        self._others: Replacement | None = None
        self._names: set[str] = set()
        self._knows_all = False
        self._runner: asyncio.Runner | None = None

    def __enter__(self) -> Self:
        self._runner = asyncio.Runner()
        try:
            self.call(self._open())
        except BaseException:
            self._runner.close()
            self._clean_up()
            raise
        return self

    async def _open(self) -> None:
        await self._engine.__aenter__()
        await self._worker.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._runner is not None
        try:
            self.call(self._close())
        finally:
            self._runner.close()
            self._runner = None
            self._clean_up()
        if error is None:
            self._check_replacements()

    def _check_replacements(self) -> None:
        """Complain of a replacement whose name nothing in this test has: most likely it is misspelt."""
        names = {*self._names, *self._base.names, *self._base.agents}
        for name, made in {**self._by_handler, **self._by_step}.items():
            if self._knows_all and not made.called and name not in names:
                meant = nearest(name, names)
                hint = f" Did you mean {meant}?" if meant else ""
                raise InvalidInput(
                    f"{name} was replaced, and nothing in the workflows of this test has that name.{hint}"
                )

    def _clean_up(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    async def _close(self) -> None:
        await self._worker.close()
        await self._engine.__aexit__(None, None, None)

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine of the engine; for what has no method here."""
        if self._runner is None:
            work.close()
            raise InvalidInput("the workbench is not open. Use it in a `with` block, or take the fixture `workbench`.")
        if asyncio._get_running_loop() is not None:
            work.close()
            raise InvalidInput("a workbench is for plain tests: call it outside of `async def`.")
        return self._runner.run(work)

    @property
    def engine(self) -> AsyncEngine:
        """The engine itself; its methods are coroutines, for `call`."""
        return self._engine

    # -- handlers ------------------------------------------------------------------------------------------------------
    def replace(
        self, name: str | None = None, function: Any = None, *, step: str | None = None, **says: Any
    ) -> Replacement:
        """Let something else answer for a handler or an agent (by its name), or for one step (`step=`).

        A function is called as the handler would be. Otherwise say what an attempt comes to: `returns` a value;
        `raises` an error, always or, with `fails_times`, for the first attempts only; `times_out` and
        `loses_worker` for this many attempts (True: all); `waits_for` an event (and `wait_timeout`) before it
        returns; `takes` this long on the clock. `script` lists what single attempts come to, in order: values, errors,
        `TIMES_OUT`, `LOSES_WORKER`, `stepkeep.wait_for(…)`; what follows is as said above. Each step of each run
        counts by itself.
        """
        if (name is None) == (step is None):
            raise InvalidInput(
                'say what to replace: a handler, replace("mail.send", …), or a step, replace(step="ship", …).'
            )
        made = Replacement(name or str(step), function, **says)
        if name is not None:
            self._by_handler[name] = made
            self._stand_in(name)
        else:
            self._by_step[str(step)] = made
        return made

    def replace_others(self, returns: Any = None, **says: Any) -> Replacement:
        """Let everything that is neither registered nor replaced return this."""
        self._others = Replacement("everything else", returns=returns, **says)
        return self._others

    def share(self, **values: Any) -> None:
        """Give handlers what a lifespan would give them: `workbench.share(pool=fake)` for `ctx.shared["pool"]`."""
        self._worker.shared.fill({**self._worker.shared, **values})

    def person(self, name: str, *, roles: Iterable[str] = (), groups: Iterable[str] = ()) -> None:
        """Register a person with these roles and groups, before the gates open at which they decide."""
        users = self.engine.users
        self.call(users.create(name))
        for role in roles:
            self.call(users.grant(name, role=role))
        for group in groups:
            self.call(users.grant(name, group=group))

    def calls(self, name: str) -> list[Call]:
        """The attempts that came to the replacement of this handler or step."""
        found = self._by_handler.get(name) or self._by_step.get(name)
        if found is None:
            known = ", ".join(sorted({*self._by_handler, *self._by_step})) or "nothing"
            raise InvalidInput(f"{name} is not replaced; replaced are: {known}.")
        return found.calls

    def _stand_in(self, name: str) -> None:
        self._learn(self._base)
        if self.registry.get(name) is None:
            self.registry.register(HandlerSpec(name=name, function=stub))
        if self.registry.agent(name) is None:
            self.registry.register(HandlerSpec(name=name, function=stub, kind="agent"))

    def _learn(self, handlers: Registry) -> None:
        for spec in handlers:
            table = self.registry.agent if spec.kind == "agent" else self.registry.get
            if table(spec.name) is None:
                self.registry.register(spec)

    def _replacement(self, claim: Claim) -> Replacement | None:
        executor = claim.planned.executor
        found = self._by_step.get(claim.planned.name)
        if not isinstance(executor, Handler | Agent):
            return found or self._others
        unknown = self._is_unknown(executor)
        found = found or self._by_handler.get(executor.name) or (self._others if unknown else None)
        if found is not None and unknown:
            self._stand_in(executor.name)
        return found

    def _is_unknown(self, executor: Handler | Agent) -> bool:
        table = self.registry.agent if isinstance(executor, Agent) else self.registry.get
        spec = table(executor.name)
        return spec is None or spec.function is stub

    def token(self, run_id: str, step: str) -> str:
        """The completion token that was issued for a manual step."""
        found = self._worker.tokens.get((run_id, step))
        if found is None:
            raise InvalidInput(f"step {step} has not asked to be completed by hand yet.")
        return found

    # -- runs ----------------------------------------------------------------------------------------------------------
    def load(self, text: str, *, as_: str | None = None, name: str = "workflow.yaml") -> Definition:
        """A definition from text, in any dialect; with what decorators say about the handlers it uses."""
        document = parse_document(text, file=name, syntax="json" if name.endswith(".json") else "yaml")
        report = examine(document, self._handlers(), as_)
        if report.definition is None:
            raise DefinitionError(report.problems)
        return report.definition

    def _handlers(self) -> Registry | None:
        self._learn(self._base)
        return None if self._others is not None else self.registry

    def _definition(self, workflow: Target, as_: str | None) -> Definition | Plan | str:
        if isinstance(workflow, Workflow):
            self._learn(workflow.registry)
            return workflow.definition()
        if isinstance(workflow, Path) or (isinstance(workflow, str) and workflow.endswith((".yaml", ".yml", ".json"))):
            return load_file(Path(workflow), self._handlers(), as_)
        self._learn(self._base)
        return workflow

    def run(self, workflow: Target, input: Any = None, *, as_: str | None = None, **options: Any) -> BenchRun:  # noqa: A002
        """Start a run and let it go until it ends, or until only people, messages or a deadline can move it.

        Retries and lost leases are waited for on the virtual clock; deadlines are not, `advance` does that.
        """
        found = self.start(workflow, input, as_=as_, **options)
        self.settle()
        return found

    def start(self, workflow: Target, input: Any = None, *, as_: str | None = None, **options: Any) -> BenchRun:  # noqa: A002
        """Create a run, and do nothing for it yet; `options` are those of `Engine.start`."""
        definition = self._definition(workflow, as_)
        self._note_names(definition.definition if isinstance(definition, Plan) else definition)
        started = self.call(self._engine.start(definition, input, **options))
        return BenchRun(self, started.run_id)

    def _note_names(self, definition: Definition | str) -> None:
        if isinstance(definition, str):
            self._knows_all = False
            return
        self._knows_all = self._knows_all or not self._names
        for step in definition.work:
            self._names |= {step.name, f"undo:{step.name}"}
            for executor in (step.executor, step.undo.executor if step.undo else None):
                if isinstance(executor, Handler | Agent):
                    self._names.add(executor.name)

    def settle(self) -> None:
        """Do everything that can happen by itself: attempts, retries, leases that run out."""
        self.call(self._settle())

    # -- time ----------------------------------------------------------------------------------------------------------
    @property
    def now(self) -> datetime:
        """The clock's reading."""
        return EPOCH + MICROSECOND * self.call(self._engine.store.now())

    def advance(self, by: Duration) -> None:
        """Move the clock. Everything that falls due on the way happens at its time, and what follows from it."""
        try:
            micros = by // MICROSECOND if isinstance(by, timedelta) else parse_duration(by)
        except ValueError as problem:
            raise InvalidInput(f"advance: {problem}") from None
        if micros < 0:
            raise InvalidInput("advance: time does not go back.")
        self.call(self._advance(micros))

    async def _advance(self, micros: int) -> None:
        await self._settle()
        until = await self._engine.store.now() + micros
        while (due := await self._next_due(everything=True)) is not None and due <= until:
            await self._move_to(due)
            if not await self._worker.sweep():
                break
            await self._settle()
        await self._move_to(until)
        await self._settle()

    async def _settle(self) -> None:
        await self._worker.sweep()
        await self._worker.work()
        while (due := await self._next_due(everything=False)) is not None:
            if not await self._pass_time(due):
                break
            await self._worker.work()

    async def _pass_time(self, until: int) -> bool:
        """Let the clock reach a moment, and time act on what falls due on the way; no new work is begun."""
        acted = False
        while (due := await self._next_due(everything=True)) is not None and due <= until:
            await self._move_to(due)
            if not await self._worker.sweep():
                break
            acted = True
        await self._move_to(until)
        return acted

    async def _move_to(self, moment: int) -> None:
        store = self._engine.store
        store.clock_offset += max(0, moment - await store.now())

    async def _next_due(self, *, everything: bool) -> int | None:
        """When time moves something next; without `everything`, only what needs no person: retries, leases, grace."""
        store, tenant = self._engine.store, self._engine.tenant
        found: list[int] = []
        for record in await store.list_runs(RunFilter(tenant=tenant, states=LIVE, limit=MOST_RUNS)):
            run = record.run
            if run.due_at is not None and (everything or run.state is RunState.STOPPING):
                found.append(run.due_at)
            found += [due for step in await store.read_steps(tenant, run.id) if (due := _due(run, step, everything))]
        return min(found, default=None)


def _due(run: Run, step: Step, everything: bool) -> int | None:
    if step.due_at is None:
        return None
    if step.worker is not None:
        return step.due_at + 1  # a lease lasts through its last microsecond
    return step.due_at if everything or step.state is StepState.RETRYING else None


def _micros(moment: datetime) -> int:
    return (moment - EPOCH) // MICROSECOND
