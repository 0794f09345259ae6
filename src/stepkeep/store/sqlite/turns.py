"""Whose turn it is to write, inside this process: first come, first served.

SQLite has one writer at a time and keeps no queue; without this, a busy writer thread would starve a transaction that
user code takes part in. Other processes are met at the file's own lock.
"""

from __future__ import annotations

from collections import deque
from threading import Lock


class Turns:
    """A lock that is handed on in the order of asking, and that any thread may give back."""

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
