"""Notifications between processes: a step may be claimable, a run has settled, or its attempts must end.

A notification is sent after the commit it concerns, or with it where a store can do that. Nothing may depend on it: it
can be lost, late or duplicated, so every listener also polls. Rare notifications are sent at once; many are coalesced
into a few each second. A notification names the runs it is about, unless there are too many of them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from stepkeep.kernel.errors import StoreError
from stepkeep.kernel.machine.rows import OutboxEntry
from stepkeep.kernel.machine.states import RUN_TERMINAL, AttemptState, RunState
from stepkeep.store.change import Decide, Loaded, More, Want, Write
from stepkeep.store.protocol import (
    EVENTS_READY,
    RUNS_SETTLED,
    RUNS_STOPPED,
    Listener,
    Notification,
    Notifier,
    Transaction,
)
from stepkeep.store.rows import Delivery

SETTLED = RUN_TERMINAL | {RunState.BLOCKED, RunState.PAUSED}
"""States that a caller may be waiting for: the end, and those that only people or messages can end."""

SHORTEST, LONGEST = 0.004, 0.05
"""Seconds between two notifications on one topic: while there are few, and while there are many."""

QUIET = 0.5
"""After this many seconds without a notification, a topic counts as one with few."""

CLOSE_SECONDS = 2.0
"""How long (seconds) the last notifications may take when a store is being closed."""

log = logging.getLogger(__name__)


ANYTHING, NOTHING = Notification(), Notification(frozenset())

CLOSED_IN_FLIGHT = frozenset({AttemptState.CANCELLED, AttemptState.LOST})
"""Attempts that may have been ended without their worker, which then has to stop their handlers."""

EVENT_ROWS = frozenset({OutboxEntry, Delivery})

MOST_NAMES = 200
"""How many runs one notification names for a topic: as many as a payload of PostgreSQL holds, which has at most 8,000
bytes. A process polls all of its waiters for a notification without names."""

MOST_BYTES = 7_900


def notification_of(write: Write) -> Notification:
    """What to publish after the commit of this write."""
    topics = {step.queue for step in write.steps if step.ready_at is not None}
    topics.update(step.queue for step in write.new_steps if step.ready_at is not None)
    for created in write.new_runs:
        topics.update(step.queue for step in created.steps if step.ready_at is not None)
    stopped = {attempt.run_id for attempt in write.attempts if attempt.state in CLOSED_IN_FLIGHT}
    stopped.update(change.run.id for change in write.runs if change.run.state is RunState.STOPPING)
    settled = frozenset(change.run.id for change in write.runs if change.run.state in SETTLED)
    named = {topic: frozenset(runs) for topic, runs in ((RUNS_SETTLED, settled), (RUNS_STOPPED, stopped)) if runs}
    if write.has(EVENT_ROWS):
        topics.add(EVENTS_READY)
    return Notification(frozenset(topics | named.keys()), named)


def encode(sender: str, notification: Notification) -> str:
    """The text that travels: the sender, then topics with the runs that they name.

    >>> encode("a1", Notification(frozenset({7, 0}), {0: frozenset({"r-1"})}))
    'a1 0:r-1,7'
    """
    topics, named = sorted(notification.topics or ()), dict(notification.runs)
    while True:
        text = f"{sender} {','.join(_encode_topic(topic, named.get(topic)) for topic in topics)}"
        if len(text) <= MOST_BYTES:
            return text
        if not named:
            return f"{sender} any"
        del named[max(named, key=lambda topic: len(named[topic]))]


def _encode_topic(topic: int, runs: frozenset[str] | None) -> str:
    return str(topic) if runs is None else f"{topic}:{';'.join(sorted(runs))}"


def decode(said: str) -> Notification:
    """The notification in a text without its sender. An unknown text, perhaps from a later version, may mean anything.

    >>> decode("0:r-1,7").runs_of(0)
    frozenset({'r-1'})
    """
    runs: dict[int, frozenset[str]] = {}
    topics = set()
    for part in said.split(","):
        number, names, ids = part.partition(":")
        if not number.removeprefix("-").isdecimal():
            return ANYTHING
        topics.add(int(number))
        if names:
            runs[int(number)] = frozenset(ids.split(";"))
    return Notification(frozenset(topics), runs)


class TopicRecorder:
    """Wraps a decision and records what to publish after its commit. Called again, it starts anew."""

    def __init__(self, decide: Decide) -> None:
        self._decide = decide
        self.notification = NOTHING

    def __call__(self, loaded: Loaded) -> More | Write:
        answer = self._decide(loaded)
        self.notification = notification_of(answer) if isinstance(answer, Write) else NOTHING
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


class _NamedRuns:
    """The runs that pending topics name. A topic with more than `MOST_NAMES` names none: it is about any run."""

    def __init__(self) -> None:
        self._runs: dict[int, frozenset[str] | None] = {}

    def add(self, notification: Notification) -> None:
        for topic in notification.topics or ():
            before, more = self._runs.get(topic, frozenset()), notification.runs.get(topic)
            known = None if before is None or more is None else before | more
            self._runs[topic] = None if known is None or len(known) > MOST_NAMES else known

    def take(self, topics: frozenset[int]) -> Notification:
        taken = {topic: self._runs.pop(topic, None) for topic in topics}
        return Notification(topics, {topic: runs for topic, runs in taken.items() if runs is not None})


class CoalescingNotifier:
    """Sends and receives notifications. Each store has one, which knows how they travel between its processes."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []
        self._gathered = TopicQueue()
        self._names = _NamedRuns()
        self._urgent = asyncio.Event()
        self._sending: asyncio.Task[None] | None = None
        self._attending: asyncio.Task[None] | None = None
        self.is_connected = False

    # -- what each store implements -----------------------------------------------------------------------------------
    async def send(self, notification: Notification) -> None:
        """Notify other processes. A notification that cannot be sent is dropped."""

    async def attend(self) -> None:
        """Deliver notifications of other processes through `deliver`, until cancelled."""

    # -- for all callers ---------------------------------------------------------------------------------------------
    def take_due(self, notification: Notification) -> Notification:
        """What may be sent now, with a commit; pending notifications of other commits may be part of it."""
        if not notification.topics:
            return NOTHING
        due = self._gathered.take(asyncio.get_running_loop().time(), notification.topics)
        # Topics that are not due yet are added when they are published.
        self._names.add(_only(notification, due))
        return self._names.take(due)

    def publish(self, notification: Notification, sent: Notification = NOTHING) -> None:
        """Deliver this here and send it to other processes, but for the topics that were `sent` already."""
        if not notification.topics:
            return
        self.deliver(notification)
        unsent = notification.topics - (sent.topics or frozenset())
        if not unsent:
            return
        self._names.add(_only(notification, unsent))
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
                    await self._send_now(self._names.take(last))
            except TimeoutError:
                log.debug("the last notifications were dropped: the database took too long")

    async def _send_all(self) -> None:
        loop = asyncio.get_running_loop()
        while not self._gathered.is_empty:
            if topics := self._gathered.take(loop.time()):
                await self._send_now(self._names.take(topics))
            else:
                self._urgent.clear()
                await within(self._gathered.pause(loop.time()), self._urgent)

    async def _send_now(self, notification: Notification) -> None:
        try:
            await self.send(notification)
        except StoreError as problem:
            log.debug("a notification was dropped: %s", problem)
        except asyncio.CancelledError:
            # The store is being closed: these may not have been sent yet.
            self._gathered.add(notification.topics or ())
            self._names.add(notification)
            raise


def _only(notification: Notification, topics: frozenset[int]) -> Notification:
    return Notification(topics & (notification.topics or frozenset()), notification.runs)


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
    for notification in recorded.notifications:
        notifier.publish(notification)


class _RecordedTransaction:
    def __init__(self, inner: Transaction) -> None:
        self._inner = inner
        self.notifications: list[Notification] = []

    @property
    def connection(self) -> Any:
        return self._inner.connection

    @property
    def is_lost(self) -> bool:
        return self._inner.is_lost

    async def change(self, wants: Sequence[Want], decide: Decide) -> None:
        recorder = TopicRecorder(decide)
        await self._inner.change(wants, recorder)
        self.notifications.append(recorder.notification)
