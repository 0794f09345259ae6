"""The audit log of a store: rows that are added and read, and deleted when they are old. It decides nothing.

`operations.people.audit` writes and reads it. Both stores have the same statements.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from stepkeep.store.bounds import check_audit
from stepkeep.store.columns import json_text, person_reader, values_of
from stepkeep.store.part import Part
from stepkeep.store.reading import first
from stepkeep.store.rows import (
    AuditFilter,
    AuditHead,
    AuditRow,
    ChainedRow,
)

_encode = msgspec.json.Encoder(order="sorted").encode


def link(before: str, row: AuditRow, seq: int) -> str:
    """The hash of an entry. Fields without a value are left out, so that a later field changes no hash."""
    told = {name: getattr(row, name) for name in AuditRow.__struct_fields__}
    body = _encode({"seq": seq, **{name: value for name, value in told.items() if value is not None}})
    return hashlib.sha256(bytes.fromhex(before) + body).hexdigest()


def chained(rows: Iterable[AuditRow], heads: Mapping[str, AuditHead]) -> tuple[list[ChainedRow], list[AuditHead]]:
    """Entries behind the ends of the chains of their tenants, and the new ends."""
    found, ends = list[ChainedRow](), dict(heads)
    for row in rows:
        head = ends.get(row.tenant, AuditHead(tenant=row.tenant))
        seq, seal = head.seq + 1, link(head.hash, row, head.seq + 1)
        ends[row.tenant] = msgspec.structs.replace(head, seq=seq, hash=seal)
        found.append(ChainedRow(**msgspec.structs.asdict(row), seq=seq, hash=seal))
    return found, list(ends.values())


audit_from = person_reader(AuditRow)
chained_from = person_reader(ChainedRow)
head_from = person_reader(AuditHead)


class AuditStore(Part):
    """The audit log."""

    async def append(self, rows: Sequence[AuditRow]) -> None:
        """Add entries to the chains of their tenants, all or none of them.

        Raises Contended if another process has added some since the ends of the chains were read: add them again.
        """
        check_audit(rows)
        found = [await self.read_head(tenant) for tenant in dict.fromkeys(row.tenant for row in rows)]
        sealed, ends = chained(rows, {head.tenant: head for head in found if head is not None})
        values = json_text([values_of(row) for row in sealed])
        moves = [(self._sql.save_audit_head, tuple(values_of(end))) for end in ends]
        await self._transact([(self._sql.insert_audit, (values,)), *moves])

    async def read_head(self, tenant: str) -> AuditHead | None:
        return first(await self._read(head_from, self._sql.read_audit_head, tenant))

    async def read_chain(self, tenant: str, after: int, limit: int) -> list[ChainedRow]:
        """Entries of the chain, in its order."""
        return await self._read(chained_from, self._sql.read_audit_chain, tenant, after, limit)

    async def count_unchained(self, tenant: str, since: int, limit: int) -> int:
        """How many entries from a moment on are in no chain, up to a number."""
        [count] = await self._read(lambda row: int(row[0]), self._sql.count_unchained_audit, tenant, since, limit)
        return count

    async def read(self, wanted: AuditFilter) -> list[AuditRow]:
        """Entries, newest first."""
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
        """Delete the oldest entries before a moment, up to a number of each kind; returns how many.

        What is kept of the chain begins behind the last deleted entry, whose hash stays in the head.
        """
        old = (tenant, before, limit)
        _, gone, beside = await self._transact(
            [
                (self._sql.update_audit_anchor, old),
                (self._sql.forget_chained_audit, (tenant,)),
                (self._sql.forget_audit, old),
            ]
        )
        return len(gone) + len(beside)
