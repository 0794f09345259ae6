"""The order of write transactions inside this process: first come, first served.

SQLite has one writer at a time and no queue. Without this, a busy writer thread would starve a transaction with user
code. Other processes wait for the file's own lock.
"""

from __future__ import annotations

from collections import deque
from threading import Lock


class Turns:
    """A lock that is passed on in the order of requests, and that any thread may release."""

    def __init__(self) -> None:
        self._guard = Lock()
        self._taken = False
        self._waiting: deque[Lock] = deque()

    def take(self) -> None:
        with self._guard:
            if not self._taken:
                self._taken = True
                return
            mine = Lock()
            mine.acquire()
            self._waiting.append(mine)
        mine.acquire()

    def give_back(self) -> None:
        with self._guard:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._taken = False
