"""What a handler writes to streams of its run, and its way to the database while the attempt runs.

A handler writes from any thread and waits for nothing. The worker's loop takes what was written, a few times a second,
and appends it under the lease. What is left when the handler ends is written with the report; so is everything of a
flow or a transactional step. It runs no user code. `Context` writes, `Reporting` asks for the ends.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any

from stepkeep.edges.own_process import variables
from stepkeep.edges.redaction import secrets_of, without
from stepkeep.edges.safe_text import inert_line
from stepkeep.kernel.decide.streams import MOST_STREAMS
from stepkeep.kernel.errors import Fenced, InvalidInput, Refused, StoreError
from stepkeep.kernel.machine.events import StreamEnd
from stepkeep.kernel.machine.rows import StreamPart
from stepkeep.operations.instants import instant
from stepkeep.operations.streams.writing import LAST, LOG, MOST_CHUNK_BYTES, place_of, stream_name
from stepkeep.store.streams import Holder
from stepkeep.worker.attempts.payloads import encode, storable_text

FLUSH_SECONDS = 0.1
"""How long a chunk waits for others before they are appended together."""
LOG_SECONDS = 1.0
"""The same for lines of a log: an attempt that ends before has them written with its report."""
MOST_PART_BYTES = 512 * 1024
MOST_WITH_REPORT = 256 * 1024
"""How many bytes are written with a report; more are appended before it."""
MOST_HELD_BYTES = 4 * 1024 * 1024
"""How many bytes wait in the worker, of one attempt."""
MOST_LINE = 1_000
"""How many characters of a line of a log are kept."""

log = logging.getLogger("stepkeep.worker")


class Stream:
    """One stream of the run, as a handler writes it."""

    __slots__ = ("_name", "_own")

    def __init__(self, own: WrittenStreams, name: str) -> None:
        self._own, self._name = own, name

    def write(self, chunk: Any) -> None:
        """Append a chunk: text, or any JSON of at most 64 KiB. It waits for nothing; readers have it soon after.

        >>> from stepkeep.worker.context import Context
        >>> tokens = Context(run_id="r1", workflow="w", version=1, step="s").stream("tokens")
        >>> tokens.write("Hel"), tokens.write("lo")
        (None, None)
        >>> tokens.position
        '0.1'
        """
        self._own.write(self._name, encode(chunk, what=f"a chunk of {self._name}", limit=MOST_CHUNK_BYTES))

    @property
    def position(self) -> str | None:
        """Where the last chunk that this attempt wrote stands, as `FENCE.PLACE`; None before the first one."""
        count = self._own.count(self._name)
        return f"{self._own.fence}.{count - 1}" if count else None


class WrittenStreams:
    """What one attempt has written. `noted` is called after a chunk, from any thread, once until `take`; it is told
    whether a reader may wait for it. Without it, everything waits for the report."""

    def __init__(
        self,
        fence: int = 0,
        noted: Callable[[bool], None] | None = None,
        goes_on: bool = False,
        log_lines: int = 0,
    ) -> None:
        self.fence, self._noted, self._goes_on, self._log_lines = fence, noted, goes_on, log_lines
        self._lock = threading.Lock()
        self._waiting: dict[str, list[bytes]] = {}
        self._counts: dict[str, int] = {}
        self._after: dict[str, tuple[int, int] | None] = {}
        self._bytes = 0
        self._told = False
        self._is_urgent = False
        self._problem: Exception | None = None
        self.taken: dict[str, int] = {}
        """How many chunks of each stream were taken, to be appended."""

    def open(self, name: str, after: str | None) -> Stream:
        name = stream_name(name)
        if name == LOG:
            raise InvalidInput(f"ctx.stream: {LOG} is the stream of ctx.logger. Choose another name.")
        place = LAST if self._goes_on else place_of(after, self.fence)
        with self._lock:
            if name not in self._after and len(self._after) >= MOST_STREAMS - 1:
                raise InvalidInput(
                    f"ctx.stream: an attempt writes at most {MOST_STREAMS - 1} streams, and {name} is one more."
                )
            if self._after.setdefault(name, place) != place and after is not None:
                raise InvalidInput(f"ctx.stream: {name} was opened before, and does not go on after {after}.")
        return Stream(self, name)

    def write(self, name: str, chunk: bytes) -> None:
        with self._lock:
            if self._problem is not None and name != LOG:
                raise self._problem
            if self._bytes + len(chunk) > MOST_HELD_BYTES:
                if name == LOG:
                    return
                raise InvalidInput(
                    f"ctx.stream: {MOST_HELD_BYTES} bytes of chunks wait to be written. Write less at once."
                )
            # What earlier attempts logged is kept.
            is_added = self._goes_on or (name == LOG and self.fence > 1)
            self._after.setdefault(name, LAST if is_added else None)
            self._waiting.setdefault(name, []).append(chunk)
            self._counts[name] = self._counts.get(name, 0) + 1
            self._bytes += len(chunk) + 1
            is_urgent = name != LOG
            is_first = self._noted is not None and (not self._told or (is_urgent and not self._is_urgent))
            self._told, self._is_urgent = True, self._is_urgent or is_urgent
        if is_first and self._noted is not None:
            self._noted(is_urgent)

    def log(self, record: logging.LogRecord) -> None:
        """Keep a line that the handler logged, up to a number of lines; the values of secrets are hidden."""
        kept = self._counts.get(LOG, 0)
        if kept > self._log_lines or not self._log_lines:
            return
        try:
            said = inert_line(record.getMessage(), limit=MOST_LINE)
        except Exception as problem:  # noqa: BLE001 - arguments of a record are user code
            said = f"(a message that cannot be formatted: {type(problem).__name__})"
        if kept == self._log_lines:
            said = f"(further lines are not kept: an attempt keeps {self._log_lines})"
        text = storable_text(without(said, secrets_of(variables())))
        line = {"at": instant(int(record.created * 1_000_000)), "level": record.levelname, "text": text}
        self.write(LOG, encode(line, what="a line of the log"))

    def count(self, name: str) -> int:
        return self._counts.get(name, 0)

    @property
    def is_live(self) -> bool:
        """Whether chunks are appended while the attempt runs."""
        return self._noted is not None

    @property
    def size_bytes(self) -> int:
        """How many bytes wait."""
        return self._bytes

    @property
    def is_empty(self) -> bool:
        return not self._counts

    def drop(self) -> None:
        """Forget everything: it is on record."""
        with self._lock:
            self._waiting, self._counts, self._bytes, self.taken = {}, {}, 0, {}

    def refuse(self, problem: Exception, parts: Iterable[StreamPart]) -> None:
        """These parts could not be appended. Take no more: what waits is dropped, and the handler is told with its next
        chunk."""
        with self._lock:
            self._problem, self._waiting, self._bytes = problem, {}, 0
            for one in parts:
                self.taken[one.name] = one.start
            self._counts = {name: count for name, count in self.taken.items() if count}

    def take(self, holder: Holder) -> list[StreamPart]:
        """What waits, up to a size, as parts to append."""
        parts, left = [], MOST_PART_BYTES
        with self._lock:
            for name, chunks in list(self._waiting.items()):
                number = 0
                while number < len(chunks) and left > 0:
                    left -= len(chunks[number]) + 1
                    number += 1
                if number:
                    parts.append(self._part(holder, name, chunks[:number]))
                    del chunks[:number]
                if not chunks:
                    del self._waiting[name]
            self._bytes = sum(len(one) + 1 for chunks in self._waiting.values() for one in chunks)
            self._told = self._is_urgent = False
        return parts

    def _part(self, holder: Holder, name: str, chunks: list[bytes]) -> StreamPart:
        start = self.taken.get(name, 0)
        self.taken[name] = start + len(chunks)
        return StreamPart(
            tenant=holder.tenant,
            run_id=holder.run_id,
            no=holder.no,
            name=name,
            fence=holder.fence,
            start=start,
            count=len(chunks),
            at=0,
            body=_array(chunks),
            after=None if start else self._after.get(name),
        )

    def ends(self) -> tuple[StreamEnd, ...]:
        """The ends of what was written, with what waits."""
        with self._lock:
            found = []
            for name, count in sorted(self._counts.items()):
                chunks, start = self._waiting.get(name), self.taken.get(name, 0)
                body = _array(chunks) if chunks else None
                after = None if start else self._after.get(name)
                end = StreamEnd(name=name, chunks=count, size_bytes=0, sha256="", start=start, body=body, after=after)
                found.append(end)
            return tuple(found)


def _array(chunks: list[bytes]) -> bytes:
    return b"[%s]" % b",".join(chunks)


class StreamKeeper:
    """Appends what the attempts of one worker write. `number` is that of the worker."""

    def __init__(
        self,
        append: Callable[[Holder, list[StreamPart]], Awaitable[None]],
        is_held: Callable[[Any], bool],
        retry: Callable[[Exception, int], Awaitable[None]],
        spawn: Callable[[Any], None],
        sleep: Callable[[float], Awaitable[None]],
        log_lines: int,
    ) -> None:
        self._append, self._is_held, self._retry, self._spawn, self._sleep = append, is_held, retry, spawn, sleep
        self.log_lines = log_lines
        self._loop: asyncio.AbstractEventLoop | None = None
        self._busy: dict[int, asyncio.Lock] = {}

    def open(self) -> None:
        """Bind to the running event loop, on which everything is appended."""
        self._loop = asyncio.get_running_loop()

    def note(self, job: Any, is_urgent: bool) -> None:
        """An attempt wrote a chunk. Called from any thread."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the worker has ended before this handler
                self._loop.call_soon_threadsafe(self._begin, job, FLUSH_SECONDS if is_urgent else LOG_SECONDS)

    def _begin(self, job: Any, pause: float) -> None:
        if not job.reported and self._is_held(job):
            self._spawn(self._flush_soon(job, pause))

    async def _flush_soon(self, job: Any, pause: float) -> None:
        await self._sleep(pause)
        if not job.reported:
            await self.flush(job)

    def is_busy(self, job: Any) -> bool:
        """Whether something must be appended before the report of this attempt."""
        return id(job) in self._busy or (job.streams.is_live and job.streams.size_bytes > MOST_WITH_REPORT)

    async def flush(self, job: Any) -> None:
        """Append everything that waits, while the attempt is held."""
        lock = self._busy.setdefault(id(job), asyncio.Lock())
        try:
            async with lock:
                while self._is_held(job) and (parts := job.streams.take(job.holder)):
                    if not await self._write(job, parts):
                        return
        finally:
            if not lock.locked():
                self._busy.pop(id(job), None)

    async def _write(self, job: Any, parts: list[StreamPart]) -> bool:
        tries = 0
        while self._is_held(job):
            try:
                await self._append(job.holder, parts)
            except StoreError as problem:
                await self._retry(problem, tries)
                tries += 1
            except Fenced:
                return False
            except Refused as problem:
                job.streams.refuse(problem, parts)
                return False
            except Exception as problem:
                log.exception("chunks of %s cannot be appended", job.title)
                job.streams.refuse(problem, parts)
                return False
            else:
                return True
        return False
