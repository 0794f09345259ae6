"""A transaction with user code, on a connection of its own.

The user's writes and the decision about their step are committed together or not at all (promise 4). The user's
statements are planned as usual: the engine's planner settings hold only while `change` runs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from stepkeep.errors import Contended
from stepkeep.store.postgres.change import StartAgain, change
from stepkeep.store.postgres.connections import PLANNER, Connection, Pool, execute, fetch
from stepkeep.store.postgres.failures import translated
from stepkeep.store.protocol import Decide, Want

BORROW = "select " + ", ".join(f"current_setting('{name}')" for name in PLANNER)
SETTLE = "select " + ", ".join(f"set_config('{name}', ${place}, true)" for place, name in enumerate(PLANNER, 1))


class PostgresTransaction:
    """The transaction as user code and the operations see it."""

    def __init__(self, connection: Connection, clock_offset: Callable[[], int]) -> None:
        self._connection, self._clock_offset = connection, clock_offset

    @property
    def connection(self) -> Connection:
        """The driver's connection, inside the transaction; user code must not commit."""
        return self._connection

    @property
    def is_lost(self) -> bool:
        return self._connection.is_closed()

    async def change(self, wants: Sequence[Want], decide: Decide) -> None:
        [before] = await fetch(self._connection, BORROW)
        savepoint = self._connection.transaction()
        with translated():
            await savepoint.start()
        try:
            await fetch(self._connection, SETTLE, *PLANNER.values())
            await change(self._connection, self._clock_offset(), wants, decide, None)
            await fetch(self._connection, SETTLE, *before)
        except BaseException as error:
            if not self._connection.is_closed():
                with translated():
                    await savepoint.rollback()
            if isinstance(error, StartAgain):
                raise Contended(f"{error}: run the whole again") from None
            raise
        with translated():
            await savepoint.commit()


@asynccontextmanager
async def open_transaction(pool: Pool, clock_offset: Callable[[], int]) -> AsyncIterator[PostgresTransaction]:
    async with pool.connection() as connection:
        outer = connection.transaction(isolation="read_committed", readonly=False)
        with translated():
            await outer.start()
            await connection.execute("set local synchronous_commit = on")
        try:
            yield PostgresTransaction(connection, clock_offset)
            # A failed statement whose error the user ignored would turn COMMIT into ROLLBACK.
            await execute(connection, "select")
        except BaseException:
            if not connection.is_closed():
                with translated():
                    await outer.rollback()
            raise
        with translated():
            await outer.commit()
