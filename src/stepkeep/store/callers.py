"""The caller's own transaction as one of the store: a run that starts in it is committed with the caller's writes.

It finds the driver's connection inside what a program holds (SQLAlchemy's connections and sessions), and never begins,
commits or rolls back what the caller began. No driver is imported for it: a driver that is not loaded made no
connection. The engine calls it.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

from stepkeep.edges.safe_text import type_name
from stepkeep.kernel.errors import InvalidInput
from stepkeep.store.protocol import Store, Transaction

T = TypeVar("T")


async def callers_transaction(store: Store, connection: Any) -> Transaction:
    """The transaction of a connection that the caller holds open."""
    driver = await _driver_connection(connection)
    if store.url.startswith("sqlite:"):
        from stepkeep.store.sqlite.callers import join as join_sqlite

        return join_sqlite(store, driver)
    if store.url.startswith("postgres"):
        from stepkeep.store.postgres.callers import join as join_postgres

        return await join_postgres(store, driver)
    raise InvalidInput(f"connection= is not supported by {store.url}.")


def run_here(connection: Any, work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in this thread, without a loop: a connection of a synchronous driver never suspends it."""
    kind = type(connection)
    if kind.__module__.startswith(("asyncpg", "sqlalchemy.ext.asyncio")) or kind.__name__.startswith("Async"):
        work.close()
        raise InvalidInput(
            "this connection belongs to an event loop. Use stepkeep.AsyncEngine there, or a connection of a "
            "synchronous driver here (psycopg, apsw)."
        )
    try:
        work.send(None)
    except StopIteration as ended:
        result: T = ended.value
        return result
    work.close()
    raise AssertionError("a connection of a synchronous driver suspended its caller")


def refuse(connection: object, known: str) -> InvalidInput:
    """The refusal of an object that is no connection of this database."""
    return InvalidInput(f"connection= takes {known}, not a value of type {type_name(connection)}.")


async def _driver_connection(held: Any) -> Any:
    """The driver's connection inside a session or connection of SQLAlchemy, in a transaction; others as they are."""
    if type(held).__module__.partition(".")[0] != "sqlalchemy":
        return held
    if hasattr(held, "get_bind"):
        held = held.connection()
        held = await held if hasattr(held, "__await__") else held
    begun = held.exec_driver_sql("select 1")
    if hasattr(begun, "__await__"):
        await begun
        held = await held.get_raw_connection()
    else:
        held = held.connection
    return held.driver_connection
