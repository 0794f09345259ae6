"""Receivers of events in a simulation: sinks that answer late, refuse, hang, or take an event and lose the answer.

They keep what arrived, in order, and check each arrival against the committed cursor. An operator redrives and drops
what is dead. At the end every event has arrived or was dropped, first arrivals are in order for each run, and no cursor
is left. Only scenarios with `sinks` have them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from msgspec.structs import replace

from stepkeep.kernel.definition import Definition, Hook
from stepkeep.kernel.errors import StepkeepError
from stepkeep.kernel.people.authority import Caller
from stepkeep.operations.delivery import outbox
from stepkeep.operations.delivery.declared_hooks import Selection, hook_sink, sink_of
from stepkeep.operations.delivery.outgoing import pending
from stepkeep.operations.delivery.sinks import add_sink
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.sinks.event import OutgoingEvent
from stepkeep.sinks.interface import SEND_SECONDS, SinkFailed
from stepkeep.store.deliveries import HOOK, WHOLE, Takes, worker_cursor
from stepkeep.store.rows import Delivery
from stepkeep_lab.simulation.loop import Process
from stepkeep_lab.simulation.store import ModelStore

if TYPE_CHECKING:
    from stepkeep_lab.simulation.stage import Stage

EVENTS = (("emitted",), ("emitted", "transitions"), ("endings",), ("workers",))
"""What the sinks of a scenario take, one after the other."""

REFUSE, REFUSE_FOR_GOOD, LOSE_ANSWER, HANG, KILL = 0.25, 0.03, 0.1, 0.02, 0.02
DROP = 0.3
SETTLED_WITHIN = 900.0


def with_hooks(definition: Definition) -> Definition:
    """The same workflow with hooks: on its end, and on every transition of its first step. The name of each function is
    that of its sink, so that a receiver knows which cursor an event is of."""
    first = definition.steps[0].name
    hooks = [
        Hook(name="end", on=("run.failed", "run.succeeded"), kind="handler", options={}),
        Hook(name="first", on=("step.*",), kind="handler", options={}, step=first),
    ]
    named = (replace(hook, options={"handler": sink_of(definition, hook)}) for hook in hooks)
    return replace(definition, hooks=tuple(named))


class Receivers:
    """All sinks of one seed."""

    def __init__(self, stage: Stage, tenant: str) -> None:
        self._stage, self._tenant = stage, tenant
        self._random = stage.random("receivers")
        self.arrived: dict[tuple[str, str], list[tuple[int, int]]] = {}
        self._acknowledged: dict[tuple[str, str], tuple[Process, float]] = {}
        self._refused: dict[tuple[str, str], float] = {}
        self._dropped: set[tuple[str, str, tuple[int, int]]] = set()

    async def add(self, transactor: Transactor) -> None:
        for place in range(self._stage.scenario.sinks):
            await add_sink(
                transactor,
                f"sink{place}",
                "handler",
                on=["*"],
                options={"handler": f"sink{place}"},
                events=EVENTS[place % len(EVENTS)],
                caller=Caller(self._tenant, "ann"),
            )

    async def take(self, process: Process, holder: str | None, sink: str, event: OutgoingEvent) -> None:
        """An event arrives from this process."""
        random, chaos = self._random, self._stage.chaos
        await asyncio.sleep(random.random() * 0.2)
        chance = random.random() if chaos else 1.0
        self._check(process, sink, event)
        if chance < REFUSE_FOR_GOOD:
            self._refused[sink, event.run_id] = self._stage.loop.time()
            raise SinkFailed("never", is_final=True)
        if chance < REFUSE:
            raise SinkFailed("not now")
        self._note(holder, sink, event)
        chance = random.random() if chaos else 1.0
        if chance < LOSE_ANSWER:
            raise SinkFailed("the answer was lost")
        if chance < LOSE_ANSWER + HANG:
            await asyncio.sleep(SEND_SECONDS * 2)
        if chance > 1.0 - KILL and chaos:
            self._stage.kill(process)
        await asyncio.sleep(random.random() * 0.2)
        self._acknowledged[sink, event.id] = (process, self._stage.loop.time())

    def _check(self, process: Process, sink: str, event: OutgoingEvent) -> None:
        """Without trouble since, nothing comes again after its acknowledgement, or after a refusal for good."""
        trouble_at = self._stage.trouble_at
        sender, at = self._acknowledged.get((sink, event.id), (None, 0.0))
        if sender is process and trouble_at < at:
            self._stage.ledger.violation(f"outbox: {event.id} comes to {sink} again from the relay that was answered")
        refused_at = self._refused.get((sink, event.run_id))
        if refused_at is not None and trouble_at < refused_at:
            self._stage.ledger.violation(f"outbox: {event.id} comes to {sink} behind an event that is dead")

    def _note(self, holder: str | None, sink: str, event: OutgoingEvent) -> None:
        place = (event.seq, event.number)
        self.arrived.setdefault((sink, event.run_id), []).append(place)
        row = self._rows.get((self._tenant, event.run_id, sink))
        now = self._stage.now()
        if row is None:
            self._stage.ledger.violation(f"outbox: {event.id} arrives at {sink}, which has no cursor of its run")
        elif row.holder == holder and (row.lease_until or 0) > now and (row.sent, row.sent_number) >= place:
            _, at = self._acknowledged.get((sink, event.id), (None, 0.0))
            if at <= self._stage.trouble_at:
                return  # a claim of before the trouble, lost meanwhile, may still be sending
            self._stage.ledger.violation(f"outbox: {event.id} is sent to {sink} again after it was acknowledged")
        if row is not None and row.dead_at is not None and row.holder == holder:
            self._stage.ledger.violation(f"outbox: {event.id} is sent to {sink} although an event before it is dead")

    @property
    def _rows(self) -> dict[tuple[str, str, str], Delivery]:
        return self._stage.database.tables.deliveries.cursors

    # -- people ------------------------------------------------------------------------------------------------------
    async def operate(self) -> None:
        """Send dead events again, or drop them, as long as things go wrong."""
        random = self._stage.random("operator of the outbox")
        while self._stage.chaos:
            await asyncio.sleep(1.0 + random.random() * 3)
            await self._treat_dead(random)

    async def _treat_dead(self, random: Random) -> None:
        transactor = self._transactor()
        caller = Caller(self._tenant, "ann")
        for row in [one for one in self._rows.values() if one.dead_at is not None]:
            self._refused.pop((row.sink, row.run_id), None)
            try:
                if random.random() < DROP:
                    events = await outbox.waiting(transactor, row)
                    if events:
                        place = (events[0].seq, events[0].number)
                        await outbox.drop(transactor, row.run_id, row.sink, events[0].id, caller=caller, reason="tried")
                        self._dropped.add((row.sink, row.run_id, place))
                else:
                    await outbox.redrive(transactor, run_id=row.run_id, sink=row.sink, caller=caller, reason="tried")
            except StepkeepError:
                continue

    def _transactor(self) -> Transactor:
        return Transactor(ModelStore(self._stage.database), monotonic=self._stage.loop.time)

    # -- the end -----------------------------------------------------------------------------------------------------
    async def until_settled(self) -> None:
        """Wait until all cursors are idle; dead ones are redriven."""
        random = self._stage.random("end of the outbox")
        until = self._stage.loop.time() + SETTLED_WITHIN
        while self._stage.loop.time() < until and not self._stage.ledger.violations:
            if not any(row.ready_at is not None or row.dead_at is not None for row in self._rows.values()):
                return
            await asyncio.sleep(1.0)
            await self._treat_dead(random)
        if not self._stage.ledger.violations:
            self._stage.ledger.violation("outbox: a cursor is not idle long after all runs have ended")

    async def check(self) -> None:
        """Everything arrived or was dropped, and first arrivals are in order."""
        tables = self._stage.database.tables
        for sink in tables.deliveries.sinks_of(self._tenant):
            which = Selection(sink.patterns)
            if takes := sink.takes & Takes.OF_RUNS:
                for tenant, run_id in tables.runs:
                    await self._compare(_whole(tenant, run_id, sink.name, takes), which)
            if sink.takes & Takes.WORKERS:
                for tenant, worker in tables.worker_journal:
                    row = self._rows.get((tenant, worker_cursor(worker), sink.name))
                    if row is None:
                        self._stage.ledger.violation(f"outbox: {sink.name} has no cursor of the worker {worker}")
                    else:
                        # What the last worker did after its relay had stopped is left to the next one.
                        await self._compare(replace(row, sent=0, sent_number=WHOLE), which, row.sent)
        for tenant, run_id in tables.runs:
            for row in tables.deliveries.of_run((tenant, run_id)):
                if row.sink.startswith(HOOK):
                    hook = await hook_sink(self._transactor(), tenant, row.sink)
                    assert hook is not None, "definitions stay"
                    await self._compare(_whole(tenant, run_id, row.sink, row.takes), hook[1])

    async def _compare(self, start: Delivery, which: Selection, last: int | None = None) -> None:
        found = await pending(self._transactor(), start, which, 1_000_000)
        sink, run_id = start.sink, start.run_id
        expected = [(event.seq, event.number) for event in found.events if last is None or event.seq <= last]
        got = list(dict.fromkeys(self.arrived.get((sink, run_id), [])))
        self._stage.ledger.met["events delivered"] += len(got)
        if got != sorted(got):
            self._stage.ledger.violation(f"outbox: events of {run_id} came to {sink} out of order: {got}")
        missing = [one for one in expected if one not in got and (sink, run_id, one) not in self._dropped]
        if missing:
            self._stage.ledger.violation(f"outbox: events of {run_id} never came to {sink}: {missing}")


def _whole(tenant: str, run_id: str, sink: str, takes: int) -> Delivery:
    """A cursor that has delivered nothing yet."""
    return Delivery(tenant=tenant, run_id=run_id, sink=sink, takes=takes, last=0, sent=0, sent_number=WHOLE)


class ModelCalls:
    """In place of the functions with `@on` of a worker: the receivers of the simulation."""

    def __init__(self, stage: Stage, process: Process) -> None:
        self._stage, self._process = stage, process
        self.worker_id: Callable[[], str | None] = lambda: None

    def has(self, name: str) -> bool:
        return self._stage.receivers is not None

    async def call(self, name: str, event: OutgoingEvent) -> None:
        receivers = self._stage.receivers
        assert receivers is not None
        await receivers.take(self._process, self.worker_id(), name, event)

    def close(self) -> None:
        """There is nothing to close."""
