"""Who plays: worker processes that die and come back, and the server through which people and senders act.

Both run the real thing (worker loop, sweeper, operations) over a store whose wire is faulty. Nothing here decides what
people want; that is in `people`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Any, TypeVar

from stepkeep.definition.python.registry import Registry
from stepkeep.kernel.decide.decision import Claimer
from stepkeep.kernel.errors import StoreUnavailable
from stepkeep.kernel.machine.events import StepReported
from stepkeep.operations.messages.by_key import KeySender
from stepkeep.operations.pipeline.batch import Answer
from stepkeep.operations.pipeline.start import Starter
from stepkeep.operations.pipeline.transact import Claim, Transactor
from stepkeep.operations.remote.work_state import WorkState
from stepkeep.worker.executors.command import CommandPolicy
from stepkeep.worker.loop import Worker
from stepkeep.worker.runtime import Runtime
from stepkeep.worker.settings import Settings
from stepkeep_lab.simulation.definitions import CAPABILITY
from stepkeep_lab.simulation.faults import Fault
from stepkeep_lab.simulation.handlers import SimulatedRunner
from stepkeep_lab.simulation.ledger import Ledger
from stepkeep_lab.simulation.loop import Process
from stepkeep_lab.simulation.receivers import ModelCalls
from stepkeep_lab.simulation.stage import TENANT, Stage

T = TypeVar("T")
Parts = Callable[[Process], dict[str, Any]]
"""Makes what a remote worker in this process has instead of a database."""


class SimulatedRuntime(Runtime):
    """Time, chance and secrets of one process; its clock may be off and may run at another speed."""

    def __init__(self, stage: Stage, random: Random) -> None:
        self._loop, self._random = stage.loop, random
        self._offset, self._rate = 0.0, 1.0
        self.look: Callable[[], None] = lambda: None
        if random.random() < stage.scenario.skew:
            self._offset, self._rate = random.uniform(-1e6, 1e6), random.uniform(0.8, 1.25)
            stage.log.note(Fault.SKEW, f"{self._offset:.0f} {self._rate:.2f}")

    def monotonic(self) -> float:
        # A worker asks for the time whenever it does anything: a good moment to see what it holds.
        self.look()
        return self._offset + self._rate * self._loop.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / self._rate)

    async def wait(self, event: asyncio.Event, seconds: float | None) -> bool:
        if seconds is None or seconds <= 0 or event.is_set():
            return await super().wait(event, seconds)
        # As the real one, without a cancellation that is raised and caught for every look at the database.
        waiter: asyncio.Future[bool] = self._loop.create_future()
        timer = self._loop.call_later(max(MOMENT, seconds / self._rate), _wake, waiter)
        event._waiters.append(waiter)
        try:
            return await waiter
        finally:
            timer.cancel()
            event._waiters.remove(waiter)

    def chance(self) -> float:
        return self._random.random()

    def token(self) -> str:
        return f"token-{self._random.getrandbits(64):016x}"


MOMENT = 1e-6
"""The least that a clock here can tell (seconds): added to the time of day, much less would be nothing, and a worker
whose own clock is a little ahead of its waiting would wait for that nothing forever."""


def _wake(waiter: asyncio.Future[bool]) -> None:
    if not waiter.done():
        waiter.set_result(False)


class WatchedTransactor(Transactor):
    """The real one, which also records the replies to workers."""

    def __init__(self, stage: Stage, process: Process) -> None:
        super().__init__(stage.store(process), monotonic=stage.loop.time)
        self._ledger: Ledger = stage.ledger

    async def report(self, events: Sequence[StepReported], claimer: Claimer | None) -> tuple[list[Answer], list[Claim]]:
        replies, claims = await super().report(events, claimer)
        self._ledger.replied(events, replies, claims, claimer)
        return replies, claims


class Workplace:
    """A place where one worker process runs at a time. A killed one is followed by another. A place with `parts` has a
    remote worker, which reaches no database."""

    def __init__(
        self, stage: Stage, registry: Registry, place: int, parts: Parts | None = None, other: Registry | None = None
    ) -> None:
        self._stage, self._registry, self._place, self._parts = stage, registry, place, parts
        self._other = registry if other is None else other
        self._random = stage.random(f"workplace:{place}")
        self._generation = 0
        # The first place can run everything, so that nothing waits forever for a worker that does not exist.
        gifted = place == 0 or (parts is None and self._random.random() < 0.4)
        self._capabilities = frozenset({CAPABILITY}) if gifted else frozenset[str]()
        # The worker of the first place has no owner, so that no duty keeps it from a step.
        self._owner = f"owner-{place % 2}" if place else None
        self.process: Process | None = None
        self.worker: Worker | None = None
        self.serving: asyncio.Task[None] | None = None
        self.closed = False

    def open(self) -> None:
        """Start a process, unless one runs or the day is over."""
        if self.closed or (self.process is not None and self.process.alive):
            return
        self._generation += 1
        process = self.process = Process(f"w{self._place}.{self._generation}")
        self._stage.on_death[process] = self._died
        self.serving = self._stage.loop.spawn(process, self._serve(process))

    def _died(self) -> None:
        self.process = self.worker = None
        self._stage.later(self._random.uniform(0.1, 12.0) if self._stage.chaos else 0.1, self.open)

    async def _serve(self, process: Process) -> None:
        random, scenario = self._stage.random(process.name), self._stage.scenario
        settings = Settings(
            concurrency=scenario.concurrency,
            threads=scenario.threads,
            heartbeat_seconds=random.choice((3.0, 10.0)),
            sweep_seconds=random.choice((1.0, 3.0)),
            busy_poll_seconds=random.choice((0.01, 0.1)),
            idle_poll_seconds=random.choice((1.0, 4.0)),
            refresh_queues_seconds=random.choice((1.0, 10.0)),
            full_scan_seconds=random.choice((1.0, 4.0)),
            grace_seconds=random.choice((0.5, 4.0)),
            closing_seconds=3.0,
            relay_seconds=0.5 if scenario.sinks else 0.0,
            jobs_seconds=0.0,
            slots_seconds=1.0,
            children_seconds=random.choice((0.5, 2.0)) if scenario.families or scenario.continued else 0.0,
            # The same for every user that simulates; no program is started.
            commands=CommandPolicy(tenants=(TENANT,), user=1),
        )
        runtime = SimulatedRuntime(self._stage, random)
        runner = SimulatedRunner(self._stage, process, settings, self._capabilities)
        calls = ModelCalls(self._stage, process)
        own = {"transactor": WatchedTransactor(self._stage, process), "owner": self._owner}
        parts = own if self._parts is None else self._parts(process)
        worker = self.worker = Worker(
            registry=self._code_of(process),
            app=process.name,
            tenant=TENANT,
            capabilities=self._capabilities,
            settings=settings,
            runtime=runtime,
            runner=runner,
            calls=calls,
            **parts,
        )
        calls.worker_id = lambda: worker.id
        runner.held = lambda: worker.held
        runtime.look = runner.check_slots
        await worker.serve()
        if self._stage.is_quiet and worker.id is not None:
            self._stage.ledger.left.append(worker.id)
        self.process = self.worker = None
        self._stage.end(process)
        self._stage.later(self._random.uniform(0.1, 3.0), self.open)

    def _code_of(self, process: Process) -> Registry:
        """The code that a process has: some have other code of flows."""
        drawn, share = self._stage.random(f"code:{process.name}"), self._stage.scenario.rollouts
        return self._other if share and drawn.random() < share else self._registry

    def drain(self) -> None:
        """Ask the process to end in good order."""
        if self.worker is not None:
            self.worker.stop()


class Server:
    """The process that people and senders call. If it dies, its callers do not learn the result."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._random = stage.random("server")
        self._generation = 0
        self._calls: dict[asyncio.Future[Any], None] = {}
        self.process: Process | None = None
        self.open()

    def open(self) -> None:
        self._generation += 1
        process = self.process = Process(f"api.{self._generation}")
        self._stage.on_death[process] = self._died
        self.transactor = Transactor(self._stage.store(process), monotonic=self._stage.loop.time)
        self.starter = Starter(self.transactor)
        self.key_sender = KeySender(self.transactor, self.starter)
        self.work = WorkState(self._stage.loop.time)

    def _died(self) -> None:
        self.process = None
        calls, self._calls = self._calls, {}
        for answer in calls:
            if not answer.done():
                answer.set_exception(StoreUnavailable("the server went away"))
        self._stage.later(self._random.uniform(0.05, 3.0), self.open)

    async def call(self, operation: Callable[[Server], Awaitable[T]]) -> T:
        """Have something done by the server, and hear what came of it."""
        if self.process is None:
            raise StoreUnavailable("the server is not there")
        answer: asyncio.Future[T] = self._stage.loop.create_future()
        self.accept(operation, answer)
        return await answer

    def accept(self, operation: Callable[[Server], Awaitable[T]], answer: asyncio.Future[T]) -> None:
        """Have something done by the server, which answers here, unless it dies first."""
        if self.process is None:
            answer.set_exception(StoreUnavailable("the server is not there"))
            return
        self._calls[answer] = None
        answer.add_done_callback(lambda done: self._calls.pop(done, None))
        self._stage.loop.spawn(self.process, self._do(operation, answer))

    async def _do(self, operation: Callable[[Server], Awaitable[T]], answer: asyncio.Future[T]) -> None:
        try:
            found = await operation(self)
        except Exception as problem:  # noqa: BLE001 - the caller hears it
            if not answer.done():
                answer.set_exception(problem)
        else:
            if not answer.done():
                answer.set_result(found)
