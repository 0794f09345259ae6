"""Notifications of a remote worker: one stream of server-sent events, opened again whenever it ends.

A notice may be lost, late or duplicated, so the worker also polls. While no stream is open, `is_connected` is False and
polls are frequent.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable

import msgspec

from stepkeep.kernel.errors import StepkeepError
from stepkeep.store.protocol import RUNS_STOPPED, Listener, Notification
from stepkeep.worker.remote.channel import Channel

log = logging.getLogger("stepkeep.worker")

LONGEST_PAUSE = 5.0


class Notice(msgspec.Struct, frozen=True):
    """Queues with ready steps (None: any), and held runs whose attempts must end (None: any)."""

    queues: list[int] | None = None
    stopped: list[str] | None = []


class Notices:
    """The notifier of a remote store."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._listeners: list[Listener] = []
        self._task: asyncio.Task[None] | None = None
        self.is_connected = False

    def publish(self, notification: Notification) -> None:
        """Nothing to send: the service tells other workers."""

    def listen(self, listener: Listener) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def start(self, worker_id: str) -> None:
        """Follow the notices for this worker."""
        self.stop()
        self._task = asyncio.get_running_loop().create_task(self._follow(worker_id), name="notices")

    def stop(self) -> None:
        self.is_connected = False
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _follow(self, worker_id: str) -> None:
        tries = 0
        while True:
            try:
                async with self._channel.service.events(f"/work/workers/{worker_id}/notices") as events:
                    async for event in events:
                        self.is_connected, tries = True, 0
                        if event.name == "notice":
                            self._pass_on(msgspec.json.decode(event.data, type=Notice))
            except StepkeepError as problem:
                log.debug("the stream of notices ended: %s", problem)
            except msgspec.MsgspecError:
                log.warning("a notice of the service cannot be read; is it of another version?")
            self.is_connected = False
            tries += 1
            await asyncio.sleep(min(LONGEST_PAUSE, 0.1 * 2 ** min(tries, 6)) * random.uniform(0.5, 1.0))  # noqa: S311

    def _pass_on(self, notice: Notice) -> None:
        topics = None if notice.queues is None else frozenset(notice.queues)
        runs: dict[int, frozenset[str]] = {}
        if notice.stopped:
            runs[RUNS_STOPPED] = frozenset(notice.stopped)
        if topics is not None and (notice.stopped is None or notice.stopped):
            topics |= {RUNS_STOPPED}
        notification = Notification(topics, runs)
        for listener in tuple(self._listeners):
            listener(notification)
