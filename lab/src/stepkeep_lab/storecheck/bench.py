"""A test bench: one open database, with the operations of workers as one call each.

It decides and checks nothing. The checks of this package use it, and `tests/workbench.py` builds on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from stepkeep.kernel.decide.decision import Claimer
from stepkeep.kernel.definition import Definition, Dependency, Handler, StepDefinition
from stepkeep.kernel.machine.events import StepReported
from stepkeep.kernel.machine.outcomes import Completed, Outcome
from stepkeep.kernel.machine.rows import Worker
from stepkeep.kernel.people.authority import Caller
from stepkeep.kernel.plan import Plan
from stepkeep.operations.definitions.publish import publish
from stepkeep.operations.messages.by_key import KeySender, Sent
from stepkeep.operations.pipeline import workers
from stepkeep.operations.pipeline.batch import Answer
from stepkeep.operations.pipeline.start import Started, Starter, StartRequest
from stepkeep.operations.pipeline.transact import Claim, Transactor
from stepkeep.store.protocol import Store

TENANT = "default"
ACTOR = "tester"


def task(name: str, order: int = 0, after: Iterable[str] = (), **options: Any) -> StepDefinition:
    """A step with a handler called `noop` unless another is given."""
    options.setdefault("executor", Handler(name="noop"))
    return gate(name, order, after, **options)


def gate(name: str, order: int = 0, after: Iterable[str] = (), **options: Any) -> StepDefinition:
    """A step that no worker runs."""
    return StepDefinition(name=name, order=order, depends_on=tuple(Dependency(step=step) for step in after), **options)


NAMES: dict[int, str] = {}
"""The id of each worker by its number: a report names the worker that claimed."""


class Bench:
    """One opening of a database, as a process would have it."""

    def __init__(self, transactor: Transactor) -> None:
        self.transactor = transactor
        self.store: Store = transactor.store
        self.starter = Starter(self.transactor)
        self.key_sender = KeySender(self.transactor, self.starter)
        self.registered: Worker | None = None

    async def publish(self, definition: Definition, tenant: str = TENANT) -> Plan:
        return await publish(self.transactor, definition, caller=Caller(tenant, ACTOR))

    async def begin(self, plan: Plan, actor: str = ACTOR, **options: Any) -> Started:
        """Start a run of a published definition."""
        given = {"caller": Caller(TENANT, actor), "input": b"{}", **options}
        return await self.starter.start(StartRequest(plan=plan, **given))

    async def send_by_key(self, key: str, name: str, payload: bytes = b"null", **options: Any) -> Sent:
        """Send a message to the run with this business key; with `plan`, start it if there is none."""
        plan, start = options.pop("plan", None), None
        given = {"caller": Caller(TENANT, ACTOR), **options.pop("request", {})}
        if plan is not None:
            start = StartRequest(plan=plan, **{"input": b"{}", **given})
        return await self.key_sender.send(key, name, payload, caller=given["caller"], start=start, **options)

    async def claimer(self, slots: int = 0, lease: int | None = None) -> Claimer:
        if self.registered is None:
            self.registered = await workers.register(self.store, tenant=TENANT, app="bench", capacity=100)
        queues = frozenset(queue for queue, _ in await self.store.list_queues(TENANT))
        NAMES[self.registered.no] = self.registered.id
        return Claimer(actor=self.registered.id, worker=self.registered.no, lease=lease, slots=slots, queues=queues)

    async def claim(self, limit: int = 1, lease: int | None = None) -> list[Claim]:
        return await self.transactor.claim(await self.claimer(lease=lease), limit=limit)

    async def report_all(self, claims: Sequence[Claim], outcome: Outcome | None = None) -> list[Answer]:
        """Report on claims, all in one transaction."""
        answers, _ = await self.transactor.report([report_of(claim, outcome) for claim in claims], None)
        return answers


def still_bench(store: Store) -> Bench:
    """A bench on whose clock no time passes between two readings: two stores then agree on every time."""
    return Bench(Transactor(store, monotonic=float))


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
