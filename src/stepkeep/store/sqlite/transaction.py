"""A transaction with user code: a connection and a thread of its own.

The user's writes and the decision about their step are committed together or not at all (promise 4). It queues for its
turn like the writer, and holds the file's write lock until it ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TypeVar

import apsw

from stepkeep.kernel.errors import StoreError
from stepkeep.store.change import Decide, Want
from stepkeep.store.sqlite.change import change
from stepkeep.store.sqlite.connection import open_connection, translated
from stepkeep.store.sqlite.file import DatabaseFile
from stepkeep.store.sqlite.turns import Turns

T = TypeVar("T")


class SqliteTransaction:
    """The transaction as user code and the operations see it."""

    def __init__(self, unit: _Unit, thread: ThreadPoolExecutor, clock: Callable[[], int]) -> None:
        self._unit = unit
        self._thread = thread
        self._clock = clock

    @property
    def connection(self) -> apsw.Connection:
        """The driver's connection, inside the transaction; user code must not commit."""
        return self._unit.live()

    @property
    def is_lost(self) -> bool:
        return self._unit.is_lost

    async def change(self, wants: Sequence[Want], decide: Decide) -> None:
        def work() -> None:
            with translated(self._unit.path), self._unit.live():  # a savepoint of its own
                change(self._unit.live(), self._clock, wants, decide, None)

        await _run(self._thread, work)


class _Unit:
    """The connection and what must be released; each method runs in the transaction's own thread."""

    def __init__(self, file: DatabaseFile, turns: Turns) -> None:
        self._file, self.path = file, file.path
        self._turns = turns
        self._has_turn = False
        self._connection: apsw.Connection | None = None
        self._is_committed = False

    def begin(self) -> None:
        self._turns.take()
        self._has_turn = True
        with translated(self.path):
            self._connection = open_connection(self._file, for_users=True)
            self._connection.execute("begin immediate")
            self._connection.set_commit_hook(self._note_commit)

    def _note_commit(self) -> bool:
        self._is_committed = True
        return False

    @property
    def is_lost(self) -> bool:
        """Whether SQLite has rolled it back by itself, as it does when the disk is full."""
        return self._connection is None or not (self._connection.in_transaction or self._is_committed)

    def live(self) -> apsw.Connection:
        if self._connection is None or not self._connection.in_transaction:
            raise StoreError("the transaction has ended already; only Stepkeep may commit or roll it back")
        return self._connection

    def commit(self) -> None:
        with translated(self.path):
            self.live().execute("commit")
            # Writes to a file that is gone must not be acknowledged.
            self._file.check()

    def end(self) -> None:
        """Roll back if it was not committed, and pass the turn on."""
        try:
            if self._connection is not None:
                if self._connection.in_transaction:
                    self._connection.execute("rollback")
                self._connection.close()
        finally:
            if self._has_turn:
                self._turns.give_back()


@asynccontextmanager
async def open_transaction(
    file: DatabaseFile, turns: Turns, clock: Callable[[], int]
) -> AsyncIterator[SqliteTransaction]:
    thread = ThreadPoolExecutor(1, thread_name_prefix="stepkeep-transaction")
    unit = _Unit(file, turns)
    try:
        await _run(thread, unit.begin)
        yield SqliteTransaction(unit, thread, clock)
        await _run(thread, unit.commit)
    finally:
        # One thread, so this runs after its current work, also when the caller was cancelled.
        ended = _run(thread, unit.end)
        thread.shutdown(wait=False)
        await ended


def _run(thread: ThreadPoolExecutor, work: Callable[[], T]) -> asyncio.Future[T]:
    return asyncio.get_running_loop().run_in_executor(thread, work)
