"""Faults on the way between a process and the database, and the log of all that were injected.

Every statement is a round trip that can be lost, answered into the void, delayed, or be the last thing a process ever
did. `FaultyWire` is the only door through which simulated processes reach the model database.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Generator
from enum import StrEnum
from types import coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from stepkeep.kernel.errors import StoreUnavailable
from stepkeep_lab.simulation.database import Session
from stepkeep_lab.simulation.loop import Process
from stepkeep_lab.simulation.store import Waiting, Work

if TYPE_CHECKING:
    from stepkeep_lab.simulation.stage import Stage

T = TypeVar("T")


class Fault(StrEnum):
    """Everything that can be done to the system; each must happen somewhere in a campaign."""

    REQUEST_LOST = "request_lost"
    REPLY_LOST = "reply_lost"
    COMMIT_REPLY_LOST = "commit_reply_lost"
    CRASH_BEFORE = "crash_before"
    CRASH_AFTER = "crash_after"
    CRASH_AFTER_COMMIT = "crash_after_commit"
    PAUSE = "pause"
    PARTITION = "partition"
    SLOW = "slow"
    RESTART = "restart"
    KILL = "kill"
    DRAIN = "drain"
    SERVER_KILL = "server_kill"
    SKEW = "skew"
    HINT_LOST = "hint_lost"
    HINT_LATE = "hint_late"
    HINT_DOUBLED = "hint_doubled"
    POISON = "poison"
    HANDLER_FAILED = "handler_failed"
    HANDLER_HUNG = "handler_hung"
    HANDLER_DEAF = "handler_deaf"
    MESSAGE_DUPLICATED = "message_duplicated"
    MESSAGE_REORDERED = "message_reordered"
    START_DUPLICATED = "start_duplicated"
    DOUBLE_CLICK = "double_click"
    CANCEL = "cancel"
    QUARANTINE = "quarantine"
    RUN_PAUSED = "run_paused"
    WORKFLOW_PAUSED = "workflow_paused"
    STEP_DECIDED = "step_decided"
    RUN_MIGRATED = "run_migrated"
    STAFF = "staff"
    REQUEST_DOUBLED = "request_doubled"


ON_THE_WAY = (
    Fault.REQUEST_LOST,
    Fault.REPLY_LOST,
    Fault.CRASH_BEFORE,
    Fault.CRASH_AFTER,
    Fault.PAUSE,
    Fault.PARTITION,
)
"""What can happen to any statement; each has its rate in the scenario, under its own name."""


OFTEN = 8
"""How much more often than others the only kind of statement is hit to which something happens."""


class FaultLog:
    """What was done to the system, in order; part of what makes two plays of a seed comparable."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.lines: list[str] = []
        self.counts: Counter[str] = Counter()

    def note(self, fault: Fault, what: str = "") -> None:
        self.counts[fault] += 1
        self.lines.append(f"{self._clock():.6f} {fault} {what}")


