"""The rows of the audit log, and which of them to read. Plain values: nothing here decides anything."""

from __future__ import annotations

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
