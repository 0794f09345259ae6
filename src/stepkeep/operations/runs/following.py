"""Reads the journal of one run from an entry on, as views: pages for a list, and what is new for a stream.

It only reads. An entry has the lines that the exported log has for it, in canonical names or in a dialect; lines depend
on earlier ones, so that a follower reads a journal from its beginning once. The HTTP service calls it.
"""

from __future__ import annotations

from typing import TypedDict

from stepkeep.dialects.dialect import LogLine
from stepkeep.kernel.errors import NotFound
from stepkeep.kernel.machine.journal import SealedEntry
from stepkeep.kernel.machine.states import RUN_TERMINAL
from stepkeep.operations import validate
from stepkeep.operations.instants import instant
from stepkeep.operations.logs.log import RunLog
from stepkeep.operations.pipeline.plans import plan_for
from stepkeep.operations.pipeline.transact import Transactor

PAGE = 1000


class FollowedEntry(TypedDict):
    """An entry of a journal: its stored bytes and their hash, and its lines."""

    run_id: str
    seq: int
    at: str
    hash: str
    body: str
    lines: list[LogLine]


class JournalFollower:
    """The entries of one run in order, without gaps. `begin` it before use."""

    def __init__(self, transactor: Transactor, run_id: str, *, tenant: str, dialect: str | None = None) -> None:
        self._transactor, self._tenant, self._dialect = transactor, tenant, dialect
        self.run_id = validate.run_id(run_id)
        self._log: RunLog | None = None
        self.seq = 0
        """The number of the last entry that was read."""
        self.is_over = False
        """Whether the run has ended and its whole journal was read."""

    async def begin(self, after: int = 0) -> None:
        """Read the entries up to `after`, which the reader has already."""
        await self._look()
        while self.seq < after and not self.is_over:
            before = self.seq
            for entry in await self._entries(after - self.seq):
                self._lines(entry)
            if self.seq == before:
                break
            await self._look()

    async def read(self, limit: int = PAGE) -> list[FollowedEntry]:
        """The next entries; empty if there are none yet."""
        found: list[FollowedEntry] = [
            {
                "run_id": entry.run_id,
                "seq": entry.seq,
                "at": instant(entry.at),
                "hash": entry.hash.hex(),
                "body": entry.body.decode(),
                "lines": self._lines(entry),
            }
            for entry in await self._entries(limit)
        ]
        await self._look()
        return found

    async def _entries(self, limit: int) -> list[SealedEntry]:
        return await self._transactor.store.read_journal(self._tenant, self.run_id, self.seq, min(limit, PAGE))

    def _lines(self, entry: SealedEntry) -> list[LogLine]:
        assert self._log is not None, "begin the follower first"
        self.seq = entry.seq
        return self._log.lines(entry)

    async def _look(self) -> None:
        """Whether the run has ended. Its row is read after its entries, so that none is left unread at the end."""
        found = await self._transactor.store.read_run(self._tenant, self.run_id)
        if found is None:
            raise NotFound(f"there is no run {self.run_id}")
        if self._log is None:
            self._log = RunLog(found, await plan_for(self._transactor, found.run), self._dialect)
        self.is_over = found.run.state in RUN_TERMINAL and self.seq >= found.run.seq
