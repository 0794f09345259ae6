"""The rows of streams: what attempts write to streams of their run, and what readers read, in one order per run.

A row is written only while its attempt holds the step, and its `seq` follows that of the row before it, so that a
reader that knows a number misses no row before it. Two transactions that write to one run at once conflict, and one of
them runs again. What a report brings is `StreamPart` in its write. It decides nothing; `operations.streams` does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from stepkeep.kernel.machine.rows import StreamPart
from stepkeep.store.columns import json_text, stream_from
from stepkeep.store.part import Part
from stepkeep.store.rows import StreamRow
from stepkeep.store.writing import stream_values


class Holder(NamedTuple):
    """The attempt that writes: its step, its fence, and the number of its worker."""

    tenant: str
    run_id: str
    no: int
    fence: int
    worker: int


class WrittenPart(msgspec.Struct, frozen=True):
    """What a row of an attempt has: chunks of one stream from a place on."""

    name: str
    start: int
    count: int
    body: bytes


class StreamSize(NamedTuple):
    """What one attempt has written to one stream, in which rows, and after which chunk it goes on."""

    no: int
    name: str
    fence: int
    chunks: int
    size_bytes: int
    first: int
    last: int
    after_fence: int | None
    after_place: int | None


class StreamStore(Part):
    """The table of rows of streams."""

    async def append(self, holder: Holder, parts: Sequence[StreamPart], most_bytes: int) -> bool:
        """Write these parts, all or none. False: the attempt does not hold the step any more, or the streams of the run
        would have more bytes than that."""
        if not self._can_exist(holder.run_id):
            return False
        size = sum(len(one.body) for one in parts)
        given = (*holder, self._time(), size, stream_values(parts), most_bytes)
        [rows] = await self._transact([(self._sql.write_held_stream, given)])
        return bool(rows)

    async def measure(self, tenant: str, run_id: str) -> int:
        """How many bytes the streams of a run have."""
        if not self._can_exist(run_id):
            return 0
        found = await self._read(lambda row: int(row[0]), self._sql.measure_streams, tenant, run_id)
        return found[0] if found else 0

    async def read(self, tenant: str, run_id: str, after: int = 0, limit: int = 1000) -> list[StreamRow]:
        """Rows of all streams of a run after one, in order."""
        if not self._can_exist(run_id):
            return []
        return await self._read(stream_from, self._sql.read_stream_rows, tenant, run_id, after, limit)

    async def read_new(self, tenant: str, after: Mapping[str, int], limit: int) -> list[StreamRow]:
        """Rows of the streams of several runs, of each up to `limit` after the given one, by run and in order."""
        wanted = [one for one in after.items() if self._can_exist(one[0])]
        if not wanted:
            return []
        return await self._read(stream_from, self._sql.read_new_stream_rows, tenant, json_text(wanted), limit)

    async def read_attempt(self, tenant: str, run_id: str, no: int, fence: int) -> list[WrittenPart]:
        """What an attempt has written, by name and place."""
        if not self._can_exist(run_id):
            return []
        return await self._read(_written, self._sql.read_stream_attempt, tenant, run_id, no, fence)

    async def list_sizes(self, tenant: str, run_id: str) -> list[StreamSize]:
        """What each attempt has written to each stream of a run, by step, name and fence."""
        if not self._can_exist(run_id):
            return []
        return await self._read(lambda row: StreamSize(*row), self._sql.list_streams, tenant, run_id)


def _written(row: Sequence[Any]) -> WrittenPart:
    name, start, count, body = row
    return WrittenPart(name, start, count, body.encode())
