"""One life on three stores: the same operations at the same moments on the model, on SQLite and on PostgreSQL.

The model is the oracle. After every operation all three must have given the same answer and must hold the same rows,
to the byte of every journal entry. `make test` runs 3 examples, `make proof` 100.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import asyncpg
import msgspec
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from msgspec.structs import replace
from tests.suites import in_proof
from tests.workbench import ACTOR, SECOND, TENANT, Bench, gate, report_of, task

from stepkeep.kernel.decide.decision import Claimer
from stepkeep.kernel.definition import (
    Approval,
    Completion,
    Definition,
    Handler,
    Retry,
    Rule,
    StepDefinition,
    Undo,
    Wait,
)
from stepkeep.kernel.machine.outcomes import (
    Completed,
    Emitted,
    Failed,
    Outcome,
    Released,
    RulesFailed,
    RulesPassed,
    Waiting,
)
from stepkeep.kernel.machine.rows import Run, Step, Worker
from stepkeep.kernel.machine.states import Category, OnFailure, RunState, StepState
from stepkeep.kernel.people.authority import Caller
from stepkeep.operations.continuation.going_on import rerun
from stepkeep.operations.people import people
from stepkeep.operations.pipeline import start, workers
from stepkeep.operations.pipeline.expire import sweep
from stepkeep.operations.pipeline.start import StartRequest, start_idle
from stepkeep.operations.pipeline.transact import Claim, Transactor
from stepkeep.store.change import Lease, Renewed, StoredDefinition
from stepkeep.store.connect import connect
from stepkeep.store.protocol import Store
from stepkeep.store.records import RunFilter, RunRecord
from stepkeep.store.sqlite.store import SqliteStore
from stepkeep_lab.simulation.database import Database
from stepkeep_lab.simulation.store import ModelStore

pytestmark = pytest.mark.postgres

OPERATIONS = 40
BASE = 1_800_000_000 * SECOND
"""What every clock says, apart from the offset that the machine moves."""
LEASE = 30 * SECOND
TOKEN = "a token"
HOOK = Undo(executor=Handler(name="undo"), retry=Retry(max_attempts=2))
CLOCK = f"create or replace function stepkeep.stepkeep_now() returns bigint language sql volatile return {BASE}::bigint"
TABLES = (
    "definitions, queues, runs, run_details, steps, attempts, journal, messages, outbox, idempotency_keys,"
    " business_keys, workers, worker_journal, gates, decisions"
)

DEFINITIONS = (
    Definition(
        name="people",
        version=1,
        steps=(
            task("a", 0, undo=HOOK, retry=Retry(max_attempts=2)),
            gate("g", 1, ["a"], approval=Approval(deadline=60 * SECOND)),
            task("m", 2, ["g"], completion=Completion.MANUAL, completion_deadline=60 * SECOND, undo=HOOK),
            gate("w", 3, ["m"], wait=Wait(event="paid", deadline=60 * SECOND)),
        ),
        on_failure=OnFailure.COMPENSATE,
        timeout=600 * SECOND,
    ),
    Definition(
        name="diamond",
        version=1,
        steps=(
            task("a", 0, undo=HOOK, on_failure=OnFailure.COMPENSATE),
            task("b", 1, ["a"], undo=HOOK, on_failure=OnFailure.COMPENSATE, rules=(Rule(expression="true"),)),
            task("c", 2, ["a"], on_failure=OnFailure.SKIP, executor=Handler(name="other")),
            StepDefinition(name="d", order=3, executor=Handler(name="noop"), hold=Approval(), depends_on=()),
            task("e", 4, ["b", "d"], on_failure=OnFailure.CONTINUE),
        ),
        rules=(Rule(expression="true"),),
        priority=1,
    ),
    Definition(name="small", version=2, steps=(task("only"),), labels={"kind": "small"}),
)

OUTCOMES: tuple[Outcome, ...] = (
    Completed(output=b'{"n":1}', token=people.token_hash(TOKEN), emit=(Emitted("told", b'{"to":"you"}'),)),
    Completed(token=people.token_hash(TOKEN), cost=b"1"),
    Failed(category=Category.TRANSIENT, error="no"),
    Failed(category=Category.AUTH, error="never", delay=5 * SECOND),
    Waiting(event="paid", timeout=20 * SECOND),
    Waiting(event="paid", timeout=None, emit=(Emitted("asked", b"{}"),)),
    Released(),
    RulesPassed(),
    RulesFailed(error="broken"),
)
numbers, actors = st.integers(0, 9), st.sampled_from(("ann", "bea"))


class Lives(RuleBasedStateMachine):
    """What may happen to an engine, told to three of them at once."""

    dsn: ClassVar[str]
    folder: ClassVar[Path]
    made: ClassVar[Iterator[int]] = itertools.count()
    patch: ClassVar[pytest.MonkeyPatch]
    entries: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.offset = 0
        self.count = 0
        self.runs: list[str] = []
        self.claims: list[list[Claim]] = []
        self.workers: list[list[Worker]] = []
        self.benches: list[Bench] = []
        self.names: Iterator[str] = iter(())

    # -- the stage ---------------------------------------------------------------------------------------------------
    @initialize()
    def open_all(self) -> None:
        self.patch.setattr(start, "uuid7", lambda: next(self.names))
        self.patch.setattr(workers, "new_id", lambda app: next(self.names))
        self.runner.run(self._open())
        self.register()
        for number in range(len(DEFINITIONS)):
            self.start(number, None, None, b"{}", True)

    async def _open(self) -> None:
        server = await asyncpg.connect(self.dsn)
        await server.execute(f"truncate {TABLES} restart identity")
        await server.close()
        sqlite: Any = connect(f"sqlite:///{self.folder}/{next(self.made)}.db")
        sqlite._clock.now = lambda: BASE + sqlite._clock.offset
        stores: tuple[Store, ...] = (ModelStore(Database(lambda: BASE)), sqlite, connect(self.dsn))
        for store in stores:
            await store.open()
            await store.migrate()
            # Between two readings of the database's clock no time passes, or the three would tell different times.
            self.benches.append(Bench(Transactor(store, monotonic=float)))

    def teardown(self) -> None:
        Lives.entries += sum(self.runner.run(self._length(run)) for run in self.runs)
        for bench in self.benches:
            self.runner.run(bench.store.close())
        self.runner.close()

    async def _length(self, run: str) -> int:
        return len(await self.benches[0].store.read_journal(TENANT, run))

    # -- the same on all ---------------------------------------------------------------------------------------------
    def on_all(self, act: Callable[[Bench, int], Awaitable[Any]]) -> list[Any]:
        """Let all three do it; they must answer alike and end up alike."""
        self.count += 1
        names = [f"00000000-0000-7000-8000-{self.count:06}{place:06}" for place in range(9)]
        answers = []
        for place, bench in enumerate(self.benches):
            self.names = iter(names)
            bench.store.clock_offset = self.offset
            answers.append(self.runner.run(_answered(act(bench, place))))
        said = [_plain(answer, {}) for answer in answers]
        assert said[0] == said[1] == said[2], f"model, SQLite and PostgreSQL say {said}"
        rows = [self.runner.run(self._rows(bench)) for bench in self.benches]
        for name, there in rows[0].items():
            assert there == rows[1][name], f"{name}: the model has {there}, SQLite {rows[1][name]}"
            assert there == rows[2][name], f"{name}: the model has {there}, PostgreSQL {rows[2][name]}"
        assert rows[0]["stuck"] == []
        return answers

    async def _rows(self, bench: Bench) -> dict[str, Any]:
        store = bench.store
        queues = sorted((msgspec.json.encode(spec), queue) for queue, spec in await store.list_queues(TENANT))
        seen: dict[str, Any] = {
            "now": await store.now(),
            "definitions": await store.list_definitions(TENANT),
            "queues": [spec for spec, _ in queues],
            "runs": await store.list_runs(RunFilter(tenant=TENANT)),
            "counts": {state: number for state, number in (await store.count_runs(TENANT)).items() if number},
            "due": sorted(await store.find_due(100), key=str),
            "stuck": await store.stuck_runs(),
            "workers": await store.list_workers(TENANT),
            "silent": await store.silent_workers(30 * SECOND),
        }
        for run in self.runs:
            seen[f"run {run}"] = await store.read_run(TENANT, run)
            seen[f"steps of {run}"] = await store.read_steps(TENANT, run)
            seen[f"attempts of {run}"] = await store.read_attempts(TENANT, run)
            seen[f"messages of {run}"] = await store.read_messages(TENANT, run)
            seen[f"journal of {run}"] = await store.read_journal(TENANT, run)
            seen[f"outbox of {run}"] = await store.read_outbox(TENANT, run)
            seen[f"outputs of {run}"] = await store.read_outputs([(TENANT, run, no) for no in range(5)])
        for worker in seen["workers"]:
            seen[f"journal of {worker.id}"] = await store.read_worker_journal(TENANT, worker.id)
        names = {queue: place for place, (_, queue) in enumerate(queues, 1)}
        return {name: _plain(there, names) for name, there in seen.items()}

    def run_of(self, number: int) -> str:
        return self.runs[number % len(self.runs)]

    def claim_of(self, number: int) -> list[Claim]:
        return self.claims[number % len(self.claims)]

    # -- time --------------------------------------------------------------------------------------------------------
    @rule(seconds=st.sampled_from((1, 5, 31, 61, 601)))
    def time_passes(self, seconds: int) -> None:
        self.offset += seconds * SECOND
        self.on_all(lambda bench, place: bench.store.now())

    @rule()
    def sweep(self) -> None:
        self.on_all(lambda bench, place: sweep(bench.transactor))

    # -- definitions and runs ----------------------------------------------------------------------------------------
    @rule(number=st.integers(0, len(DEFINITIONS) - 1))
    def publish(self, number: int) -> None:
        async def act(bench: Bench, place: int) -> Any:
            return (await bench.publish(DEFINITIONS[number])).digest

        self.on_all(act)

    @rule(
        number=st.integers(0, len(DEFINITIONS) - 1),
        key=st.sampled_from((None, None, "k1", "k2")),
        business=st.sampled_from((None, None, "order 1")),
        body=st.sampled_from((b"{}", b'{"n":2}')),
        now=st.booleans(),
    )
    def start(self, number: int, key: str | None, business: str | None, body: bytes, now: bool) -> None:
        async def act(bench: Bench, place: int) -> Any:
            plan = await bench.publish(DEFINITIONS[number])
            request = StartRequest(
                plan=plan,
                caller=Caller(TENANT, ACTOR),
                input=body,
                idempotency_key=key,
                business_key=business,
                start_now=now,
            )
            return await bench.starter.start(request)

        self._remember(self.on_all(act)[0])

    def _remember(self, started: Any) -> None:
        if not isinstance(started, Exception) and started.created:
            self.runs.append(started.run_id)

    @precondition(lambda self: self.runs)
    @rule(number=numbers)
    def start_idle(self, number: int) -> None:
        run = self.run_of(number)
        self.on_all(lambda bench, place: start_idle(bench.transactor, run, caller=Caller(TENANT, ACTOR)))

    @precondition(lambda self: self.runs)
    @rule(number=numbers, key=st.sampled_from((None, "again")))
    def rerun(self, number: int, key: str | None) -> None:
        run = self.run_of(number)
        by: dict[str, Any] = {"caller": Caller(TENANT, ACTOR), "idempotency_key": key}
        self._remember(self.on_all(lambda bench, place: rerun(bench.transactor, bench.starter, run, **by))[0])

    # -- workers -----------------------------------------------------------------------------------------------------
    @rule()
    def register(self) -> None:
        answers = self.on_all(
            lambda bench, place: workers.register(bench.store, tenant=TENANT, app="oracle", capacity=3)
        )
        self.workers.append(answers)

    @rule(number=numbers, what=st.sampled_from(("beat", "mark_busy", "mark_idle", "drain", "shut_down")))
    def worker_life(self, number: int, what: str) -> None:
        rows = self.workers[number % len(self.workers)]
        act = getattr(workers, what)
        answers = self.on_all(lambda bench, place: act(bench.store, rows[place]))
        if not isinstance(answers[0], Exception):
            rows[:] = answers

    async def _claimer(self, bench: Bench, number: int, place: int, room: int) -> Claimer:
        worker = self.workers[number % len(self.workers)][place]
        queues = frozenset(queue for queue, _ in await bench.store.list_queues(TENANT))
        return Claimer(actor=worker.id, worker=worker.no, lease=LEASE, slots=room, queues=queues)

    def _hold(self, given: list[Any]) -> None:
        if not isinstance(given[0], Exception):
            self.claims += [list(claims) for claims in zip(*given, strict=True)]

    @rule(number=numbers, limit=st.integers(1, 4))
    def claim(self, number: int, limit: int) -> None:
        async def act(bench: Bench, place: int) -> Any:
            return await bench.transactor.claim(await self._claimer(bench, number, place, limit), limit=limit)

        self._hold(self.on_all(act))

    @precondition(lambda self: self.claims)
    @rule(number=numbers, last=st.booleans(), outcome=st.sampled_from(OUTCOMES), room=st.integers(0, 2))
    def report(self, number: int, last: bool, outcome: Outcome, room: int) -> None:
        claims = self.claims[-1] if last else self.claim_of(number)

        async def act(bench: Bench, place: int) -> Any:
            claimer = await self._claimer(bench, number, place, room) if room else None
            return await bench.transactor.report([report_of(claims[place], outcome)], claimer)

        answers = self.on_all(act)
        if not isinstance(answers[0], Exception):
            self._hold([claimed for _, claimed in answers])

    @rule(limit=st.integers(1, 3), outcome=st.sampled_from((None, None, None, *OUTCOMES)))
    def work(self, limit: int, outcome: Outcome | None) -> None:
        """A worker does its job: it claims, and reports what is expected of it, or something else."""
        before = len(self.claims)
        self.claim(0, limit)
        for place in range(before, len(self.claims)):
            [step, *_] = [claim.step for claim in self.claims[place]]
            checks = step.state is StepState.VALIDATING or step.no == 2 * self.claims[place][0].plan.size
            self.report(place, False, outcome or (RulesPassed() if checks else OUTCOMES[0]), 0)

    @precondition(lambda self: self.claims)
    @rule(number=numbers)
    def renew(self, number: int) -> None:
        claims = self.claim_of(number)
        step = claims[0].step
        lease = Lease(TENANT, step.run_id, step.no, step.fence, LEASE)
        self.on_all(lambda bench, place: bench.store.renew([lease]))

    # -- people and the outside --------------------------------------------------------------------------------------
    @precondition(lambda self: self.runs)
    @rule(number=numbers, approve=st.booleans(), who=actors, step=st.sampled_from((None, "g", "d")))
    def decide(self, number: int, approve: bool, who: str, step: str | None) -> None:
        run = self.run_of(number)
        by: dict[str, Any] = {"approve": approve, "caller": Caller(TENANT, who), "step": step}
        self.on_all(lambda bench, place: people.decide_gate(bench.transactor, run, **by))

    @precondition(lambda self: self.runs)
    @rule(
        number=numbers,
        who=actors,
        token=st.sampled_from((TOKEN, TOKEN, "wrong")),
        outcome=st.sampled_from(("Succeeded", "Failed", "Cancelled")),
        output=st.sampled_from((None, b'{"by":"hand"}')),
    )
    def complete(self, number: int, who: str, token: str, outcome: str, output: bytes | None) -> None:
        run = self.run_of(number)
        by: dict[str, Any] = {
            "token": token,
            "outcome": outcome,
            "caller": Caller(TENANT, who),
            "output": output,
            "evidence": ("e1",),
        }
        self.on_all(lambda bench, place: people.complete(bench.transactor, run, "m", **by))

    @precondition(lambda self: self.runs)
    @rule(number=numbers, name=st.sampled_from(("paid", "other")), id=st.sampled_from(("m1", "m2", "m3", "m4")))
    def send(self, number: int, name: str, id: str) -> None:  # noqa: A002
        run = self.run_of(number)
        by: dict[str, Any] = {"caller": Caller(TENANT, "outside"), "message_id": id}
        self.on_all(lambda bench, place: people.send(bench.transactor, run, name, b'{"m":1}', **by))

    @precondition(lambda self: self.runs)
    @rule(number=numbers, compensate=st.booleans(), sure=st.integers(0, 2))
    def cancel(self, number: int, compensate: bool, sure: int) -> None:
        if sure:
            return
        run = self.run_of(number)
        by: dict[str, Any] = {"caller": Caller(TENANT, "cyd"), "compensate": compensate}
        self.on_all(lambda bench, place: people.cancel(bench.transactor, run, **by))


async def _answered(work: Awaitable[Any]) -> Any:
    try:
        return await work
    except Exception as problem:  # noqa: BLE001 - refusals are answers, and must be the same everywhere
        return problem


def _plain(thing: Any, queues: dict[int, int]) -> Any:
    """A thing as it can be compared: errors by kind and words, and without the numbers that each store gives itself."""
    if isinstance(thing, Exception):
        return (type(thing).__name__, str(thing))
    if isinstance(thing, Claim):
        return (thing.run_id, _plain(thing.step, queues), thing.claimed_at)
    if isinstance(thing, list | tuple):
        return [_plain(one, queues) for one in thing]
    if isinstance(thing, RunRecord):
        return (_plain(thing.run, queues), thing.details)
    if isinstance(thing, Run):
        return replace(thing, definition_id=0)
    if isinstance(thing, Step):
        return replace(thing, queue=queues.get(thing.queue, 0))
    if isinstance(thing, StoredDefinition):
        return replace(thing, id=0, queues=tuple(queues.get(queue, 0) for queue in thing.queues))
    return thing


@pytest.fixture
def three(postgres_dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database of each kind, all with the same clock."""

    async def prepare() -> None:
        store = connect(postgres_dsn)
        await store.open()
        await store.migrate()
        await store.close()
        server = await asyncpg.connect(postgres_dsn)
        await server.execute(CLOCK)
        await server.close()

    asyncio.run(prepare())
    Lives.dsn, Lives.folder, Lives.patch = postgres_dsn, tmp_path, monkeypatch


LIVES = settings(
    max_examples=200,
    stateful_step_count=OPERATIONS,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],
)


@pytest.mark.parametrize("examples", [3, in_proof(100)])
def test_the_model_sqlite_and_postgresql_live_the_same_lives(three: None, examples: int) -> None:
    Lives.entries = 0
    run_state_machine_as_test(Lives, settings=settings(LIVES, max_examples=examples))
    assert Lives.entries > 6 * examples, f"{Lives.entries} journal entries are too few to show anything"


@pytest.mark.proof
def test_a_store_that_renews_what_has_run_out_is_noticed(three: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison can fail."""

    async def generous(store: SqliteStore, leases: Sequence[Lease]) -> list[Renewed]:
        return [Renewed(lease.run_id, lease.no, lease.fence, RunState.RUNNING) for lease in leases]

    monkeypatch.setattr(SqliteStore, "renew", generous)
    with pytest.raises(AssertionError, match="model, SQLite and PostgreSQL say"):
        run_state_machine_as_test(Lives, settings=LIVES)
