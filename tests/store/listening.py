"""Somebody who listens to a store's notifier and writes down what is heard."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from stepkeep.store.protocol import Notification, Store

PATIENCE = 10.0


class Ear:
    """What was heard, and a way to wait for more."""

    def __init__(self) -> None:
        self.heard: list[Notification] = []
        self._news = asyncio.Event()

    def __call__(self, hint: Notification) -> None:
        self.heard.append(hint)
        self._news.set()

    async def hears(self) -> Notification:
        """Wait for a hint, whatever it is about, and forget all others."""
        async with asyncio.timeout(PATIENCE):
            while not self.heard:
                self._news.clear()
                await self._news.wait()
        first, self.heard = self.heard[0], []
        return first

    async def hears_of(self, topic: int, run_id: str | None = None) -> None:
        """Wait until a notification concerns this topic (and names this run), and forget it with all before it."""
        async with asyncio.timeout(PATIENCE):
            while not any(_is_about(notification, topic, run_id) for notification in self.heard):
                self._news.clear()
                await self._news.wait()
        self.heard.clear()


def _is_about(notification: Notification, topic: int, run_id: str | None) -> bool:
    if run_id is None:
        return notification.concerns((topic,))
    return run_id in (notification.runs_of(topic) or ())


@contextmanager
def listening(store: Store) -> Iterator[Ear]:
    ear = Ear()
    stop = store.notifier.listen(ear)
    try:
        yield ear
    finally:
        stop()


async def ready_to_hear(store: Store, ear: Ear) -> None:
    """Come back once hints are known to arrive, with nothing heard so far."""
    async with asyncio.timeout(PATIENCE):
        while not store.notifier.is_connected:  # noqa: ASYNC110 - a notifier tells nobody when it begins to hear
            await asyncio.sleep(0.005)
    ear.heard.clear()
