"""A small bench for tests of operations: definitions in one line, several openings of one database, a clock to move."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from stepkeep.kernel.decision import Accepted, Claimer, Reply
from stepkeep.kernel.definition import Definition, Dependency, Handler, StepDefinition
from stepkeep.kernel.events import StepReported
from stepkeep.kernel.outcomes import Completed, Outcome
from stepkeep.kernel.plan import Plan
from stepkeep.kernel.rows import Worker
from stepkeep.kernel.states import RunState, StepState
from stepkeep.operations import workers
from stepkeep.operations.publish import publish
from stepkeep.operations.start import Starter, StartRequest
from stepkeep.operations.transact import Claim, Transactor
from stepkeep.store.connect import connect

TENANT = "default"
ACTOR = "tester"
SECOND = 1_000_000


def task(name: str, order: int = 0, after: Sequence[str] = (), **options: Any) -> StepDefinition:
    """A step with a handler called `noop` unless another is given."""
    options.setdefault("executor", Handler(name="noop"))
    return StepDefinition(name=name, order=order, depends_on=tuple(Dependency(step=step) for step in after), **options)


def gate(name: str, order: int = 0, after: Sequence[str] = (), **options: Any) -> StepDefinition:
    return StepDefinition(name=name, order=order, depends_on=tuple(Dependency(step=step) for step in after), **options)


def chain(name: str, length: int, **options: Any) -> Definition:
    """`length` steps, one after the other."""
    steps = [task(f"s{no:05}", no, [f"s{no - 1:05}"] if no else []) for no in range(length)]
    return Definition(name=name, version=1, steps=tuple(steps), **options)


NAMES: dict[int, str] = {}
"""The id of each worker by its number: a report names the worker that claimed."""


class Bench:
    """One opening of a database, as a process would have it."""

    def __init__(self, transactor: Transactor) -> None:
        self.transactor = transactor
        self.store = transactor.store
        self.starter = Starter(transactor)
        self.worker: Worker | None = None

    async def publish(self, definition: Definition) -> Plan:
        return await publish(self.transactor, definition, tenant=TENANT, actor=ACTOR)

    async def start(self, workflow: Definition | Plan, given: bytes = b"{}", **options: Any) -> str:
        plan = workflow if isinstance(workflow, Plan) else await self.publish(workflow)
        options.setdefault("actor", ACTOR)
        started = await self.starter.start(StartRequest(plan=plan, tenant=TENANT, input=given, **options))
        return started.run_id

    async def claimer(self, slots: int = 0, lease: int | None = None) -> Claimer:
        if self.worker is None:
            self.worker = await workers.register(self.store, tenant=TENANT, app="bench", capacity=100)
        queues = frozenset(queue for queue, _ in await self.store.list_queues(TENANT))
        NAMES[self.worker.no] = self.worker.id
        return Claimer(actor=self.worker.id, worker=self.worker.no, lease=lease, slots=slots, queues=queues)

    async def claim(self, limit: int = 1, lease: int | None = None) -> list[Claim]:
        return await self.transactor.claim(await self.claimer(lease=lease), limit=limit)

    async def report(self, claim: Claim, outcome: Outcome | None = None) -> Reply:
        replies, _ = await self.transactor.report([report_of(claim, outcome)], None)
        return replies[0]

    async def work_off(self, limit: int = 100) -> int:
        """Complete everything that is ready, and what follows, until nothing is. Returns how many steps were run."""
        done = 0
        while claims := await self.claim(limit):
            for reply in (await self.transactor.report([report_of(claim) for claim in claims], None))[0]:
                assert isinstance(reply, Accepted), reply
            done += len(claims)
        return done

    async def state(self, run_id: str) -> RunState:
        found = await self.store.read_run(TENANT, run_id)
        assert found is not None
        return found.run.state

    async def step_states(self, run_id: str) -> list[StepState]:
        return [step.state for step in await self.store.read_steps(TENANT, run_id)]


def report_of(claim: Claim, outcome: Outcome | None = None) -> StepReported:
    assert claim.step.worker is not None
    return StepReported(
        tenant=claim.tenant,
        run_id=claim.run_id,
        actor=NAMES.get(claim.step.worker, "bench"),
        no=claim.step.no,
        fence=claim.step.fence,
        worker=claim.step.worker,
        outcome=outcome or Completed(output=b'{"ok":true}'),
    )


@asynccontextmanager
async def benches(url: str, count: int = 1) -> AsyncIterator[list[Bench]]:
    """Several openings of one database, each with connections of its own."""
    async with AsyncExitStack() as stack:
        opened = []
        for _ in range(count):
            store = connect(url)
            await store.open()
            stack.push_async_callback(store.close)
            await store.migrate()
            opened.append(Bench(Transactor(store)))
        yield opened
