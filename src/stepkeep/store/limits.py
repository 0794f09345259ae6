"""The tables of limits: keys, the places of claims under them, and the steps that wait for one.

A key's row is the lock of its places: a claim locks it, counts, and writes; the end of a claim locks it in its write.
What a transaction writes is `Write.limits`; `limit_writes` has it as statements, which both stores send. It decides
nothing; `operations.limits.limited_claims` does.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from stepkeep.store.change import LimitChange
from stepkeep.store.columns import json_text, limit_hold_from, limit_key_from, limit_wait_from
from stepkeep.store.loading import Ask, Loads
from stepkeep.store.part import Part
from stepkeep.store.rows import LimitHold, LimitKey, LimitKeyRow, LimitLine, LimitWait, ResourceWaiter


class DueLine(NamedTuple):
    """A line to look at, and its key as it stands."""

    line: LimitLine
    key: LimitKeyRow


class KeyInUse(NamedTuple):
    """A key of a limit that steps hold or wait for."""

    name: str
    key: str
    held: int
    tat: int
    waiting: int


class LimitUse(NamedTuple):
    """What is held under a limit, under how many keys, and how many steps wait."""

    name: str
    held: int
    keys: int
    waiting: int


def limit_writes(what: LimitChange) -> Loads[None]:
    """Everything that a transaction writes of limits."""
    if what.keys:
        saved = [(*row.limit_key, row.seq, row.held, row.tat) for row in what.keys]
        yield Ask("save_limit_keys", given=(json_text(saved),))
    if what.left:
        yield Ask("leave_limit_lines", given=(json_text(what.left),))
    if what.holds:
        rows = [tuple([getattr(row, name) for name in LimitHold.__struct_fields__]) for row in what.holds]
        yield Ask("insert_limit_holds", given=(json_text(rows),))
    if what.parked:
        yield Ask("park_steps", given=(json_text([(one.tenant, one.run_id, one.no) for one in what.parked]),))
        waits = [tuple([getattr(row, name) for name in LimitWait.__struct_fields__]) for row in what.parked]
        yield Ask("insert_limit_waits", given=(json_text(waits),))
    if what.begun:
        yield Ask("insert_limit_lines", given=(json_text(what.begun),))
    if what.lines:
        yield Ask("save_limit_lines", given=(json_text(what.lines),))
    if what.searched:
        yield Ask("drop_limit_lines", given=(json_text([(*line.limit_key, line.queue) for line in what.searched]),))
    if what.ended:
        yield from _end_holds(what)


def _end_holds(what: LimitChange) -> Loads[None]:
    freed: dict[LimitKey, list[tuple[int, int]]] = {}
    for tenant, name, key, weight, seq in (yield Ask("end_limit_holds", given=(json_text(what.ended),))):
        freed.setdefault((tenant, name, key), []).append((weight, seq))
    if freed:
        keys = sorted(freed)
        sums = [
            (*key, sum(weight for weight, _ in freed[key]), json_text(sorted(seq for _, seq in freed[key])))
            for key in keys
        ]
        yield Ask("save_freed_limit_keys", given=(json_text(sums),))
        yield Ask("wake_limit_lines", given=(json_text(keys), what.at))


class LimitStore(Part):
    """The tables of limits."""

    async def find_due(self, queues: Collection[int], limit: int) -> list[DueLine]:
        """The lines of these queues that are to be looked at now, those that wait longest for it first."""
        asked = json_text(sorted(queues))
        return await self._read(_due_line, self._sql.find_due_limit_lines, asked, self._time(), limit)

    async def find_parked(self, line: LimitLine, limit: int) -> list[ResourceWaiter]:
        """The first steps of a line: high priority first, then the longest wait."""
        found = await self._read(tuple, self._sql.find_parked_steps, *line[:4], limit)
        return [ResourceWaiter(tenant, run_id, no, definition, line) for tenant, run_id, no, definition in found]

    async def has_due(self) -> bool:
        """Whether a line is to be looked at now."""
        return bool(await self._read(lambda row: row[0], self._sql.has_due_limit_lines, self._time()))

    async def wake(self, tenant: str, name: str, after_us: int) -> None:
        """Have all lines of a limit looked at when this time has passed, or before."""
        await self._transact([(self._sql.wake_limit, (tenant, name, self._time() + after_us))])

    async def count_use(self, tenant: str) -> list[LimitUse]:
        """What is held and waited for under each limit, by its name."""
        return await self._read(lambda row: LimitUse(row[0], *map(int, row[1:])), self._sql.count_limit_use, tenant)

    async def read_keys(self, tenant: str, name: str, after: str, limit: int) -> list[KeyInUse]:
        """The keys of a limit in use after this one, in order."""
        return await self._read(lambda row: KeyInUse(*row), self._sql.read_limit_keys, tenant, name, after, limit)

    async def read_holds(self, tenant: str, name: str, key: str, limit: int) -> list[LimitHold]:
        """Who has places under a key, in the order of their grants."""
        return await self._read(limit_hold_from, self._sql.read_limit_holds, tenant, name, key, limit)

    async def read_waits(self, tenant: str, run_id: str) -> list[LimitWait]:
        """Under which keys the steps of a run are parked."""
        if not self._can_exist(run_id):
            return []
        return await self._read(limit_wait_from, self._sql.read_limit_waits, tenant, run_id)

    async def forget_keys(self, unused_us: int, limit: int) -> int:
        """Delete keys that were not used for this long, under which nothing is held or waits. Returns how many."""
        [rows] = await self._transact([(self._sql.forget_limit_keys, (self._time(), unused_us, limit))])
        return len(rows)


def _due_line(row: Sequence[Any]) -> DueLine:
    tenant, name, key, queue, due_at = row[:5]
    return DueLine(LimitLine(tenant, name, key, queue, due_at), limit_key_from((tenant, name, key, *row[5:])))
