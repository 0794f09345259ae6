"""The writer: one thread that runs whole transactions, several callers' work in each.

What arrived while the last commit was under way forms the next transaction, so one sync to disk serves many callers
and nobody waits when it is idle. Where somebody's work fails, all is done again with a savepoint for each: the one that
fails is undone alone. A caller hears of success only after the commit. Nothing here knows what the work is, but that it
can be done again.
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

from stepkeep.errors import DatabaseGone, StoreUnavailable
from stepkeep.store.sqlite.connection import UNSTORABLE, explain, open_connection, translated
from stepkeep.store.sqlite.file import DatabaseFile
from stepkeep.store.sqlite.turns import Turns

T = TypeVar("T")
Work = Callable[[apsw.Connection], T]

MAX_BATCH = 256
"""Callers that share one transaction at most; their work is bounded by what each of them brings."""

log = logging.getLogger(__name__)


class _Call:
    """One caller's work, and where the answer goes."""

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
            # A future refuses to carry this one, and its caller would wait for ever.
            self.future.set_exception(RuntimeError(f"a decision raised {self.error!r}"))
        else:
            self.future.set_exception(self.error)


class Writer:
    """The one connection that writes, and its thread."""

    @classmethod
    async def start(cls, file: DatabaseFile, turns: Turns) -> Self:
        """Open the file (made where it is missing), which may have to wait, and begin to take work."""
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
        """Have work done in a transaction and wait for its commit."""
        if self._closed:
            raise StoreUnavailable(f"{self._path} was closed")
        call = _Call(work)
        self._queue.put(call)
        result: T = await call.future
        return result

    async def close(self) -> None:
        """Finish what was asked for, then end the thread."""
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
                    # If this thread died, every later caller would wait for ever.
                    log.exception("the writer of %s met what it does not know", self._path)
                    for call in batch:
                        call.error = error
                finally:
                    self._turns.give_back()
                self._explain(batch)
                _answer(batch)
        self._connection.close()

    def _gather(self) -> tuple[list[_Call], bool]:
        """Wait for work, then take all that is there; the flag tells whether it was the last."""
        batch: list[_Call] = []
        call = self._queue.get()
        while call is not None:
            # Whoever gave up before the work began does not want it done.
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
                # Not so the first time: while a savepoint is open SQLite keeps a copy of every page that is changed,
                # and walks over all of them after each statement.
                self._in_one(batch, _run_alone)

    def _in_one(self, batch: list[_Call], run: Callable[[apsw.Connection, _Call], None]) -> None:
        """One transaction for all of them; what becomes of each stands in the call."""
        connection = self._connection
        try:
            self._file.check()
            connection.execute("begin immediate")
            for call in batch:
                run(connection, call)
            connection.execute("commit")
            # What was written to a file that is gone must not be acknowledged.
            self._file.check()
        except (apsw.Error, DatabaseGone) as error:
            # The disk is full, the file is locked: the transaction is gone, and with it everybody's work.
            log.warning("a transaction of %d calls failed: %s", len(batch), error)
            for call in batch:
                call.error = error
        finally:
            # SQLite has rolled back by itself after some of its errors; a second rollback would hide the first.
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
    """Somebody's work failed in a transaction in which nothing can be undone alone."""


def _run(connection: apsw.Connection, call: _Call) -> None:
    """Do one caller's work; when it fails, everybody's has to be undone."""
    try:
        call.result = call.work(connection)
    except BaseException as error:
        call.error = error
        raise _Spoilt from error


def _run_alone(connection: apsw.Connection, call: _Call) -> None:
    """Do one caller's work; when it fails, undo it and nothing else."""
    call.error = None
    connection.execute("savepoint work")
    try:
        call.result = call.work(connection)
    except BaseException as error:
        # Whatever a caller's code raises belongs to that caller, and to nobody else.
        call.error = error
        if not connection.in_transaction:
            # SQLite rolled everything back (disk full, I/O error): the neighbours' work is lost too.
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
            # The loop was closed: nobody waits for the answer any more.
            log.debug("%d callers left before their answer", len(calls))


def _settle(calls: Iterable[_Call]) -> None:
    for call in calls:
        call.settle()
