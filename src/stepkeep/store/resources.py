"""The resources that steps hold, and the steps that are set aside: they wait for some, or duties limit their executor.

The rows are written with the claims of their steps (`Write.holds`). A row counts while its step is held under the same
fence; the next claim of a step with resources deletes the others. It decides nothing; `operations.limits.resources`
does.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from stepkeep.store.columns import hold_from, json_text
from stepkeep.store.part import Part
from stepkeep.store.rows import HoldRow, ResourceWaiter


class ResourceStore(Part):
    """The table of held resources."""

    async def read_holds(self, tenant: str) -> list[HoldRow]:
        """Every resource that a step of the tenant holds, by its name, run and step."""
        return await self._read(hold_from, self._sql.read_resource_holds, tenant)

    async def find_waiting(
        self, queues: Collection[int], limit: int, run: tuple[str, str] | None = None, start: int = 0
    ) -> list[ResourceWaiter]:
        """Ready steps of these queues that are set aside, in claim order, without the first `start` of them; with
        `run`, of that run alone."""
        asked = json_text(sorted(queues))
        if run is not None:
            return await self._read(_waiter, self._sql.find_resource_waiters_of, asked, *run, limit, start)
        return await self._read(_waiter, self._sql.find_resource_waiters, asked, limit, start)

    async def has_waiting(self) -> bool:
        """Whether a ready step is set aside."""
        return bool(await self._read(lambda row: row[0], self._sql.has_resource_waiters))


def _waiter(row: Sequence[Any]) -> ResourceWaiter:
    return ResourceWaiter(*row)
