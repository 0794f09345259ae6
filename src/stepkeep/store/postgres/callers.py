"""A caller's transaction on PostgreSQL, on a connection of asyncpg or psycopg.

psycopg's connections get the few methods of asyncpg that a change uses. Workers hear of a run when the caller commits,
because the notification is part of the transaction. `store.callers` calls it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import asyncpg

from stepkeep.kernel.errors import InvalidInput, StoreUnavailable
from stepkeep.store.callers import refuse
from stepkeep.store.change import Decide, Want
from stepkeep.store.notifications import TopicRecorder
from stepkeep.store.postgres.failures import translate
from stepkeep.store.postgres.transaction import PostgresTransaction
from stepkeep.store.protocol import Transaction

KNOWN = "an open connection of asyncpg or psycopg to the same database"
SAVEPOINT = "stepkeep_start"


async def join(store: Any, connection: Any) -> Transaction:
    """The caller's transaction."""
    psycopg = sys.modules.get("psycopg")
    if isinstance(connection, (asyncpg.Connection, asyncpg.pool.PoolConnectionProxy)):
        if not connection.is_in_transaction():
            raise _no_transaction()
        return CallersTransaction(connection, store)
    if psycopg is not None and isinstance(connection, (psycopg.Connection, psycopg.AsyncConnection)):
        if connection.autocommit and connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE:
            raise _no_transaction()
        return CallersTransaction(_Psycopg(connection), store)
    raise refuse(connection, KNOWN)


class CallersTransaction(PostgresTransaction):
    """A change in a savepoint of the caller's transaction, which notifies workers when the caller commits."""

    def __init__(self, connection: Any, store: Any) -> None:
        super().__init__(connection, lambda: store.clock_offset, store.namespace, store.entering)
        self._notifier = store.notifier

    async def change(self, wants: Sequence[Want], decide: Decide) -> None:
        recorder = TopicRecorder(decide)
        await super().change(wants, recorder)
        channel, payload = self._notifier.notice(recorder.notification)
        if payload is not None:
            await self._connection.fetch("select pg_notify($1::text, $2::text)", channel, payload)


class _Psycopg:
    """A connection of psycopg with the methods of asyncpg that a change uses; `$1` needs psycopg's raw cursors."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._is_async = hasattr(inner, "__aenter__")

    async def fetch(self, statement: str, *arguments: Any) -> list[Any]:
        import psycopg

        with _translated():
            kind = psycopg.AsyncRawCursor if self._is_async else psycopg.RawCursor
            cursor: Any = kind(self._inner)
            # psycopg sends a tuple as a composite value, and a list as an array.
            values = [list(value) if isinstance(value, tuple) else value for value in arguments]
            ran = cursor.execute(statement, values or None)
            if self._is_async:
                await ran
            if cursor.description is None:
                return []
            found = cursor.fetchall()
            return list(await found if self._is_async else found)

    async def execute(self, statement: str, *arguments: Any) -> str:
        await self.fetch(statement, *arguments)
        return ""

    def is_closed(self) -> bool:
        return bool(self._inner.closed)

    def transaction(self) -> _Savepoint:
        return _Savepoint(self)


class _Savepoint:
    def __init__(self, connection: _Psycopg) -> None:
        self._connection = connection

    async def start(self) -> None:
        await self._connection.fetch(f"savepoint {SAVEPOINT}")

    async def commit(self) -> None:
        await self._connection.fetch(f"release savepoint {SAVEPOINT}")

    async def rollback(self) -> None:
        await self._connection.fetch(f"rollback to savepoint {SAVEPOINT}")


@contextmanager
def _translated() -> Iterator[None]:
    import psycopg

    try:
        yield
    except psycopg.Error as error:
        # What an error means depends on its SQLSTATE, which is the same with every driver.
        said = str(error).partition("\n")[0]
        known = error.sqlstate and translate(asyncpg.PostgresError.new({"C": error.sqlstate, "M": said}))
        unknown = StoreUnavailable(f"PostgreSQL could not start the run through psycopg: {said}")
        raise known or unknown from error


def _no_transaction() -> InvalidInput:
    return InvalidInput("connection= has no transaction: begin one before the start, and commit it after.")
