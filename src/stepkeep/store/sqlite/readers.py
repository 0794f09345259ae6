"""Readers: a few threads with a connection each, for statements that only read.

They see committed data and block no other transaction. No statement that writes is ever sent here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Lock, local
from typing import TypeVar

import apsw

from stepkeep.store.sqlite.connection import open_connection, translated
from stepkeep.store.sqlite.file import DatabaseFile

T = TypeVar("T")

THREADS = 4


class Readers:
    """A pool whose connections open on first use."""

    def __init__(self, file: DatabaseFile) -> None:
        self._file = file
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="stepkeep-reader")
        self._mine = local()
        self._guard = Lock()
        self._opened: list[apsw.Connection] = []

    async def run(self, look: Callable[[apsw.Connection], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._look, look)

    async def close(self) -> None:
        await asyncio.to_thread(self._pool.shutdown)
        for connection in self._opened:
            connection.close()
        self._opened.clear()

    def _look(self, look: Callable[[apsw.Connection], T]) -> T:
        with translated(self._file.path):
            self._file.check()
            connection = getattr(self._mine, "connection", None)
            if connection is None:
                connection = self._mine.connection = open_connection(self._file, read_only=True)
                with self._guard:
                    self._opened.append(connection)
            return look(connection)
