"""The notifier of a model store: at once and exact on a plain wire; late, duplicated or lost on a faulty one.

Nothing may depend on a notification, so a simulation in which all of them are lost must come out as well as any other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import copy_context

from stepkeep.store.protocol import Listener, Notification
from stepkeep_lab.simulation.database import Database

Travel = Callable[[], tuple[float, ...]]
"""How long the copies of one notification take to one listener (seconds); see `Wire.notification`."""


class ModelNotifier:
    """One client's notifier. What it publishes reaches the listeners of every client of the same database."""

    def __init__(self, database: Database, travel: Travel) -> None:
        self._database, self._travel = database, travel

    @property
    def is_connected(self) -> bool:
        # Even where notifications are known to arrive, each one may be lost.
        return True

    def publish(self, notification: Notification) -> None:
        if not notification.topics:
            return
        for deliver in tuple(self._database.listeners):
            for delay in self._travel():
                deliver(notification, delay)

    def listen(self, listener: Listener) -> Callable[[], None]:
        loop, context = asyncio.get_running_loop(), copy_context()

        def deliver(notification: Notification, delay: float) -> None:
            # In the listener's own context: a process that is paused receives it later, one that was killed never.
            loop.call_later(delay, listener, notification, context=context)

        self._database.listeners.append(deliver)
        return lambda: self._database.listeners.remove(deliver)
