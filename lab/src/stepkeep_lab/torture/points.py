"""Labelled points at which a torture process ends itself with SIGKILL.

Production code has no hooks. A wrapper of the store sees every operation. SQLite's own commit hook, and a patched
COMMIT on PostgreSQL (in this process alone), give the moment before a commit.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from contextvars import ContextVar
from enum import StrEnum
from typing import Any, NoReturn

import apsw
import msgspec

from stepkeep.kernel.errors import ConnectionLost
from stepkeep.store.change import Basis, Decide, Lease, Loaded, More, Propose, Renewed, Want, Write
from stepkeep.store.protocol import Store
from stepkeep_lab.torture.ledger import Tally


class Doing(StrEnum):
    """What a transaction is for."""

    START = "start"
    CLAIM = "claim"
    REPORT = "report"
    RENEW = "renew"
    SWEEP = "sweep"
    OTHER = "other"


class When(StrEnum):
    """Where in a transaction."""

    BEFORE = "before_tx"
    DECIDED = "after_decide"
    COMMITTING = "before_commit"
    COMMITTED = "after_commit"


class Point(msgspec.Struct, frozen=True):
    """A place to die at, when it is reached for the `nth` time."""

    doing: Doing
    when: When
    nth: int = 1

    def __str__(self) -> str:
        return f"{self.doing}.{self.when}"


POINTS = [
    Point(doing, when)
    for doing in Doing
    for when in When
    # A renewal is one statement; nothing is decided in it.
    if doing is not Doing.OTHER and (doing, when) != (Doing.RENEW, When.DECIDED)
]

doing: ContextVar[Doing] = ContextVar("doing", default=Doing.OTHER)


def die(tally: Tally, what: str) -> NoReturn:
    """Leave a word that outlives the process, and end it as a power cut would."""
    tally.add(what)
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


class Trap:
    """Counts how often its point is reached, and springs at the nth time."""

    def __init__(self, point: Point, tally: Tally) -> None:
        self._point, self._tally, self._left = point, tally, point.nth
        self._deciding = False

    def reach(self, now_doing: Doing, when: When) -> None:
        if (now_doing, when) != (self._point.doing, self._point.when):
            return
        self._left -= 1
        if self._left <= 0:
            die(self._tally, f"killed at {self._point}")

    def arm(self, now_doing: Doing) -> None:
        """The next commit on this connection ends a transaction of this kind."""
        self._deciding = self._deciding or now_doing is self._point.doing

    def committing(self) -> bool:
        if self._deciding:
            self._deciding = False
            self.reach(self._point.doing, When.COMMITTING)
        return False

    def watch_commits(self) -> None:
        """Be called before every commit of this process, on either database."""
        apsw.connection_hooks.append(lambda connection: connection.set_commit_hook(self.committing))
        from stepkeep.store.postgres import store

        postgres: Any = store
        commit, record = postgres.commit, postgres.record

        async def watched(connection: Any) -> None:
            if doing.get() is self._point.doing:
                self.committing()
            await commit(connection)

        async def watched_record(connection: Any, *given: Any) -> int:
            # A transaction by itself: what is sent here is committed with it.
            if doing.get() is self._point.doing:
                self.committing()
            now: int = await record(connection, *given)
            return now

        postgres.commit, postgres.record = watched, watched_record


class WatchedStore:
    """A store that springs traps and counts commits whose outcome was left unknown; all else is the store's own."""

    def __init__(self, inner: Store, tally: Tally, trap: Trap | None = None) -> None:
        self._inner, self._tally, self._trap = inner, tally, trap

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def change(self, wants: Sequence[Want], decide: Decide, propose: Propose | None = None) -> None:
        now_doing = doing.get()

        def watched(loaded: Loaded) -> More | Write:
            answer = decide(loaded)
            if isinstance(answer, Write) and self._trap is not None and (answer.runs or answer.new_runs):
                self._trap.reach(now_doing, When.DECIDED)
                self._trap.arm(now_doing)
            return answer

        self._reach(now_doing, When.BEFORE)
        try:
            await self._inner.change(wants, watched, propose)
        except ConnectionLost:
            self._tally.add("unknown outcomes")
            raise
        self._reach(now_doing, When.COMMITTED)

    async def write_if_unchanged(self, what: Write, known: Loaded, basis: Basis) -> int:
        now_doing = doing.get()
        self._reach(now_doing, When.BEFORE)
        self._reach(now_doing, When.DECIDED)
        if self._trap is not None:
            self._trap.arm(now_doing)
        try:
            now = await self._inner.write_if_unchanged(what, known, basis)
        except ConnectionLost:
            self._tally.add("unknown outcomes")
            raise
        self._reach(now_doing, When.COMMITTED)
        return now

    async def renew(self, leases: Sequence[Lease]) -> list[Renewed]:
        token = doing.set(Doing.RENEW)
        try:
            self._reach(Doing.RENEW, When.BEFORE)
            if self._trap is not None:
                self._trap.arm(Doing.RENEW)
            found = await self._inner.renew(leases)
            self._reach(Doing.RENEW, When.COMMITTED)
            self._tally.add("renewals refused", len(leases) - len(found))
            return found
        finally:
            doing.reset(token)

    def _reach(self, now_doing: Doing, when: When) -> None:
        if self._trap is not None:
            self._trap.reach(now_doing, when)
