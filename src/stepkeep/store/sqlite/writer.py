"""The writer: one thread that runs whole transactions, each with the work of several callers.

Work that arrives during a commit forms the next transaction, so one sync to disk serves many callers, and nothing waits
when idle. If one caller's work fails, the transaction is repeated with a savepoint for each, and only the failing one
is rolled back. A caller is answered only after the commit. The writer does not know what the work is, only that it can
be repeated.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Self, TypeVar

import apsw

from stepkeep.kernel.errors import DatabaseGone, StoreUnavailable
from stepkeep.store.sqlite.connection import UNSTORABLE, explain, open_connection, translated
from stepkeep.store.sqlite.file import DatabaseFile
from stepkeep.store.sqlite.turns import Turns

T = TypeVar("T")
Work = Callable[[apsw.Connection], T]

MAX_BATCH = 256
"""The largest number of callers in one transaction; each caller limits its own work."""

log = logging.getLogger(__name__)


class _Call:
    """One caller's work and its future."""

    __slots__ = ("error", "future", "loop", "result", "work")

    def __init__(self, work: Work[Any]) -> None:
        self.work = work
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()
        self.result: Any = None
        self.error: BaseException | None = None

    def settle(self) -> None:
        if self.future.done():
            return
        if self.error is None:
            self.future.set_result(self.result)
        elif isinstance(self.error, StopIteration):
            # A future does not accept this exception, and its caller would wait forever.
            self.future.set_exception(RuntimeError(f"a decision raised {self.error!r}"))
        else:
            self.future.set_exception(self.error)


class Writer:
    """The one connection that writes, and its thread."""

    @classmethod
    async def start(cls, file: DatabaseFile, turns: Turns) -> Self:
        """Open the file (created if missing), which may have to wait, and start to take work."""
        return cls(file, turns, await asyncio.to_thread(_make_and_open, file))

    def __init__(self, file: DatabaseFile, turns: Turns, connection: apsw.Connection) -> None:
        self._file, self._path = file, file.path
        self._turns = turns
        self._connection = connection
        self._queue: SimpleQueue[_Call | None] = SimpleQueue()
        self._closed = False
        self._thread = Thread(target=self._loop, name=f"stepkeep-writer {self._path.name}", daemon=True)
        self._thread.start()

    async def run(self, work: Work[T]) -> T:
        """Run work in a transaction and wait for its commit."""
        if self._closed:
            raise StoreUnavailable(f"{self._path} was closed")
        call = _Call(work)
        self._queue.put(call)
        result: T = await call.future
        return result

    async def close(self) -> None:
        """Finish the pending work, then end the thread."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    def _loop(self) -> None:
        ended = False
        while not ended:
            batch, ended = self._gather()
            if batch:
                self._turns.take()
                try:
                    self._transact(batch)
                except BaseException as error:
                    # If this thread died, every later caller would wait forever.
                    log.exception("the writer of %s met what it does not know", self._path)
                    for call in batch:
                        call.error = error
                finally:
                    self._turns.give_back()
                self._explain(batch)
                _answer(batch)
        self._connection.close()

    def _gather(self) -> tuple[list[_Call], bool]:
        """Wait for work, then take all of it; the flag tells whether it was the last."""
        batch: list[_Call] = []
        call = self._queue.get()
        while call is not None:
            # Skip work whose caller gave up before it began.
            if not call.future.cancelled():
                batch.append(call)
            if len(batch) >= MAX_BATCH:
                return batch, False
            try:
                call = self._queue.get_nowait()
            except Empty:
                return batch, False
        return batch, True

    def _transact(self, batch: list[_Call]) -> None:
        try:
            self._in_one(batch, _run)
        except _Spoilt:
            if len(batch) > 1:
                # Not the first time: while a savepoint is open, SQLite keeps a copy of every changed page and scans all
                # of them after each statement.
                self._in_one(batch, _run_alone)

    def _in_one(self, batch: list[_Call], run: Callable[[apsw.Connection, _Call], None]) -> None:
        """One transaction for all of them; each call holds its own result."""
        connection = self._connection
        try:
            self._file.check()
            connection.execute("begin immediate")
            for call in batch:
                run(connection, call)
            connection.execute("commit")
            # Writes to a file that is gone must not be acknowledged.
            self._file.check()
        except (apsw.Error, DatabaseGone) as error:
            # The disk is full or the file is locked: the transaction is gone, with the work of all callers.
            log.warning("a transaction of %d calls failed: %s", len(batch), error)
            for call in batch:
                call.error = error
        finally:
            # SQLite has rolled back by itself after some errors; a second rollback would hide the first.
            if connection.in_transaction:
                connection.execute("rollback")

    def _explain(self, batch: list[_Call]) -> None:
        for call in batch:
            if isinstance(call.error, (apsw.Error, *UNSTORABLE)):
                call.error = _explained(call.error, self._path)


def _make_and_open(file: DatabaseFile) -> apsw.Connection:
    with translated(file.path):
        file.make()
        connection = open_connection(file)
        file.hold()
    return connection


class _Spoilt(Exception):
    """One caller's work failed in a transaction without savepoints."""


def _run(connection: apsw.Connection, call: _Call) -> None:
    """Run one caller's work; if it fails, the whole transaction must be rolled back."""
    try:
        call.result = call.work(connection)
    except BaseException as error:
        call.error = error
        raise _Spoilt from error


def _run_alone(connection: apsw.Connection, call: _Call) -> None:
    """Run one caller's work in a savepoint; if it fails, only that is rolled back."""
    call.error = None
    connection.execute("savepoint work")
    try:
        call.result = call.work(connection)
    except BaseException as error:
        # An exception of a caller's code belongs to that caller alone.
        call.error = error
        if not connection.in_transaction:
            # SQLite rolled everything back (disk full, I/O error): the work of other callers is lost too.
            raise error if isinstance(error, apsw.Error) else apsw.AbortError(str(error)) from error
        connection.execute("rollback to work")
    connection.execute("release work")


def _explained(error: Exception, path: Path) -> Exception:
    explained = explain(error, path)
    explained.__cause__ = error
    return explained


def _answer(batch: Iterable[_Call]) -> None:
    """Wake the callers, once per event loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_Call]] = {}
    for call in batch:
        by_loop.setdefault(call.loop, []).append(call)
    for loop, calls in by_loop.items():
        try:
            loop.call_soon_threadsafe(_settle, calls)
        except RuntimeError:
            # The loop was closed: no caller waits any more.
            log.debug("%d callers left before their answer", len(calls))


def _settle(calls: Iterable[_Call]) -> None:
    for call in calls:
        call.settle()
