"""Notifications between processes: a step may be claimable, or a run has settled.

A notification is sent after the commit it concerns, or with it where a store can do that. Nothing may depend on it: it
can be lost, late or duplicated, so every listener also polls. Rare notifications are sent at once; many are coalesced
into a few each second.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from stepkeep.errors import StoreError
from stepkeep.kernel.states import RUN_TERMINAL, RunState
from stepkeep.store.protocol import (
    RUNS_SETTLED,
    Decide,
    Listener,
    Loaded,
    More,
    Notification,
    Notifier,
    Transaction,
    Want,
    Write,
)

SETTLED = RUN_TERMINAL | {RunState.BLOCKED}
"""States that a caller may be waiting for: the end, and blocked, which only people or messages can end."""

SHORTEST, LONGEST = 0.004, 0.05
"""Seconds between two notifications on one topic: while there are few, and while there are many."""

QUIET = 0.5
"""After so many seconds without a notification, a topic counts as one with few."""

CLOSE_SECONDS = 2.0
"""How long (seconds) the last notifications may take when a store is being closed."""

log = logging.getLogger(__name__)


ANYTHING = Notification()


def topics_of(write: Write) -> set[int]:
    """The topics of a write, to be notified after its commit."""
    topics = {step.queue for step in write.steps if step.ready_at is not None}
    topics.update(step.queue for step in write.new_steps if step.ready_at is not None)
    for born in write.new_runs:
        topics.update(step.queue for step in born.steps if step.ready_at is not None)
    if any(change.run.state in SETTLED for change in write.runs):
        topics.add(RUNS_SETTLED)
    return topics


class TopicRecorder:
    """Wraps a decision and records the topics of its write. Called again, it replaces the topics."""

    def __init__(self, decide: Decide) -> None:
        self._decide = decide
        self.topics: set[int] = set()

    def __call__(self, loaded: Loaded) -> More | Write:
        answer = self._decide(loaded)
        self.topics = topics_of(answer) if isinstance(answer, Write) else set()
        return answer


class TopicQueue:
    """Decides when notifications are sent. The more often a topic is notified, the longer its interval becomes."""

    def __init__(self) -> None:
        self._pending: dict[int, int] = {}
        self._gap: dict[int, float] = {}
        self._next: dict[int, float] = {}

    def add(self, topics: Iterable[int]) -> None:
        for topic in topics:
            self._pending[topic] = self._pending.get(topic, 0) + 1

    @property
    def is_empty(self) -> bool:
        return not self._pending

    def has_due(self, now: float) -> bool:
        return any(self._next.get(topic, now) <= now for topic in self._pending)

    def take(self, now: float, topics: Iterable[int] | None = None) -> frozenset[int]:
        """Topics that may be sent now, of these or of the pending ones; the others stay pending."""
        if topics is not None:
            self.add(topic for topic in topics if self._next.get(topic, now) <= now)
        due = frozenset(topic for topic in self._pending if self._next.get(topic, now) <= now)
        for topic in due:
            was_quiet = now - self._next.get(topic, now) > QUIET
            gap = SHORTEST if was_quiet else self._gap.get(topic, SHORTEST)
            many = self._pending.pop(topic) > 1
            self._gap[topic] = gap = min(LONGEST, gap * 2) if many else max(SHORTEST, gap / 2)
            self._next[topic] = now + gap
        return due

    def pause(self, now: float) -> float:
        """Seconds until a topic may be sent."""
        return max(0.0, min(self._next.get(topic, now) for topic in self._pending) - now)


class CoalescingNotifier:
    """Sends and receives notifications. Each store has one, which knows how they travel between its processes."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []
        self._gathered = TopicQueue()
        self._urgent = asyncio.Event()
        self._sending: asyncio.Task[None] | None = None
        self._attending: asyncio.Task[None] | None = None
        self.is_connected = False

    # -- what each store implements -----------------------------------------------------------------------------------
    async def send(self, topics: frozenset[int]) -> None:
        """Notify other processes. A notification that cannot be sent is dropped."""

    async def attend(self) -> None:
        """Deliver notifications of other processes through `deliver`, until cancelled."""

    # -- for all callers ---------------------------------------------------------------------------------------------
    def take_due(self, topics: Collection[int]) -> frozenset[int]:
        """The topics that may be sent now, with a commit; pending topics of other commits may be among them."""
        return self._gathered.take(asyncio.get_running_loop().time(), topics) if topics else frozenset()

    def publish(self, topics: Collection[int], sent: Collection[int] = ()) -> None:
        """Notify these topics; `sent` ones were sent already. It returns at once and never fails."""
        if not topics:
            return
        self.deliver(Notification(frozenset(topics)))
        unsent = set(topics).difference(sent)
        if not unsent:
            return
        self._gathered.add(unsent)
        loop = asyncio.get_running_loop()
        if _is_running(self._sending):
            if self._gathered.has_due(loop.time()):
                self._urgent.set()
        else:
            self._urgent = asyncio.Event()
            self._sending = loop.create_task(self._send_all())
            self._sending.add_done_callback(_log_failure)

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` for every notification, on this event loop, until the returned function is called."""
        self._listeners.append(listener)
        if not _is_running(self._attending):
            self._attending = asyncio.get_running_loop().create_task(self.attend())
            self._attending.add_done_callback(_log_failure)

        def stop() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)
            if not self._listeners and self._attending is not None:
                self._attending.cancel()

        return stop

    def deliver(self, notification: Notification) -> None:
        for listener in tuple(self._listeners):
            listener(notification)

    async def close(self) -> None:
        """Send the last notifications: a process that starts one run and exits has only just queued its own."""
        sending, attending = self._sending, self._attending
        self._sending = self._attending = None
        tasks = [task for task in (sending, attending) if task is not None and _is_running(task)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        gathered, self._gathered = self._gathered, TopicQueue()
        if last := gathered.take(float("inf")):
            try:
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self._send_now(last)
            except TimeoutError:
                log.debug("the last notifications were dropped: the database took too long")

    async def _send_all(self) -> None:
        loop = asyncio.get_running_loop()
        while not self._gathered.is_empty:
            if topics := self._gathered.take(loop.time()):
                await self._send_now(topics)
            else:
                self._urgent.clear()
                await within(self._gathered.pause(loop.time()), self._urgent)

    async def _send_now(self, topics: frozenset[int]) -> None:
        try:
            await self.send(topics)
        except StoreError as problem:
            log.debug("a notification was dropped: %s", problem)
        except asyncio.CancelledError:
            # The store is being closed: these may not have been sent yet.
            self._gathered.add(topics)
            raise


async def within(seconds: float, event: asyncio.Event) -> bool:
    """Wait for an event, with a limit. Returns whether it came."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (problem := task.exception()) is not None:
        log.error("notifications are not sent or received any more; work is found by polling alone", exc_info=problem)


def _is_running(task: asyncio.Task[None] | None) -> bool:
    """Whether a task runs on this event loop; a task of a closed loop never ends."""
    return task is not None and not task.done() and task.get_loop() is asyncio.get_running_loop()


@asynccontextmanager
async def notify_after_commit(
    opened: AbstractAsyncContextManager[Transaction], notifier: Notifier
) -> AsyncIterator[Transaction]:
    """A transaction with user code, after whose commit the topics are notified."""
    async with opened as inner:
        recorded = _RecordedTransaction(inner)
        yield recorded
    notifier.publish(recorded.topics)


class _RecordedTransaction:
    def __init__(self, inner: Transaction) -> None:
        self._inner = inner
        self.topics: set[int] = set()

    @property
    def connection(self) -> Any:
        return self._inner.connection

    @property
    def is_lost(self) -> bool:
        return self._inner.is_lost

    async def change(self, wants: Sequence[Want], decide: Decide) -> None:
        recorder = TopicRecorder(decide)
        await self._inner.change(wants, recorder)
        self.topics |= recorder.topics
