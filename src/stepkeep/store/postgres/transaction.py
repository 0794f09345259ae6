"""A transaction with user code, on a connection of its own.

The user's writes and the decision about their step are committed together or not at all (promise 4). The user's
statements are planned as usual and find the user's tables: the engine's planner settings and its search path hold
only while `change` runs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from stepkeep.kernel.errors import Contended
from stepkeep.store.change import Decide, Want
from stepkeep.store.postgres.change import StartAgain, change
from stepkeep.store.postgres.connections import PLANNER, SEARCH_PATH, Connection, Pool, execute, fetch
from stepkeep.store.postgres.failures import translated
from stepkeep.store.postgres.namespace import Namespace

BORROWED = (*PLANNER, SEARCH_PATH)
BORROW = "select " + ", ".join(f"current_setting('{name}')" for name in BORROWED)
SETTLE = "select " + ", ".join(f"set_config('{name}', ${place}, true)" for place, name in enumerate(BORROWED, 1))


class PostgresTransaction:
    """The transaction as user code and the operations see it."""

    def __init__(
        self, connection: Connection, clock_offset: Callable[[], int], namespace: Namespace, enter: str = ""
    ) -> None:
        self._connection, self._clock_offset, self._namespace = connection, clock_offset, namespace
        self._enter = enter
        """The statement by which a confined role names its tenant."""

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
            await fetch(self._connection, SETTLE, *PLANNER.values(), self._namespace.search_path)
            if self._enter:
                await execute(self._connection, self._enter)
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
async def open_transaction(
    pool: Pool, clock_offset: Callable[[], int], namespace: Namespace, enter: str = ""
) -> AsyncIterator[PostgresTransaction]:
    async with pool.connection() as connection:
        outer = connection.transaction(isolation="read_committed", readonly=False)
        with translated():
            await outer.start()
            await connection.execute("set local synchronous_commit = on")
        try:
            yield PostgresTransaction(connection, clock_offset, namespace, enter)
            # A failed statement whose error the user ignored would turn COMMIT into ROLLBACK.
            await execute(connection, "select")
        except BaseException:
            if not connection.is_closed():
                with translated():
                    await outer.rollback()
            raise
        with translated():
            await outer.commit()
