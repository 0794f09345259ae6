"""Notifications by NOTIFY and LISTEN: sent with a commit or in transactions of their own, received on a separate
connection.

A NOTIFY in every transaction would serialise all commits. Only the few notifications that are due are sent with a
commit, which saves a round trip and a commit. A listener that lost its connection reconnects and triggers one poll of
everything. If notifications do not arrive at all, because a pooler assigns connections per transaction, it logs that
once and leaves the work to polling.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from typing import Any

from stepkeep.kernel.errors import StoreError
from stepkeep.store.notifications import ANYTHING, CoalescingNotifier, decode, encode, within
from stepkeep.store.postgres.connections import Connection, Pool, execute
from stepkeep.store.postgres.failures import translated
from stepkeep.store.postgres.write import Notice
from stepkeep.store.protocol import Notification

PROBE_SECONDS = 2.0
"""How long a notification to itself may take before notifications count as not working."""

CHECK_SECONDS = 30.0
"""How often a silent connection is tested: a network can drop one without an error."""

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 5.0
UNHEARD_PAUSE = 300.0
"""Seconds until a listener that lost its connection, or receives nothing, tries again."""

log = logging.getLogger(__name__)


class PostgresNotifier(CoalescingNotifier):
    """The notifications of one store. It sends over pooled connections and listens on one outside the pool. The channel
    differs for each schema of a database."""

    def __init__(self, pool: Pool, shown: str, channel: str) -> None:
        super().__init__()
        self.probe_seconds, self.unheard_pause = PROBE_SECONDS, UNHEARD_PAUSE
        self._pool, self._shown, self.channel = pool, shown, channel
        self._name = secrets.token_hex(6)
        self._probed = asyncio.Event()
        self._said = False

    def notice(self, notification: Notification) -> Notice:
        """What a commit takes along."""
        return self.channel, encode(self._name, notification) if notification.topics else None

    async def send(self, notification: Notification) -> None:
        await self._notify(encode(self._name, notification))

    async def _notify(self, said: str) -> None:
        # One round trip without a sync: a notification lost in a crash does no harm.
        statement = f"begin; set local synchronous_commit = off; notify {self.channel}, '{said}'; commit"
        async with self._pool.connection() as connection:
            await execute(connection, statement)

    # -- listening ---------------------------------------------------------------------------------------------------
    async def attend(self) -> None:
        pause = FIRST_PAUSE
        while True:
            try:
                connection = await self._pool.dial()
            except StoreError as problem:
                log.debug("cannot listen for notifications now: %s", problem)
                pause = min(LONGEST_PAUSE, pause * 2)
            else:
                pause = FIRST_PAUSE if await self._attend_on(connection) else self.unheard_pause
            await asyncio.sleep(pause)

    async def _attend_on(self, connection: Connection) -> bool:
        """Listen until the connection is lost. Returns False if it never worked."""
        lost = asyncio.Event()
        try:
            connection.add_termination_listener(lambda _: lost.set())
            with translated():
                await connection.add_listener(self.channel, self._received)
            if not await self._probe():
                return False
            # Changes during the gap are found by a poll.
            self.deliver(ANYTHING)
            self.is_connected = True
            while not lost.is_set():
                await within(CHECK_SECONDS, lost)
                await execute(connection, "select")
        except StoreError as problem:
            log.debug("the connection that listens for notifications was lost: %s", problem)
        finally:
            self.is_connected = False
            connection.terminate()
        return True

    async def _probe(self) -> bool:
        """Whether our own notifications reach us."""
        self._probed.clear()
        await self._notify(f"{self._name} ")
        if await within(self.probe_seconds, self._probed):
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
            self.deliver(decode(said))
