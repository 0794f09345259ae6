"""A caller's transaction on the engine's own SQLite file, on a connection of apsw.

It checks that the connection has a transaction and belongs to the same file. Connections of Python's sqlite3 are
refused: its copy of SQLite does not see the locks of apsw's copy in the same process, and on its close removes the log
of an open file. `store.callers` calls it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import apsw

from stepkeep.kernel.errors import InvalidInput
from stepkeep.store.callers import refuse
from stepkeep.store.change import Decide, Want
from stepkeep.store.protocol import Transaction
from stepkeep.store.sqlite.change import change
from stepkeep.store.sqlite.connection import translated

KNOWN = "an open connection of apsw to the same file"


def join(store: Any, connection: Any) -> Transaction:
    """The caller's transaction."""
    if type(connection).__module__ == "sqlite3":
        raise InvalidInput(
            "connection= takes a connection of apsw on SQLite. Python's sqlite3 has a copy of SQLite of its own, and "
            "two copies in one process ignore each other's locks: open the file with apsw.Connection instead."
        )
    if not isinstance(connection, apsw.Connection):
        raise refuse(connection, KNOWN)
    path: Path = store.path
    other = connection.db_filename("main")
    if not other or not os.path.exists(other) or not os.path.samefile(path, other):
        raise InvalidInput(f"connection= is of {other or 'a database in memory'}, and the engine works on {path}.")
    if not connection.in_transaction:
        raise InvalidInput("connection= has no transaction: begin one before the start, and commit it after.")
    return CallersTransaction(path, connection, store.now_us)


class CallersTransaction:
    """One change in a savepoint of the caller's transaction."""

    is_lost = False

    def __init__(self, path: Path, connection: apsw.Connection, clock: Callable[[], int]) -> None:
        self._path, self.connection, self._clock = path, connection, clock

    async def change(self, wants: Sequence[Want], decide: Decide) -> None:
        with translated(self._path), self.connection:  # a savepoint of its own
            change(self.connection, self._clock, wants, decide, None)
