"""The bell of a model store: hints that arrive at once on a plain wire, and late, doubled or never on a faulty one.

Nothing may depend on a hint, so a simulation in which all of them are lost must come out as well as any other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from contextvars import copy_context

from stepkeep.store.protocol import Heard, Hint
from stepkeep_lab.simulation.database import Database

Travel = Callable[[], tuple[float, ...]]
"""How long the copies of one hint take to one listener (seconds); see `Wire.hint`."""


class ModelBell:
    """One client's bell. What it rings reaches the listeners of every client of the same database."""

    def __init__(self, database: Database, travel: Travel) -> None:
        self._database, self._travel = database, travel

    @property
    def is_heard(self) -> bool:
        # Even where hints are known to arrive, each one may be lost.
        return True

    def ring(self, topics: Collection[int]) -> None:
        if not topics:
            return
        hint = Hint(frozenset(topics))
        for deliver in tuple(self._database.listeners):
            for delay in self._travel():
                deliver(hint, delay)

    def listen(self, heard: Heard) -> Callable[[], None]:
        loop, context = asyncio.get_running_loop(), copy_context()

        def deliver(hint: Hint, delay: float) -> None:
            # In the listener's own context: a process that is paused hears later, one that was killed never.
            loop.call_later(delay, heard, hint, context=context)

        self._database.listeners.append(deliver)
        return lambda: self._database.listeners.remove(deliver)
