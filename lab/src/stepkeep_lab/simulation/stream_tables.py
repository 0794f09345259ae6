"""Rows of streams of the model database. It follows the statements of the real stores, each in one round trip."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from stepkeep.kernel.errors import Contended
from stepkeep.kernel.machine.rows import StreamPart
from stepkeep.kernel.machine.states import StepState
from stepkeep.store.change import RunKey, Write
from stepkeep.store.rows import StreamRow
from stepkeep.store.streams import Holder, StreamSize, StreamStore, WrittenPart
from stepkeep_lab.simulation.delivery_tables import Asking

if TYPE_CHECKING:
    from stepkeep_lab.simulation.database import Database


class StreamRows:
    """Everything that is committed to streams, by run and in order."""

    def __init__(self) -> None:
        self.rows: dict[RunKey, list[StreamRow]] = {}

    def of(self, tenant: str, run_id: str) -> list[StreamRow]:
        return self.rows.get((tenant, run_id), [])

    def check(self, what: Write) -> None:
        """Refuse a place that is taken."""
        for part in what.rows.of(StreamPart):
            self.refuse(part)

    def refuse(self, part: StreamPart) -> None:
        place = (part.no, part.name, part.fence, part.start)
        if any((one.no, one.name, one.fence, one.start) == place for one in self.of(part.tenant, part.run_id)):
            raise Contended("another transaction wrote to this place of a stream: run the whole transaction again")

    def write(self, what: Write) -> None:
        self.add(what.rows.of(StreamPart))

    def add(self, parts: Iterable[StreamPart], at: int | None = None) -> list[int]:
        """Number these parts, and keep them."""
        made = []
        for one in parts:
            mine = self.rows.setdefault((one.tenant, one.run_id), [])
            after_fence, after_place = (None, None) if one.after is None else one.after
            row = StreamRow(
                tenant=one.tenant,
                run_id=one.run_id,
                seq=len(mine) + 1,
                no=one.no,
                name=one.name,
                fence=one.fence,
                start=one.start,
                count=one.count,
                total=(mine[-1].total if mine else 0) + len(one.body),
                at=one.at if at is None else at,
                after_fence=after_fence,
                after_place=after_place,
                body=one.body.decode(),
            )
            mine.append(row)
            made.append(row.seq)
        return made

    def delete(self, key: RunKey) -> None:
        self.rows.pop(key, None)


class ModelStreams(StreamStore):
    """`StreamStore` on the model database."""

    def __init__(self, database: Database, wire: Asking, clock: Callable[[], int]) -> None:
        self._database, self._wire, self._clock = database, wire, clock

    @property
    def _rows(self) -> StreamRows:
        return self._database.tables.streams

    async def append(self, holder: Holder, parts: Sequence[StreamPart], most_bytes: int) -> bool:
        def work() -> bool:
            rows, now = self._rows.of(holder.tenant, holder.run_id), self._clock()
            size = (rows[-1].total if rows else 0) + sum(len(one.body) for one in parts)
            if size > most_bytes or not self._holds(holder, now):
                return False
            for part in parts:
                self._rows.refuse(part)
            return bool(self._rows.add(parts, now))

        return await self._wire.ask("append to a stream", work)

    def _holds(self, holder: Holder, now: int) -> bool:
        tables, key = self._database.tables, (holder.tenant, holder.run_id)
        step = tables.steps.get(key, {}).get(holder.no)
        if step is None or tables.is_quarantined(key) or step.state not in (StepState.RUNNING, StepState.VALIDATING):
            return False
        is_own = (step.fence, step.worker) == (holder.fence, holder.worker)
        return is_own and step.due_at is not None and step.due_at >= now

    async def measure(self, tenant: str, run_id: str) -> int:
        def work() -> int:
            rows = self._rows.of(tenant, run_id)
            return rows[-1].total if rows else 0

        return await self._wire.ask("measure streams", work)

    async def read(self, tenant: str, run_id: str, after: int = 0, limit: int = 1000) -> list[StreamRow]:
        def work() -> list[StreamRow]:
            return [one for one in self._rows.of(tenant, run_id) if one.seq > after][:limit]

        return await self._wire.ask("read streams", work)

    async def read_new(self, tenant: str, after: Mapping[str, int], limit: int) -> list[StreamRow]:
        def work() -> list[StreamRow]:
            runs = sorted(after.items())
            return [
                row
                for run_id, seen in runs
                for row in [one for one in self._rows.of(tenant, run_id) if one.seq > seen][:limit]
            ]

        return await self._wire.ask("read new rows of streams", work)

    async def read_attempt(self, tenant: str, run_id: str, no: int, fence: int) -> list[WrittenPart]:
        def work() -> list[WrittenPart]:
            mine = [one for one in self._rows.of(tenant, run_id) if (one.no, one.fence) == (no, fence)]
            return [
                WrittenPart(one.name, one.start, one.count, one.body.encode())
                for one in sorted(mine, key=lambda one: (one.name, one.start))
            ]

        return await self._wire.ask("read streams", work)

    async def list_sizes(self, tenant: str, run_id: str) -> list[StreamSize]:
        def work() -> list[StreamSize]:
            found: dict[tuple[int, str, int], list[StreamRow]] = {}
            for one in self._rows.of(tenant, run_id):
                found.setdefault((one.no, one.name, one.fence), []).append(one)
            return [
                StreamSize(
                    *place,
                    max(one.start + one.count for one in rows),
                    sum(len(one.body.encode()) for one in rows),
                    rows[0].seq,
                    rows[-1].seq,
                    rows[0].after_fence,
                    rows[0].after_place,
                )
                for place, rows in sorted(found.items())
            ]

        return await self._wire.ask("list streams", work)
