"""Hints by NOTIFY and LISTEN: sent with a commit or in transactions of their own, heard on a connection of its own.

A NOTIFY in every transaction that does work would make all such transactions commit one by one; the few that are due
travel with the commit they speak of, which saves a round trip and a commit. A listener that is cut off connects again
and has everybody look at once; where hints do not arrive at all, because a pooler hands out connections by transaction,
it says so once and leaves the work to polling.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from typing import Any

from stepkeep.errors import StoreError
from stepkeep.store.bell import ANYTHING, CoalescingBell, within
from stepkeep.store.postgres.connections import Connection, Pool, execute
from stepkeep.store.postgres.failures import translated
from stepkeep.store.protocol import Hint

CHANNEL = "stepkeep"

PROBE_SECONDS = 2.0
"""How long a hint to oneself may take before hints count as not working here."""

CHECK_SECONDS = 30.0
"""How often a silent connection is asked whether it is still there: a network can drop one without a word."""

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 5.0
UNHEARD_PAUSE = 300.0
"""Seconds until a listener that was cut off, or that cannot hear, tries again."""

log = logging.getLogger(__name__)


class PostgresBell(CoalescingBell):
    """The bell of one store. It sends over a pool's connections and listens on one that is in no pool."""

    def __init__(self, pool: Pool, shown: str) -> None:
        super().__init__()
        self._pool, self._shown = pool, shown
        self._name = secrets.token_hex(6)
        self._probed = asyncio.Event()
        self._said = False

    def text(self, topics: frozenset[int]) -> str | None:
        """What a commit has to say on the channel to tell of these."""
        return f"{self._name} {','.join(map(str, sorted(topics)))}" if topics else None

    async def send(self, topics: frozenset[int]) -> None:
        await self._notify(self.text(topics) or "")

    async def _notify(self, said: str) -> None:
        # One round trip, and no wait for the disk: a hint that a crash swallows is a hint that was lost.
        statement = f"begin; set local synchronous_commit = off; notify {CHANNEL}, '{said}'; commit"
        async with self._pool.connection() as connection:
            await execute(connection, statement)

    # -- listening ---------------------------------------------------------------------------------------------------
    async def attend(self) -> None:
        pause = FIRST_PAUSE
        while True:
            try:
                connection = await self._pool.dial()
            except StoreError as problem:
                log.debug("cannot listen for hints now: %s", problem)
                pause = min(LONGEST_PAUSE, pause * 2)
            else:
                pause = FIRST_PAUSE if await self._attend_on(connection) else UNHEARD_PAUSE
            await asyncio.sleep(pause)

    async def _attend_on(self, connection: Connection) -> bool:
        """Listen until the connection is lost; False if it was never of any use."""
        lost = asyncio.Event()
        try:
            connection.add_termination_listener(lambda _: lost.set())
            with translated():
                await connection.add_listener(CHANNEL, self._received)
            if not await self._probe():
                return False
            # Whatever happened while nobody listened is found by looking.
            self.hear(ANYTHING)
            self.is_heard = True
            while not lost.is_set():
                await within(CHECK_SECONDS, lost)
                await execute(connection, "select")
        except StoreError as problem:
            log.debug("the connection that listens for hints was lost: %s", problem)
        finally:
            self.is_heard = False
            connection.terminate()
        return True

    async def _probe(self) -> bool:
        """Whether what we say reaches us."""
        self._probed.clear()
        await self._notify(f"{self._name} ")
        if await within(PROBE_SECONDS, self._probed):
            return True
        if not self._said:
            self._said = True
            log.warning(
                "LISTEN does not work at %s, as behind a pooler in transaction mode: work is found by polling alone, "
                "a little later. Give workers a direct connection to have it found at once.",
                self._shown,
            )
        return False

    def _received(self, connection: Any, pid: int, channel: str, payload: object) -> None:
        name, _, said = str(payload).partition(" ")
        if name == self._name:
            self._probed.set()
        elif said:
            self.hear(_hint(said))


def _hint(said: str) -> Hint:
    """What was said; what is not understood, from a later version perhaps, could be anything."""
    numbers = said.split(",")
    return Hint(frozenset(map(int, numbers))) if all(number.isdecimal() for number in numbers) else ANYTHING
