"""The fork server: a process that has everything imported and forks a torture process in milliseconds.

It takes requests as JSON lines on standard input and answers on standard output. It signals only its own children, so a
process id can never belong to another program. When its standard input ends, all children end.
"""

from __future__ import annotations

import ctypes
import os
import selectors
import signal
import sys
from typing import Any, NoReturn

import msgspec

from stepkeep.store.postgres import store as _postgres  # noqa: F401 - imported once, here, for all children
from stepkeep_lab.torture import process

DIE_WITH_PARENT = 1


class Order(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line to the nursery: a task to launch, or a signal for a child."""

    launch: process.Task | None = None
    pid: int = 0
    signal: int = 0


class News(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line from it: a child was born, or has ended (its exit status, negative for a signal)."""

    born: int = 0
    ended: int = 0
    status: int = 0


class Forkserver:
    """Its children, by process id."""

    def __init__(self) -> None:
        self._children: set[int] = set()
        self._orders, self._news = os.dup(0), os.dup(1)
        quiet = os.open(os.devnull, os.O_RDWR)
        os.dup2(quiet, 0)
        os.dup2(quiet, 1)
        self._woken, waker = os.pipe()
        os.set_blocking(waker, False)
        os.set_blocking(self._woken, False)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def serve(self) -> None:
        eyes = selectors.DefaultSelector()
        eyes.register(self._orders, selectors.EVENT_READ)
        eyes.register(self._woken, selectors.EVENT_READ)
        rest = b""
        while True:
            ready = {key.fd for key, _ in eyes.select()}
            if self._woken in ready:
                os.read(self._woken, 65536)
                self._reap()
            if self._orders in ready:
                read = os.read(self._orders, 65536)
                if not read:
                    return self._end()
                *lines, rest = (rest + read).split(b"\n")
                for line in lines:
                    self._obey(msgspec.json.decode(line, type=Order))

    def _obey(self, order: Order) -> None:
        if order.launch is not None:
            self._launch(order.launch)
        elif order.pid in self._children:
            os.kill(order.pid, order.signal)

    def _launch(self, task: process.Task) -> None:
        child = os.fork()
        if child == 0:
            self._become(task)
        self._children.add(child)
        self._tell(News(born=child))

    def _become(self, task: process.Task) -> NoReturn:
        libc: Any = ctypes.CDLL(None)
        libc.prctl(DIE_WITH_PARENT, signal.SIGKILL)
        signal.set_wakeup_fd(-1)
        for which in (signal.SIGCHLD, signal.SIGINT):
            signal.signal(which, signal.SIG_DFL)
        os.close(self._orders)
        os.close(self._news)
        status = 1
        try:
            status = process.run(task)
        except BaseException:  # noqa: BLE001 - the last words of a process; its parent reads the status
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(status)

    def _reap(self) -> None:
        for child in list(self._children):
            found, status = os.waitpid(child, os.WNOHANG)
            if found:
                self._children.discard(child)
                self._tell(News(ended=child, status=os.waitstatus_to_exitcode(status)))

    def _tell(self, news: News) -> None:
        os.write(self._news, msgspec.json.encode(news) + b"\n")

    def _end(self) -> None:
        for child in self._children:
            os.kill(child, signal.SIGKILL)
        for child in self._children:
            os.waitpid(child, 0)


if __name__ == "__main__":
    Forkserver().serve()