class FaultyWire:
    """The way of one process to the database."""

    def __init__(self, stage: Stage, process: Process) -> None:
        self._stage, self._process = stage, process
        self._hints = stage.random(f"hints:{process.name}")
        self._random = stage.random(f"wire:{process.name}")
        self._rates: dict[str, list[tuple[Fault, float]]] = {}
        self._twice_latency = stage.scenario.latency * 2
        self._partitioned_until = 0.0
        self._slow = 0.0

    async def ask(self, statement: str, work: Work[T], session: Session | None = None) -> T:
        answer: asyncio.Future[T] = self._send(statement, work, None, session)
        return await answer

    async def wait(self, statement: str, work: Waiting[T], session: Session) -> T:
        answer: asyncio.Future[T] = self._send(statement, None, work, session)
        return await answer

    def abandon(self, session: Session) -> None:
        if session.is_open:
            self._stage.later(self._latency(), session.abort)

    def notification(self) -> tuple[float, ...]:
        """Faults of notifications are drawn apart: with or without them, a seed draws the same other faults."""
        scenario, random = self._stage.scenario, self._hints
        if random.random() < scenario.hint_lost:
            self._stage.log.note(Fault.HINT_LOST, self._process.name)
            return ()
        late = 2 * scenario.latency * random.random()
        if random.random() < scenario.hint_late:
            self._stage.log.note(Fault.HINT_LATE, self._process.name)
            late += random.uniform(0.0, 10.0)
        if random.random() < scenario.hint_doubled:
            self._stage.log.note(Fault.HINT_DOUBLED, self._process.name)
            return (late, late + random.random())
        return (late,)

    # -- there -------------------------------------------------------------------------------------------------------
    def _send(
        self, statement: str, work: Work[Any] | None, waits: Waiting[Any] | None, session: Session | None
    ) -> asyncio.Future[Any]:
        answer = self._stage.loop.create_future()
        fate = self._fate(statement)
        if fate is Fault.CRASH_BEFORE:
            self._stage.kill(self._process)
        elif fate is Fault.REQUEST_LOST:
            self._stage.later(self._latency(), _refuse, answer, "the request was lost")
        else:
            arrive = (statement, work, waits, session, fate, answer)
            self._stage.later(self._latency(), self._arrive, *arrive)
        return answer

    def _fate(self, statement: str) -> Fault | None:
        rates = self._rates.get(statement)
        if rates is None:
            rates = self._rates[statement] = self._rates_of(statement)
        if not self._stage.chaos or not rates:
            return None
        drawn = self._random.random()
        for fault, rate in rates:
            drawn -= rate
            if drawn < 0:
                self._happens(fault, statement)
                return fault if self._process.alive else None
        return None

    def _rates_of(self, statement: str) -> list[tuple[Fault, float]]:
        """What may happen to a statement of this kind, and how often."""
        scenario = self._stage.scenario
        rates = {fault: getattr(scenario, fault.value) for fault in ON_THE_WAY}
        rates[Fault.PAUSE] = _rate_at(scenario.pause_at, scenario.pause, statement)
        rates[Fault.SLOW] = _rate_at(scenario.slow_at, scenario.slow, statement)
        return [(fault, rate) for fault, rate in rates.items() if rate]

    def _happens(self, fault: Fault, statement: str) -> None:
        stage, scenario = self._stage, self._stage.scenario
        stage.trouble(self._process)
        stage.log.note(fault, f"{self._process.name} {statement}")
        if fault is Fault.PAUSE:
            stage.pause(self._process, self._random.uniform(1.0, 90.0 if scenario.long else scenario.standstill))
        elif fault is Fault.PARTITION:
            self._partitioned_until = stage.loop.time() + self._random.uniform(1.0, 25.0)
            stage.trouble(self._process, self._partitioned_until)
        elif fault is Fault.SLOW:
            self._slow = self._random.uniform(0.5, 12.0)
            stage.trouble(self._process, stage.loop.time() + self._slow)

    def _latency(self) -> float:
        delay = self._twice_latency * self._random.random()
        if self._slow:
            delay += self._slow
            self._slow = 0.0
        left = self._partitioned_until - self._stage.loop.time()
        # Every connection retries at its own pace, so that what was held back arrives in any order.
        return delay + left + self._random.choice((0.0, 5.0)) * self._random.random() if left > 0 else delay

    # -- at the database ---------------------------------------------------------------------------------------------
    def _arrive(
        self,
        statement: str,
        work: Work[Any] | None,
        waits: Waiting[Any] | None,
        session: Session | None,
        fate: Fault | None,
        answer: asyncio.Future[Any],
    ) -> None:
        stage = self._stage
        if stage.is_down:
            if session is not None:
                session.abort()
            stage.later(self._latency(), _refuse, answer, "the database is down")
        elif waits is not None and session is not None:
            self._begin(waits(), statement, session, fate, answer)
        elif work is not None:
            try:
                found = work()
            except Exception as problem:  # noqa: BLE001 - whatever it is, the client hears of it
                self._back(statement, None, problem, fate, answer)
            else:
                self._back(statement, found, None, fate, answer)

    def _begin(
        self,
        work: Coroutine[Any, Any, Any],
        statement: str,
        session: Session,
        fate: Fault | None,
        answer: asyncio.Future[Any],
    ) -> None:
        """Most statements that may wait need not; only those that do become a task."""
        try:
            waits_for = work.send(None)
        except StopIteration as done:
            self._back(statement, done.value, None, fate, answer)
        except Exception as problem:  # noqa: BLE001 - whatever it is, the client hears of it
            self._back(statement, None, problem, fate, answer)
        else:
            task = session.waiting = self._stage.loop.create_task(_go_on(work, waits_for))
            task.add_done_callback(lambda done: self._waited(done, statement, fate, answer))

    def _waited(self, task: asyncio.Task[Any], statement: str, fate: Fault | None, answer: asyncio.Future[Any]) -> None:
        if task.cancelled():
            self._back(statement, None, StoreUnavailable("the session was ended"), fate, answer)
        elif (problem := task.exception()) is not None:
            assert isinstance(problem, Exception)
            self._back(statement, None, problem, fate, answer)
        else:
            self._back(statement, task.result(), None, fate, answer)

    # -- and back ----------------------------------------------------------------------------------------------------
    def _back(
        self, statement: str, found: Any, problem: Exception | None, fate: Fault | None, answer: asyncio.Future[Any]
    ) -> None:
        stage, delay = self._stage, self._latency()
        if fate is Fault.CRASH_AFTER:
            if statement in COMMITS and problem is None:
                stage.log.note(Fault.CRASH_AFTER_COMMIT, self._process.name)
            stage.later(delay, stage.kill, self._process)
        elif fate is Fault.REPLY_LOST:
            if statement in COMMITS and problem is None:
                stage.log.note(Fault.COMMIT_REPLY_LOST, self._process.name)
            stage.later(delay, _refuse, answer, "the answer was lost")
        elif problem is not None:
            stage.later(delay, _fail, answer, problem)
        else:
            stage.later(delay, _tell, answer, found)


COMMITS = ("commit", "record")
"""What makes a change last."""


def _rate_at(only: str, rate: float, statement: str) -> float:
    """How often something happens to a statement: to any now and then, or to one kind often."""
    if not only:
        return rate
    return rate * OFTEN if statement == only else 0.0


@coroutine
def _go_on(work: Coroutine[Any, Any, T], waits_for: Any) -> Generator[Any, Any, T]:
    """The rest of something that has begun and waits for this."""
    while True:
        try:
            yield waits_for
        except GeneratorExit:
            work.close()
            raise
        except BaseException as problem:  # noqa: BLE001 - it is passed on to where it belongs
            thrown: BaseException | None = problem
        else:
            thrown = None
        try:
            waits_for = work.send(None) if thrown is None else work.throw(thrown)
        except StopIteration as done:
            found: T = done.value
            return found


def _tell(answer: asyncio.Future[Any], found: Any) -> None:
    if not answer.done():
        answer.set_result(found)


def _fail(answer: asyncio.Future[Any], problem: Exception) -> None:
    if not answer.done():
        answer.set_exception(problem)


def _refuse(answer: asyncio.Future[Any], why: str) -> None:
    _fail(answer, StoreUnavailable(why))
