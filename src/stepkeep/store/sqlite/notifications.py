"""Notifications through a file beside the database: a sender touches it, and the kernel wakes the listeners.

All processes that share an SQLite file are on one machine, so nothing is sent over a network, and an idle listener
costs nothing. Where the kernel does not support this (not Linux), the file's time is polled: often for a while after a
touch, then less.
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
import time
from pathlib import Path

from stepkeep.errors import StoreUnavailable
from stepkeep.store.notifications import ANYTHING, CoalescingNotifier
from stepkeep.store.sqlite import inotify

SHORTEST_POLL, LONGEST_POLL = 0.004, 0.05
"""Seconds between two polls of the file, soon after it was touched and long after."""

DELIVERY_PAUSE = 0.001
"""Seconds between two notifications that are delivered."""

log = logging.getLogger(__name__)


class SqliteNotifier(CoalescingNotifier):
    """The notifications of one database file."""

    def __init__(self, database: Path) -> None:
        super().__init__()
        # The same file under any name it is opened with.
        self._database = real = Path(os.path.realpath(database))
        self._file = real.with_name(real.name + "-notifier")
        self._mine = 0

    async def send(self, topics: frozenset[int]) -> None:
        self._mine = time.time_ns()
        try:
            os.utime(self._file, ns=(self._mine, self._mine))
        except FileNotFoundError:
            # There was no listener yet.
            log.debug("%s is not there: no process listens", self._file)
        except OSError as problem:
            raise StoreUnavailable(f"{self._file} cannot be touched: {problem}") from problem

    async def attend(self) -> None:
        while True:
            try:
                self._file.touch(mode=self._mode())
                watch = inotify.watch(self._file)
            except OSError as problem:
                log.warning("no notifications: %s; work is found by polling alone, a little later", problem)
                return
            # Changes before the first listener are found by a poll.
            self.deliver(ANYTHING)
            self.is_connected = True
            try:
                await (self._poll_file() if watch is None else self._await_kernel(watch))
            finally:
                self.is_connected = False

    def _mode(self) -> int:
        """The mode of the database: a user of the database may also notify."""
        return stat.S_IMODE(self._database.stat().st_mode)

    async def _await_kernel(self, watch: int) -> None:
        """Deliver what the kernel reports, until the file is gone."""
        loop = asyncio.get_running_loop()
        touched = asyncio.Event()
        loop.add_reader(watch, touched.set)
        try:
            while at := self._touched_at():
                if touched.is_set():
                    inotify.drain(watch)
                    touched.clear()
                    self._deliver_foreign(at)
                    # Many processes may notify at once; one poll serves them all.
                    await asyncio.sleep(DELIVERY_PAUSE)
                await touched.wait()
        finally:
            loop.remove_reader(watch)
            os.close(watch)

    async def _poll_file(self) -> None:
        seen, pause = self._touched_at(), SHORTEST_POLL
        while True:
            await asyncio.sleep(pause)
            at = self._touched_at()
            pause = SHORTEST_POLL if at != seen else min(LONGEST_POLL, pause * 1.05)
            if at != seen:
                seen = at
                self._deliver_foreign(at)

    def _deliver_foreign(self, at: int) -> None:
        # Listeners in this process already have its own notifications.
        if at != self._mine:
            self.deliver(ANYTHING)

    def _touched_at(self) -> int:
        try:
            return self._file.stat().st_mtime_ns
        except FileNotFoundError:
            return 0
