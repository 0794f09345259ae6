"""The rows of the audit log, the hash chain over them, and which of them to read. Plain values; nothing is decided."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from enum import StrEnum

import msgspec

LAST_TIME = (1 << 62) - 1
LAST_ID = "~"
"""Higher than any id."""


class Outcome(StrEnum):
    """What became of an operation that was asked for: done, not allowed, or not possible."""

    DONE = "done"
    REFUSED = "refused"
    FAILED = "failed"


class AuditRow(msgspec.Struct, frozen=True, kw_only=True):
    """One operation that was asked for. `target` is the run, user, key or other thing that it is about. `code` is the
    rule or the class of error of what was not done."""

    tenant: str
    id: str
    at: int
    actor: str
    key: str | None
    vouched_by: str | None
    operation: str
    target: str
    outcome: Outcome
    code: str | None
    request_id: str | None
    address: str | None


class ChainedRow(AuditRow, frozen=True, kw_only=True):
    """An entry in the chain of its tenant. `hash` covers the entry before it and its own content. Entries of earlier
    versions have neither."""

    seq: int | None = None
    hash: str | None = None


class AuditHead(msgspec.Struct, frozen=True, kw_only=True):
    """The end of the chain of a tenant. Retention has deleted the entries up to `forgotten`, whose hash is `anchor`."""

    tenant: str
    seq: int = 0
    hash: str = ""
    forgotten: int = 0
    anchor: str = ""


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


class AuditFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which entries: those that match everything that is set, before the entry (`before`, `before_id`)."""

    tenant: str
    actor: str | None = None
    target: str | None = None
    operation: str | None = None
    outcome: str | None = None
    key: str | None = None
    since: int = 0
    before: int = LAST_TIME
    before_id: str = LAST_ID
    limit: int = 100
