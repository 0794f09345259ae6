"""What attempts write to streams: sealed, bounded, and appended under their lease; and the ends that reports have.

A place is the fence of an attempt and a number from 0 on; it is never used again. Chunks that a report brings are
written with it, and its ends are digests of what is stored. Workers and the service call it. It decides no lease: the
store's statement does.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

from msgspec.structs import replace

from stepkeep.kernel.errors import Contended, Fenced, InvalidInput, InvariantBroken, QuotaExceeded
from stepkeep.kernel.machine.events import StepReported, StreamEnd
from stepkeep.kernel.machine.rows import StreamPart
from stepkeep.operations.people.quotas import QuotaKeeper
from stepkeep.operations.pipeline.codec import Seal
from stepkeep.operations.pipeline.group_commit import again_if_contended
from stepkeep.store.protocol import Store
from stepkeep.store.streams import Holder, StreamSize, WrittenPart

MOST_RUN_BYTES: Final = 64 * 1024 * 1024
"""How many bytes the streams of a run may have, with those that a later attempt has replaced."""
LAST: Final = (0, 0)
"""In place of a chunk after which an attempt goes on: the last one that is stored. No attempt has the fence 0."""

LOG: Final = "log"
"""The stream that has what handlers log, as `at`, `level` and `text`."""
MOST_CHUNK_BYTES: Final = 64 * 1024
"""How many bytes of JSON a chunk has at most."""

_POSITION = re.compile(r"([0-9]{1,9})\.([0-9]{1,9})", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")

E = TypeVar("E", bound=StepReported)

log = logging.getLogger(__name__)


def stream_name(given: object) -> str:
    """The name of a stream, which is a part of addresses.

    >>> stream_name("tokens")
    'tokens'
    """
    if not isinstance(given, str) or _NAME.fullmatch(given) is None:
        raise InvalidInput(
            "the name of a stream has 1 to 100 letters, digits, dots, dashes and _, and begins with no dot."
        )
    return str.__str__(given)


def place_of(after: str | None, fence: int) -> tuple[int, int] | None:
    """The chunk after which an attempt goes on, from its position or `last`.

    >>> place_of("3.17", 4), place_of(None, 4), place_of("last", 4) == LAST
    ((3, 17), None, True)
    """
    if after is None:
        return None
    if after == "last":
        return LAST
    found = _POSITION.fullmatch(str(after))
    if found is None:
        raise InvalidInput('`after` is a position of an earlier attempt, such as "3.17", or "last".')
    place = (int(found[1]), int(found[2]))
    if not 0 < place[0] < fence:
        raise InvalidInput(f"{after} is no position of an earlier attempt; this one has the fence {fence}.")
    return place


class StreamWriter:
    """Writes to the streams of runs for one process."""

    def __init__(self, store: Store, seal: Seal) -> None:
        self._store, self._seal = store, seal
        self._quotas = QuotaKeeper(store)

    async def append(self, holder: Holder, parts: Sequence[StreamPart]) -> None:
        """Write these parts of an attempt, all or none; those that are written already are left. Raises Fenced if the
        attempt does not hold its step, InvalidInput or QuotaExceeded if there is no room."""
        parts = await self._sealed(parts)
        if any(one.after == LAST for one in parts):
            sizes = await self._store.streams.list_sizes(holder.tenant, holder.run_id)
            parts = [replace(one, after=_resolved(one.after, sizes, holder, one.name)) for one in parts]
        size = sum(len(one.body) for one in parts)
        await self._quotas.add(holder.tenant, "streams", size)
        if await again_if_contended(lambda: self._append(holder, parts)):
            return
        if await self._store.streams.measure(holder.tenant, holder.run_id) + size > MOST_RUN_BYTES:
            raise InvalidInput(
                f"the streams of run {holder.run_id} have no room for {size} bytes more: a run may write "
                f"{MOST_RUN_BYTES} bytes. Write less, or keep the rest elsewhere."
            )
        raise Fenced(f"step {holder.no} of run {holder.run_id} is no longer held under fence {holder.fence}")

    async def _append(self, holder: Holder, parts: Sequence[StreamPart]) -> bool:
        try:
            return await self._store.streams.append(holder, parts, MOST_RUN_BYTES)
        except (Contended, InvariantBroken):
            if await self._are_there(holder, parts):
                return True  # the reply to an earlier try was lost
            raise

    async def _are_there(self, holder: Holder, parts: Iterable[StreamPart]) -> bool:
        written = await self._store.streams.read_attempt(holder.tenant, holder.run_id, holder.no, holder.fence)
        return {(one.name, one.start) for one in parts} <= {(one.name, one.start) for one in written}

    async def _sealed(self, parts: Sequence[StreamPart]) -> list[StreamPart]:
        if not self._seal.is_on:
            return list(parts)
        seal = self._seal.seal
        return await asyncio.to_thread(lambda: [replace(one, body=seal(one.body)) for one in parts])

    # -- ends --------------------------------------------------------------------------------------------------------
    async def completed(self, events: Sequence[E]) -> list[E]:
        """The reports with the ends of their streams: the bytes and the digest of everything that an attempt wrote."""
        if not any(event.streams for event in events):
            return list(events)
        return [await self._with_ends(event) if event.streams else event for event in events]

    async def _with_ends(self, event: E) -> E:
        key, streams = (event.tenant, event.run_id), self._store.streams
        has_more = any(one.start for one in event.streams)
        written = await streams.read_attempt(*key, event.no, event.fence) if has_more else []
        goes_on = any(one.after == LAST for one in event.streams)
        sizes = await streams.list_sizes(*key) if goes_on else []
        ends = list[StreamEnd]()
        has_room = await self._has_room(event, sum(one.size_bytes for one in sizes))
        for end in event.streams:
            body = end.body if has_room else None
            if body is not None and self._seal.is_on:
                body = await asyncio.to_thread(self._seal.seal, body)
            mine = [one for one in written if one.name == end.name]
            if (found := sum(one.count for one in mine)) != end.start:
                raise InvalidInput(f"{end.start} chunks of the stream {end.name} are reported, and {found} are stored.")
            if mine or body is not None:
                holder = Holder(*key, event.no, event.fence, event.worker)
                ends.append(_end(end, mine, body, _resolved(end.after, sizes, holder, end.name)))
        return replace(event, streams=tuple(ends))

    async def _has_room(self, event: StepReported, known_bytes: int) -> bool:
        """Whether the chunks that a report brings may be written. If not, the report has the ends without them."""
        size = sum(len(one.body or b"") for one in event.streams)
        try:
            if size:
                await self._quotas.add(event.tenant, "streams", size)
        except QuotaExceeded as problem:
            log.warning("chunks of streams of run %s are dropped: %s", event.run_id, problem)
            return False
        if known_bytes + size > MOST_RUN_BYTES:
            log.warning("chunks of streams of run %s are dropped: it has %d bytes", event.run_id, known_bytes)
            return False
        return True


def _end(
    end: StreamEnd, written: Sequence[WrittenPart], body: bytes | None, after: tuple[int, int] | None
) -> StreamEnd:
    digest, size = hashlib.sha256(), 0
    for one in [*(part.body for part in written), *(() if body is None else (body,))]:
        digest.update(one + b"\n")
        size += len(one)
    chunks = end.start if body is None else end.chunks
    return replace(end, chunks=chunks, size_bytes=size, sha256=digest.hexdigest(), body=body, after=after)


def _resolved(
    after: tuple[int, int] | None, sizes: Iterable[StreamSize], holder: Holder, name: str
) -> tuple[int, int] | None:
    """The chunk after which an attempt goes on: the last one of earlier attempts, where it says so."""
    if after != LAST:
        return after
    earlier = [one for one in sizes if (one.no, one.name) == (holder.no, name) and one.fence < holder.fence]
    last = max(earlier, key=lambda one: one.last, default=None)
    return None if last is None else (last.fence, last.chunks - 1)
