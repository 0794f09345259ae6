"""The audit log of a store: rows that are added and read, and deleted when they are old. It decides nothing.

`operations.audit` writes and reads it. Both stores have the same statements.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Protocol

from stepkeep.store.audit_rows import AuditFilter, AuditRow
from stepkeep.store.bounds import check_audit
from stepkeep.store.columns import json_text, people_values, person_reader
from stepkeep.store.deliveries import Transact
from stepkeep.store.people import Read


class AuditStore(Protocol):
    """The audit log."""

    async def append(self, rows: Sequence[AuditRow]) -> None:
        """Add entries, all or none of them."""
        ...

    async def read(self, wanted: AuditFilter) -> list[AuditRow]:
        """Entries, newest first."""
        ...

    async def forget(self, tenant: str, before: int, limit: int) -> int:
        """Delete the oldest entries before a moment, up to a number; returns how many."""
        ...


audit_from = person_reader(AuditRow)


class AuditTables:
    """`AuditStore` by the statements of one store."""

    def __init__(self, statements: SimpleNamespace, read: Read, transact: Transact) -> None:
        self._sql, self._read, self._transact = statements, read, transact

    async def append(self, rows: Sequence[AuditRow]) -> None:
        check_audit(rows)
        await self._transact([(self._sql.insert_audit, (json_text([people_values(row) for row in rows]),))])

    async def read(self, wanted: AuditFilter) -> list[AuditRow]:
        given = (
            *(wanted.tenant, wanted.before, wanted.before_id, wanted.since),
            *(wanted.operation, wanted.outcome, wanted.key, wanted.limit),
        )
        if wanted.target is not None:
            both = (wanted.target, wanted.actor)
            return await self._read(audit_from, self._sql.read_audit_of_target, *given, *both)
        if wanted.actor is not None:
            return await self._read(audit_from, self._sql.read_audit_of_actor, *given, wanted.actor)
        return await self._read(audit_from, self._sql.read_audit, *given)

    async def forget(self, tenant: str, before: int, limit: int) -> int:
        [gone] = await self._transact([(self._sql.forget_audit, (tenant, before, limit))])
        return len(gone)
