"""Appends every transition of a tenant's workstreams and workers to `transitions.jsonl` (seed 004, Event Schema).

It follows the journal of the tenant by position, so that no run is too short to be seen. The position is kept beside
the file and is written after the lines; lines behind it are found again by their numbers. So a process that is killed
loses no line and writes none twice. It changes nothing in the database. `state_export` calls it.
"""

from __future__ import annotations

import asyncio
import fcntl
import heapq
import logging
import os
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from stepkeep.dialects.dialect import LogLine
from stepkeep.dialects.registry import judged
from stepkeep.kernel.errors import InvalidInput, InvariantBroken, Unreadable
from stepkeep.kernel.machine.journal import RUN_ENTITY, SealedEntry
from stepkeep.kernel.machine.states import RUN_TERMINAL, WORKER_TERMINAL
from stepkeep.operations.logs.archive import sync_folder, write_whole
from stepkeep.operations.logs.dialect_lines import DialectScribe, subject_of_run, subject_of_worker
from stepkeep.operations.logs.lines import unfold, written_line
from stepkeep.operations.logs.log import place_of
from stepkeep.operations.logs.state_files import TRANSITIONS
from stepkeep.operations.pipeline.plans import plan_for
from stepkeep.operations.pipeline.readable_states import readable_states
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.store.records import TailEntry

log = logging.getLogger("stepkeep.state")

DIALECT = "workstream"
CURSOR, LOCK = ".transitions.json", ".transitions.lock"
PAGE = 500
MOST_OPEN = 1_000
"""Journals that are kept ready to go on. One that is not is read from its beginning when it grows."""
MOST_KNOWN = 10_000
"""Runs of which is remembered whether they are workstreams."""
MOST_UNSAVED = 100
"""Pages without a line after which the cursor is written. They are only read again."""
LOCK_SECONDS = 0.05
ENDED = frozenset({*RUN_TERMINAL, *WORKER_TERMINAL})
DAMAGE = (Unreadable, InvariantBroken, LookupError, ValueError, TypeError)

Known = TypeVar("Known")


class Cursor(msgspec.Struct, kw_only=True):
    """Up to where the file has the journal. `last` is the entry at the position, with its hash: it tells whether this
    is still the same journal. `size` is the length of the file that belongs to this cursor.

    `early` are entries that came before the one that precedes them in their run; they are written after it. `unread`
    are runs that could not be read: the last entry that was written, and the last one that came. `workers` has the
    last entry of each that was written.
    """

    position: str = "0"
    last: tuple[str, int, str] | None = None
    size: int = 0
    early: set[tuple[str, int]] = msgspec.field(default_factory=set)
    unread: dict[str, tuple[int, int]] = {}
    workers: dict[str, int] = {}


class LiveJournal:
    """The journal of one run or worker in the words of the seed, entry by entry. Nothing follows its closing line."""

    def __init__(self, tenant: str, scribe: DialectScribe, opening: Sequence[LogLine] = ()) -> None:
        self._tenant, self._scribe, self._opening = tenant, scribe, list(opening)
        self.seq, self._state = 0, ""

    def take(self, entry: SealedEntry) -> list[LogLine]:
        """The lines of the next entry, with the closing line if it is the last one."""
        self.seq = entry.seq
        if self._state in ENDED:
            return []
        lines, self._opening = self._opening, []
        for move in unfold(entry):
            lines += self._scribe.lines(move)
            if move.hop is not None and move.hop.no == RUN_ENTITY:
                self._state = move.hop.target
        if self._state in ENDED:
            lines.append(self._scribe.head(self._tenant, entry.seq, entry.hash, self._state, entry.at))
        return lines


