"""Notifications through a file beside the database: a sender appends a line, and the kernel wakes the listeners.

All processes that share an SQLite file are on one machine, so nothing is sent over a network, and an idle listener
costs nothing. Where the kernel does not support this (not Linux), the file's size is polled: often for a while after a
line, then less. The file is emptied when it has grown; a listener that missed lines by that polls everything.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import stat
from pathlib import Path

from stepkeep.kernel.errors import StoreUnavailable
from stepkeep.store.notifications import ANYTHING, CoalescingNotifier, decode, encode
from stepkeep.store.protocol import Notification
from stepkeep.store.sqlite import inotify

SHORTEST_POLL, LONGEST_POLL = 0.004, 0.05
"""Seconds between two polls of the file, soon after it was touched and long after."""

DELIVERY_PAUSE = 0.001
"""Seconds between two notifications that are delivered."""

MOST_FILE_BYTES = 262_144

log = logging.getLogger(__name__)


class SqliteNotifier(CoalescingNotifier):
    """The notifications of one database file."""

    def __init__(self, database: Path) -> None:
        super().__init__()
        # The same file under any name it is opened with.
        self._database = real = Path(os.path.realpath(database))
        self._file = real.with_name(real.name + "-notify")
        self._name = secrets.token_hex(6)
        self._read_to = 0

    async def send(self, notification: Notification) -> None:
        try:
            file = os.open(self._file, os.O_WRONLY | os.O_APPEND)
        except FileNotFoundError:
            # There was no listener yet.
            log.debug("%s is not there: no process listens", self._file)
            return
        except OSError as problem:
            raise StoreUnavailable(f"{self._file} cannot be opened: {problem}") from problem
        try:
            if os.fstat(file).st_size > MOST_FILE_BYTES:
                os.ftruncate(file, 0)
            os.write(file, f"{encode(self._name, notification)}\n".encode())
        except OSError as problem:
            raise StoreUnavailable(f"{self._file} cannot be written: {problem}") from problem
        finally:
            os.close(file)

    async def attend(self) -> None:
        while True:
            try:
                self._file.touch(mode=self._mode())
                self._read_to = self._file.stat().st_size
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
        changed = asyncio.Event()
        loop.add_reader(watch, changed.set)
        try:
            while True:
                inotify.drain(watch)
                changed.clear()
                try:
                    self._deliver_lines()
                except FileNotFoundError:
                    return
                # Many processes may notify at once; one read serves them all.
                await asyncio.sleep(DELIVERY_PAUSE)
                await changed.wait()
        finally:
            loop.remove_reader(watch)
            os.close(watch)

    async def _poll_file(self) -> None:
        pause = SHORTEST_POLL
        while True:
            await asyncio.sleep(pause)
            try:
                found = self._deliver_lines()
            except FileNotFoundError:
                return
            pause = SHORTEST_POLL if found else min(LONGEST_POLL, pause * 1.05)

    def _deliver_lines(self) -> bool:
        """Deliver the lines that other processes have added. Returns whether there were new lines."""
        size = self._file.stat().st_size
        if size == self._read_to:
            return False
        if size < self._read_to:
            self._read_to = size
            self.deliver(ANYTHING)
            return True
        with self._file.open("rb") as file:
            file.seek(self._read_to)
            text = file.read(size - self._read_to)
        self._read_to = size
        for line in text.decode("ascii", "replace").splitlines():
            sender, _, said = line.partition(" ")
            # Listeners in this process already have its own notifications.
            if sender != self._name:
                self.deliver(decode(said))
        return True
