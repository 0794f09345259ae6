"""Reads streams: what a run has of them, and their parts in the order in which they were written.

A reader knows the number of its last piece. A new attempt replaces what earlier ones wrote, or goes on after a chunk of
them: its first piece says so (`restart`, `keeps`). Chunks that were replaced before the first read are left
out. It only reads. The engine, the service, archives and certificates call it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import msgspec
from msgspec.structs import replace

from stepkeep.kernel.errors import InvalidInput, NotFound
from stepkeep.kernel.machine.states import RUN_TERMINAL, RunState
from stepkeep.kernel.plan import Plan
from stepkeep.operations import validate
from stepkeep.operations.answers import Answer, Moment, says
from stepkeep.operations.instants import instant
from stepkeep.operations.pipeline.codec import HIDDEN, Seal
from stepkeep.operations.pipeline.plans import plan_for
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.operations.streams.writing import stream_name
from stepkeep.store.protocol import Store
from stepkeep.store.records import WholeRun
from stepkeep.store.rows import StreamRow
from stepkeep.store.streams import StreamSize

ALL = "*"
"""In place of a name: all streams of a run."""
PAGE = 200
"""Rows that are read at once."""

Segments = list[tuple[int, int]]
"""The chunks of a stream that count: of each attempt, by its fence, so many."""


class StreamSummary(Answer, kw_only=True):
    """One stream of a run."""

    name: str
    step: Annotated[str, says("The step that writes it.")]
    chunks: Annotated[int, says("How many count; those that a later attempt has replaced do not.")]
    bytes: Annotated[int, says("Of everything that is stored, as it is stored.")]
    position: Annotated[str, says("Of the last chunk: FENCE.PLACE.")]


class StreamList(Answer, kw_only=True):
    """The streams of a run."""

    run_id: str
    streams: list[StreamSummary]


class StreamPiece(Answer, kw_only=True):
    """Chunks that were written together."""

    number: Annotated[int, says("Orders the pieces of a run; `after` takes it.")]
    step: str
    name: str
    position: Annotated[str, says("Of the first chunk: FENCE.PLACE.")]
    at: Moment
    chunks: Annotated[list[Any], says("Texts, or any JSON.")]
    restart: Annotated[bool, says("A new attempt has replaced chunks: drop those behind `keeps`.")]
    keeps: Annotated[str | None, says("The last chunk that still counts; null: none does.")]


class StreamPage(Answer, kw_only=True):
    """Pieces of streams of a run, in order."""

    run_id: str
    pieces: list[StreamPiece]
    after: Annotated[int, says("The number after which to go on.")]
    over: Annotated[bool, says("The run has ended, and there are no more.")]


def segments_of(attempts: Iterable[StreamSize]) -> Segments:
    """The chunks of one stream that count, from what its attempts wrote, in the order of their fences."""
    found: Segments = []
    for one in sorted(attempts, key=lambda one: one.fence):
        found = begin_attempt(found, one.fence, one.after_fence, one.after_place)
        found[-1] = (one.fence, one.chunks)
    return found


def begin_attempt(before: Segments, fence: int, after_fence: int | None, after_place: int | None) -> Segments:
    """The chunks that still count when an attempt begins: those up to the one after which it goes on.

    >>> begin_attempt([(1, 5), (2, 3)], 3, 1, 3), begin_attempt([(1, 5)], 2, None, None)
    ([(1, 4), (3, 0)], [(2, 0)])
    """
    if after_fence is None or after_place is None:
        return [(fence, 0)]
    kept = [(one, min(count, after_place + 1) if one == after_fence else count) for one, count in before]
    return [*[one for one in kept if one[0] <= after_fence and one[1]], (fence, 0)]


class StreamFold:
    """Follows the streams of a run in the order of their rows, from a row on."""

    def __init__(self, plan: Plan, seal: Seal, sizes: Sequence[StreamSize], after: int) -> None:
        self._plan, self._seal = plan, seal
        self._now: dict[tuple[int, str], Segments] = {}
        self._snapshot = max((one.last for one in sizes), default=0) if after == 0 else 0
        self._counts: dict[tuple[int, str], Segments] = {}
        streams: dict[tuple[int, str], list[StreamSize]] = {}
        for one in sizes:
            streams.setdefault((one.no, one.name), []).append(one)
        for stream, attempts in streams.items():
            self._counts[stream] = segments_of(attempts)
            if known := [one for one in attempts if one.first <= after]:
                self._now[stream] = segments_of(known)

    def piece(self, row: StreamRow) -> StreamPiece | None:
        """What a reader is told of the next row; None for one that does not count."""
        stream, place = (row.no, row.name), row.start
        before = self._now.get(stream, [])
        if before and row.fence < before[-1][0]:
            return None  # an attempt that had lost its step
        restart, keeps = False, None
        now = list(before)
        if not before or row.fence > before[-1][0]:
            now = begin_attempt(before, row.fence, row.after_fence, row.after_place)
            restart = now[:-1] != before
            keeps = None if len(now) < 2 else f"{now[-2][0]}.{now[-2][1] - 1}"
        now[-1] = (row.fence, row.start + row.count)
        self._now[stream] = now
        chunks = self._chunks(row)
        if row.seq <= self._snapshot:
            # Only what counts is told to a reader that begins, so that nothing has to be dropped.
            most = dict(self._counts.get(stream, [])).get(row.fence, 0)
            chunks, restart, keeps = chunks[: max(0, most - row.start)], False, None
            if not chunks:
                return None
        return StreamPiece(
            number=row.seq,
            step=self._plan.name_of(row.no) or str(row.no),
            name=row.name,
            position=f"{row.fence}.{place}",
            at=instant(row.at),
            chunks=chunks,
            restart=restart,
            keeps=keeps,
        )

    def _chunks(self, row: StreamRow) -> list[Any]:
        body = self._seal.visible(row.body.encode())
        found = msgspec.json.decode(body)
        return found if isinstance(found, list) else [HIDDEN] * row.count


async def list_streams(transactor: Transactor, tenant: str, run_id: str) -> StreamList:
    """The streams of a run, by step and name."""
    run_id = validate.run_id(run_id)
    plan, _ = await _run(transactor, tenant, run_id)
    streams: dict[tuple[int, str], list[StreamSize]] = {}
    for one in await transactor.store.streams.list_sizes(tenant, run_id):
        streams.setdefault((one.no, one.name), []).append(one)
    found = []
    for (no, name), attempts in streams.items():
        segments = segments_of(attempts)
        found.append(
            StreamSummary(
                name=name,
                step=plan.name_of(no) or str(no),
                chunks=sum(count for _, count in segments),
                bytes=sum(one.size_bytes for one in attempts),
                position=f"{segments[-1][0]}.{segments[-1][1] - 1}",
            )
        )
    return StreamList(run_id=run_id, streams=found)


class StreamReader:
    """Pieces of streams of one run for one reader, in order. `begin` it before use."""

    def __init__(
        self, transactor: Transactor, tenant: str, run_id: str, name: str | None, step: str | None, after: int
    ) -> None:
        self._transactor, self.tenant, self.run_id = transactor, tenant, validate.run_id(run_id)
        self._name, self._step = None if name is None else stream_name(name), step
        self.after = after
        self._no: int | None = None
        self._fold: StreamFold | None = None

    @property
    def has_begun(self) -> bool:
        return self._fold is not None

    async def begin(self) -> RunState:
        """Read what the reader has to know of the run; its state."""
        plan, state = await _run(self._transactor, self.tenant, self.run_id)
        if self._step is not None:
            numbers = {**plan.numbers, **{plan.name_of(no) or str(no): no for no in await self._numbers()}}
            if self._step not in numbers:
                raise NotFound(f"run {self.run_id} has no step {self._step}")
            self._no = numbers[self._step]
        sizes = await self._transactor.store.streams.list_sizes(self.tenant, self.run_id)
        self._fold = StreamFold(plan, self._transactor.payloads.seal, sizes, self.after)
        return state

    async def _numbers(self) -> list[int]:
        return [one.no for one in await self._transactor.store.streams.list_sizes(self.tenant, self.run_id)]

    def take(self, rows: Iterable[StreamRow]) -> list[StreamPiece]:
        """What these rows are to the reader; they follow those that it has."""
        assert self._fold is not None, "begin the reader first"
        found = []
        for row in rows:
            if row.seq <= self.after:
                continue
            self.after = row.seq
            if self._name not in (None, row.name) or self._no not in (None, row.no):
                continue
            if (piece := self._fold.piece(row)) is not None:
                found.append(piece)
        return found

    async def read(self, limit: int = PAGE) -> list[StreamPiece]:
        """The next pieces, read from the database. `has_more` says whether to read again."""
        rows = await self._transactor.store.streams.read(self.tenant, self.run_id, self.after, limit)
        self.has_more = len(rows) == limit
        return self.take(rows)

    has_more = False


async def _run(transactor: Transactor, tenant: str, run_id: str) -> tuple[Plan, RunState]:
    found = await transactor.store.read_run(tenant, run_id)
    if found is None:
        raise NotFound(f"there is no run {run_id}")
    return await plan_for(transactor, found.run), found.run.state


async def read_page(
    transactor: Transactor, tenant: str, run_id: str, name: str | None, step: str | None, after: int, limit: int
) -> StreamPage:
    """The next pieces of streams of a run."""
    if after < 0:
        raise InvalidInput("after is the number of a piece, or 0.")
    reader = StreamReader(transactor, tenant, run_id, name, step, after)
    is_over = (await reader.begin()) in RUN_TERMINAL
    pieces = await reader.read(limit)
    while not pieces and reader.has_more:
        pieces = await reader.read(limit)
    return StreamPage(run_id=reader.run_id, pieces=pieces, after=reader.after, over=is_over and not reader.has_more)


async def read_rows(store: Store, tenant: str, run_id: str) -> list[StreamRow]:
    """All rows of the streams of a run."""
    found: list[StreamRow] = []
    while page := await store.streams.read(tenant, run_id, found[-1].seq if found else 0, PAGE):
        found += page
    return found


async def with_streams(store: Store, whole: WholeRun) -> WholeRun:
    """A run with the rows of its streams."""
    run = whole.record.run
    return replace(whole, streams=tuple(await read_rows(store, run.tenant, run.id)))


async def stored_ends(store: Store, tenant: str, run_id: str) -> dict[tuple[int, int, str], dict[str, Any]]:
    """The ends of what each attempt wrote to each stream, by step number, fence and name, as they follow from rows."""
    rows: dict[tuple[int, int, str], list[StreamRow]] = {}
    for one in await read_rows(store, tenant, run_id):
        rows.setdefault((one.no, one.fence, one.name), []).append(one)
    return {place: _end(mine) for place, mine in rows.items()}


def _end(rows: Sequence[StreamRow]) -> dict[str, Any]:
    bodies = [one.body.encode() for one in rows]
    digest = hashlib.sha256(b"".join(body + b"\n" for body in bodies)).hexdigest()
    return {"chunks": sum(one.count for one in rows), "bytes": sum(map(len, bodies)), "sha256": digest}