class TransitionLog:
    """`transitions.jsonl` in a folder. `names` are the workstreams that were met."""

    def __init__(self, transactor: Transactor, folder: Path, *, tenant: str) -> None:
        self._transactor, self._store, self._tenant = transactor, transactor.store, tenant
        self._folder, self._path = folder, folder / TRANSITIONS
        self._cursor: Cursor | None = None
        self._written: dict[str, int] = {}
        """The last line of journals that the file has beyond the cursor."""
        self._open: OrderedDict[str, LiveJournal] = OrderedDict()
        self._is_stream: OrderedDict[str, bool] = OrderedDict()
        self._definitions: dict[int, str | None] = {}
        self._has_retried = False
        self._unsaved = 0
        self.names: set[str] = set()
        self._told: OrderedDict[str, int] = OrderedDict()
        """The last entry of each run that was written here."""

    async def append(self, *, upto: int | None = None, is_stopping: Callable[[], bool] = lambda: False) -> int:
        """Append what is new, up to a time, and tell how many lines that were. It stops after a page if it should."""
        count = 0
        async with self._locked():
            try:
                cursor = await self._current()
                workers = await self._of_workers(cursor, upto)
                parts, is_last = await self._of_unread(cursor), False
                while not is_last:
                    found = await self._store.read_tail(self._tenant, cursor.position, PAGE)
                    page = list(takewhile(lambda one: upto is None or one.entry.at <= upto, found))
                    is_last = len(page) < PAGE
                    parts += await self._of_runs(cursor, page)
                    until = None if is_last else page[-1].entry.at
                    lines = list(heapq.merge(*parts, *_taken(cursor, workers, until), key=place_of))
                    new = [line for line in lines if self._lacks(line)]
                    count += await _to_the_end(partial(self._commit, new, cursor))
                    parts = []
                    if is_stopping():
                        self._cursor = None
                        break
            except BaseException:
                # What was followed in memory may be ahead of the file: begin again at the cursor.
                self._cursor = None
                raise
        return count

    def _lacks(self, line: LogLine) -> bool:
        """Whether the file lacks this line. It may have lines beyond the cursor."""
        said = line["metadata"]
        return bool(said["line"] > self._written.get(journal_of(said), -1))

    def is_behind(self, run_id: str, seq: int) -> bool:
        """Whether a run that is followed has an entry that the tail did not give yet."""
        return self._told.get(run_id, seq) < seq

    # -- runs --------------------------------------------------------------------------------------------------------
    async def _of_runs(self, cursor: Cursor, page: Sequence[TailEntry]) -> list[list[LogLine]]:
        """The lines of these entries, one list for each run. Entries of a run are taken in their order."""
        parts: dict[str, list[LogLine]] = {}
        if page:
            newest = page[-1]
            cursor.position = newest.position
            cursor.last = (newest.entry.run_id, newest.entry.seq, newest.entry.hash.hex())
        streams = await self._streams_among(cursor, page)
        for found in page:
            run_id, seq = found.entry.run_id, found.entry.seq
            if run_id not in streams:
                continue
            if found.overtakes or (run_id, seq - 1) in cursor.early:
                cursor.early.add((run_id, seq))
                continue
            last = seq
            while (run_id, last + 1) in cursor.early:
                last += 1
                cursor.early.discard((run_id, last))
            parts.setdefault(run_id, []).extend(await self._entries(cursor, run_id, seq - 1, last))
        return list(parts.values())

    async def _of_unread(self, cursor: Cursor) -> list[list[LogLine]]:
        """Runs that could not be read before, when a process begins."""
        left = {} if self._has_retried else dict(cursor.unread)
        self._has_retried = True
        return [await self._entries(cursor, run_id, after, last) for run_id, (after, last) in left.items()]

    async def _entries(self, cursor: Cursor, run_id: str, after: int, last: int) -> list[LogLine]:
        """The lines of the entries of a run after one up to another. A run that cannot be read holds up no other."""
        after, _ = cursor.unread.pop(run_id, (after, last))
        try:
            lines: list[LogLine] = []
            journal = await self._journal(run_id, after)
            if journal is not None:
                async for entry in self._between(run_id, after, last):
                    lines += journal.take(entry)
                _keep(self._told, run_id, journal.seq, MOST_KNOWN)
        except DAMAGE as problem:
            self._note_unread(cursor, run_id, (after, last), problem)
            return []
        return lines

    def _note_unread(self, cursor: Cursor, run_id: str, which: tuple[int, int], problem: Exception) -> None:
        log.warning("transitions of run %s are not written: %s", run_id, problem)
        self._open.pop(run_id, None)
        cursor.unread[run_id] = which

    async def _journal(self, run_id: str, seq: int) -> LiveJournal | None:
        """The journal of a run after this entry; None if the run was deleted."""
        known = self._open.pop(run_id, None)
        if known is None or known.seq != seq:
            record = await self._store.read_run(self._tenant, run_id)
            if record is None:
                return None
            plan = await plan_for(self._transactor, record.run)
            scribe = DialectScribe(judged(DIALECT), subject_of_run(run_id, plan, record.details.correlation_id))
            first = scribe.opening(self._tenant, plan, record.details.created_at, live=True)
            known = LiveJournal(self._tenant, scribe, [first])
            async for entry in self._between(run_id, 0, seq):
                known.take(entry)
        _keep(self._open, run_id, known, MOST_OPEN)
        return known

    async def _between(self, run_id: str, after: int, last: int) -> AsyncIterator[SealedEntry]:
        while after < last:
            page = await self._store.read_journal(self._tenant, run_id, after, min(PAGE, last - after))
            if not page:
                return  # it was deleted
            for entry in page:
                yield entry
            after = page[-1].seq

    async def _streams_among(self, cursor: Cursor, page: Sequence[TailEntry]) -> set[str]:
        """Those of these runs that are workstreams."""
        unknown = {one.entry.run_id: one.entry.seq for one in reversed(page) if one.entry.run_id not in self._is_stream}
        states, damaged = await readable_states(self._store, [(self._tenant, run_id) for run_id in unknown])
        for problem in damaged:
            run_id = str(problem.run_id)
            after, _ = cursor.unread.get(run_id, (unknown[run_id] - 1, 0))
            last = max(one.entry.seq for one in page if one.entry.run_id == run_id)
            self._note_unread(cursor, run_id, (after, last), problem)
        if missing := {one.definition_id for one in states.values()} - self._definitions.keys():
            for stored in (await self._store.read_definitions(sorted(missing))).values():
                self._definitions[stored.id] = stored.name if stored.dialect == DIALECT else None
        for (_, run_id), status in states.items():
            name = self._definitions.get(status.definition_id)
            self.names |= set() if name is None else {name}
            _keep(self._is_stream, run_id, name is not None, MOST_KNOWN)
        return {one.entry.run_id for one in page if self._is_stream.get(one.entry.run_id)}

    # -- workers -----------------------------------------------------------------------------------------------------
    async def _of_workers(self, cursor: Cursor, upto: int | None) -> dict[str, list[LogLine]]:
        """What the file lacks of the journals of workers."""
        rows = await self._store.list_workers(self._tenant)
        cursor.workers = {row.id: cursor.workers.get(row.id, 0) for row in rows}
        found: dict[str, list[LogLine]] = {}
        for row in rows:
            told, journal = cursor.workers[row.id], self._open.pop(row.id, None)
            if row.seq <= (told if journal is None else journal.seq):
                continue
            journal = journal or LiveJournal(
                self._tenant, DialectScribe(judged(DIALECT), subject_of_worker(row, DIALECT, live=True))
            )
            lines: list[LogLine] = []
            while page := await self._store.deliveries.read_worker_entries(self._tenant, row.id, journal.seq, PAGE):
                page = [entry for entry in page if upto is None or entry.at <= upto]
                lines += [line for entry in page for line in journal.take(entry)]
                if not page:
                    break
            _keep(self._open, row.id, journal, MOST_OPEN)
            found[row.id] = [line for line in lines if line["metadata"]["seq"] > told]
        return found

    # -- the disk ----------------------------------------------------------------------------------------------------
    @asynccontextmanager
    async def _locked(self) -> AsyncIterator[None]:
        """One process at a time writes to a folder."""
        with explained(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    await asyncio.sleep(LOCK_SECONDS)
            yield
        finally:
            os.close(descriptor)

    async def _current(self) -> Cursor:
        """The cursor, as long as the file is as it was left. Otherwise the one on disk, if it fits."""
        size = await asyncio.to_thread(self._size)
        if self._cursor is not None and self._cursor.size == size:
            return self._cursor
        self._open.clear()
        self._written, self._cursor = {}, None
        cursor = await asyncio.to_thread(self._read_cursor)
        if cursor is None or cursor.size > size or not await self._fits(cursor):
            await asyncio.to_thread(self._set_aside)
            cursor = Cursor()
        self._written = await asyncio.to_thread(self._lines_after, cursor.size)
        self._cursor = cursor
        return cursor

    async def _fits(self, cursor: Cursor) -> bool:
        """Whether this database still has the entry that the cursor stands at."""
        if cursor.last is None:
            return True
        run_id, seq, seal = cursor.last
        found = await self._store.read_journal(self._tenant, run_id, seq - 1, 1)
        return [(entry.seq, entry.hash.hex()) for entry in found] == [(seq, seal)]

    def _size(self) -> int:
        with explained(self._folder):
            return self._path.stat().st_size if self._path.exists() else 0

    def _read_cursor(self) -> Cursor | None:
        try:
            return msgspec.json.decode((self._folder / CURSOR).read_bytes(), type=Cursor)
        except (OSError, msgspec.DecodeError):
            return None

    def _set_aside(self) -> None:
        """A file that does not belong to this journal, or of which is not known up to where, is kept under a name of
        its own. All that the database has is written again."""
        with explained(self._folder):
            if not self._path.exists():
                return
            number = 1
            while (aside := self._path.with_name(f"{TRANSITIONS}.{number}")).exists():
                number += 1
            self._path.rename(aside)
            sync_folder(self._folder)
        log.warning("%s does not continue this journal; it is kept as %s", self._path, aside.name)

    def _lines_after(self, size: int) -> dict[str, int]:
        """The last line of each journal that was written after the cursor. A line that a crash has cut is removed."""
        with explained(self._folder):
            if not self._path.exists():
                return {}
            with self._path.open("r+b") as file:
                file.seek(size)
                content = file.read()
                whole = content[: content.rfind(b"\n") + 1]
                file.truncate(size + len(whole))
        found: dict[str, int] = {}
        for text in whole.splitlines():
            try:
                said = msgspec.json.decode(text)["metadata"]
                found[journal_of(said)] = int(said["line"])
            except (msgspec.DecodeError, LookupError, TypeError, ValueError, AttributeError):
                raise InvalidInput(
                    f"{self._path} has a line that is no transition. Move the file away, and the next export writes "
                    "all transitions again."
                ) from None
        return found

    def _commit(self, lines: list[LogLine], cursor: Cursor) -> int:
        """Append the lines in one write; only then write the cursor. Without lines, it is written now and then."""
        self._unsaved += 1
        if not lines and self._unsaved < MOST_UNSAVED and cursor.size == self._size():
            return 0
        content = b"".join(map(written_line, lines))
        with explained(self._folder):
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
            try:
                left = memoryview(content)
                while left:
                    left = left[os.write(descriptor, left) :]
                os.fsync(descriptor)
                cursor.size = os.fstat(descriptor).st_size
            finally:
                os.close(descriptor)
            # The name of a new file is synced with that of the cursor.
            write_whole(self._folder / CURSOR, msgspec.json.encode(cursor) + b"\n")
        self._unsaved = 0
        return len(lines)


def _keep(known: OrderedDict[str, Known], key: str, value: Known, most: int) -> None:
    known[key] = value
    known.move_to_end(key)
    while len(known) > most:
        known.popitem(last=False)


def journal_of(said: dict[str, Any]) -> str:
    """The run or the worker whose journal a line is from, by its metadata."""
    return str(said.get("run_id") or said["worker_id"])


def _taken(cursor: Cursor, workers: dict[str, list[LogLine]], until: int | None) -> Iterator[list[LogLine]]:
    """Takes the lines of workers up to a time out of these lists. All lines of an entry have one time."""
    for worker, lines in workers.items():
        count = len(lines) if until is None else sum(1 for line in lines if line["metadata"]["at"] <= until)
        if count:
            cursor.workers[worker] = lines[count - 1]["metadata"]["seq"]
            yield lines[:count]
            del lines[:count]


async def _to_the_end(do: Callable[[], Known]) -> Known:
    """Run this in a thread. A cancelled task waits for it: the folder is locked until then."""
    doing = asyncio.create_task(asyncio.to_thread(do))
    try:
        return await asyncio.shield(doing)
    except asyncio.CancelledError:
        await asyncio.wait([doing])
        raise


@contextmanager
def explained(folder: Path) -> Iterator[None]:
    """Explain an error of the disk."""
    try:
        yield
    except OSError as error:
        raise InvalidInput(f"the state files in {folder} cannot be used: {error.strerror}.") from error
