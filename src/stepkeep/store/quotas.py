"""The places of unfinished runs under a quota: taken before a run is created, freed after it has ended.

A place is taken under the lock of its scope, so that parallel starts of several processes never have more places than
the quota. Rows of ended runs are deleted by the next start; the end of a run writes nothing here. It decides nothing;
`operations.people.quotas` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from stepkeep.store.part import Part, Rows


class Scope(NamedTuple):
    """What a quota is counted for, and how many unfinished runs it allows."""

    name: str
    most: int


class _Full(Exception):
    """A scope has no free place."""


class QuotaStore(Part):
    """Places under quotas."""

    async def take(self, tenant: str, run_id: str, scopes: Sequence[Scope], now: int, patience: int) -> str | None:
        """Take a place in every scope, or in none; returns the name of a full one. Places older than `patience` whose
        run does not exist are free."""
        ordered = sorted(scopes)  # the same order everywhere, so that two starts cannot deadlock
        full: list[str] = []

        def check(found: Rows) -> None:
            full[:] = [scope.name for scope, taken in zip(ordered, found[2::3], strict=True) if not taken]
            if full:
                raise _Full

        statements = [
            statement
            for name, most in ordered
            for statement in (
                (self._sql.lock_quota, (tenant, name)),
                (self._sql.free_quota, (tenant, name, now - patience)),
                (self._sql.take_quota, (tenant, name, run_id, now, most)),
            )
        ]
        try:
            await self._transact(statements, check)
        except _Full:
            return full[0]
        return None

    async def drop(self, tenant: str, run_id: str, scopes: Sequence[Scope]) -> None:
        """Give the places of a run back: it was not created."""
        await self._transact([(self._sql.drop_quota, (tenant, name, run_id)) for name, _ in sorted(scopes)])
