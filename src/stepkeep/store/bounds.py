"""The bounds of every integer column, and the check that refuses a row beyond them before it is written.

The table is the same for all stores: a value that does not fit one store is refused by all, with the same error. It
does not check meaning; the schema checks signs of counters and rules between columns. Every store calls `check_write`,
`check_worker`, `check_people`, `check_version` or `check_revision` first.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from stepkeep.kernel.errors import InvalidInput
from stepkeep.kernel.journal import SealedEntry
from stepkeep.kernel.rows import Run, Step, Worker
from stepkeep.store.audit_rows import AuditRow
from stepkeep.store.change import Write
from stepkeep.store.principals import PeopleChange

INT = 2**31 - 1
BIGINT = 2**63 - 1

LAST_SEQ = 2**43 - 1
"""The last entry of a journal: a message's number and a step's completion number are a sequence times 2^20, in 64
bits."""

LAST_MOMENT = 253_402_300_799_999_999
"""The last microsecond of the year 9999, which is the last that a log can show."""

MAX_PRIORITY = 1_000_000
MAX_VERSION = 1_000_000_000
PLACES = 20_001
"""The largest number of rows of a plan: 10,000 steps, an undo step for each, and the final check."""


class Bounds(NamedTuple):
    """The smallest and the largest value that a column takes, and the largest that the engine ever writes there."""

    low: int
    high: int
    reaches: int


TIME = Bounds(0, LAST_MOMENT, LAST_MOMENT)
SEQ = Bounds(0, LAST_SEQ, LAST_SEQ)
PLACE_IN_JOURNAL = Bounds(0, BIGINT, BIGINT)
PRIORITY = Bounds(-MAX_PRIORITY, MAX_PRIORITY, MAX_PRIORITY)
VERSION = Bounds(1, MAX_VERSION, MAX_VERSION)
ID = Bounds(0, INT, INT)
STEP_NO = Bounds(0, INT, PLACES)
STEP_COUNT = Bounds(-INT, INT, PLACES)
COUNT = Bounds(-INT, INT, INT)
QUOTA = Bounds(1, 1_000_000_000, 1_000_000_000)
NATURAL = Bounds(0, INT, INT)

INTEGERS: dict[str, dict[str, Bounds]] = {
    "migrations": {"version": Bounds(1, 9999, 9999), "applied_at": TIME},
    "definitions": {"id": ID, "version": VERSION, "published_at": TIME},
    "schemas": {"published_at": TIME},
    "queues": {"id": ID},
    "runs": {
        "definition_id": ID,
        "priority": PRIORITY,
        "seq": SEQ,
        "open": STEP_COUNT,
        "moving": STEP_COUNT,
        "leased": STEP_COUNT,
        "failed": STEP_COUNT,
        "undoing": STEP_COUNT,
        "inbox": COUNT,
        "due_at": TIME,
        "started_at": TIME,
        "ended_at": TIME,
        "moved_at": TIME,
    },
    "run_details": {"version": VERSION, "created_at": TIME, "policy_revision": ID},
    "steps": {
        "no": STEP_NO,
        "queue": ID,
        "priority": PRIORITY,
        "ready_at": TIME,
        "due_at": TIME,
        "fence": COUNT,
        "worker": ID,
        "claimed_at": TIME,
        "attempts": COUNT,
        "losses": COUNT,
        "unmet": STEP_COUNT,
        "settled": PLACE_IN_JOURNAL,
    },
    "attempts": {
        "no": STEP_NO,
        "fence": COUNT,
        "number": COUNT,
        "worker": ID,
        "started_at": TIME,
        "ended_at": TIME,
    },
    "journal": {"seq": SEQ, "at": TIME},
    "messages": {"number": PLACE_IN_JOURNAL, "arrived_at": TIME, "consumed_by": STEP_NO},
    "mailbox": {"number": PLACE_IN_JOURNAL, "arrived_at": TIME, "expires_at": TIME, "forget_at": TIME},
    "outbox": {"seq": SEQ, "number": COUNT, "created_at": TIME},
    "gates": {
        "no": STEP_NO,
        "activation": SEQ,
        "opened_at": TIME,
        "level": COUNT,
        "due_at": TIME,
        "closed_at": TIME,
    },
    "adoptions": {"no": STEP_NO, "owned": Bounds(0, 1, 1)},
    "slots": {"most": QUOTA, "priority": PRIORITY, "asked_at": TIME, "granted_at": TIME},
    "resource_holds": {"no": STEP_NO, "fence": COUNT, "units": PLACE_IN_JOURNAL, "held_at": TIME},
    "decisions": {"no": STEP_NO, "activation": SEQ, "level": COUNT, "at": TIME},
    "workers": {
        "no": ID,
        "incarnation": COUNT,
        "capacity": COUNT,
        "heard_at": TIME,
        "started_at": TIME,
        "seq": SEQ,
    },
    "worker_journal": {"seq": SEQ, "at": TIME},
    "worker_reports": {"worker": ID, "reported_at": TIME},
    "attempt_evidence": {"no": STEP_NO, "fence": COUNT},
    "payload_chunks": {"no": COUNT},
    "policies": {"revision": ID, "published_at": TIME},
    "signed_heads": {"entries": SEQ, "signed_at": TIME},
    "settings": {"revision": ID, "saved_at": TIME},
    "tenants": {"created_at": TIME},
    "principals": {"created_at": TIME, "disabled_at": TIME},
    "memberships": {"granted_at": TIME, "valid_from": TIME, "valid_to": TIME, "revoked_at": TIME},
    "delegations": {"granted_at": TIME, "valid_from": TIME, "valid_to": TIME, "revoked_at": TIME},
    "api_keys": {
        "created_at": TIME,
        "expires_at": TIME,
        "revoked_at": TIME,
        "max_concurrent_runs": QUOTA,
        "max_requests_per_min": QUOTA,
    },
    "quota_runs": {"taken_at": TIME},
    "sessions": {"created_at": TIME, "expires_at": TIME, "ended_at": TIME},
    "audit": {"at": TIME, "seq": SEQ},
    "audit_heads": {"seq": SEQ, "forgotten": SEQ},
    "jobs": {"seq": SEQ, "created_at": TIME, "lease_until": TIME, "ended_at": TIME},
    "people_journal": {"seq": SEQ, "at": TIME},
    "triggers": {
        "seq": Bounds(1, LAST_SEQ, LAST_SEQ),
        "version": VERSION,
        "next_at": TIME,
        "due_at": TIME,
        "cursor_at": TIME,
        "paused_at": TIME,
        "created_at": TIME,
        "removed_at": TIME,
    },
    "firings": {"due_at": TIME, "watched": Bounds(0, 1, 1), "made_at": TIME, "depth": NATURAL},
    "backfills": {
        "since_at": TIME,
        "until_at": TIME,
        "cursor_at": TIME,
        "at_once": Bounds(1, INT, INT),
        "started": NATURAL,
        "skipped": NATURAL,
        "refused": NATURAL,
        "created_at": TIME,
        "ended_at": TIME,
    },
    "children": {
        "no": STEP_NO,
        "activation": SEQ,
        "version": VERSION,
        "requested_at": TIME,
        "started_at": TIME,
        "recalled_at": TIME,
        "ended_at": TIME,
        "todo_at": TIME,
    },
    "sinks": {"takes": Bounds(1, 15, 15), "created_at": TIME},
    "deliveries": {
        "takes": Bounds(1, 15, 15),
        "last": SEQ,
        "sent": SEQ,
        "sent_number": COUNT,
        "attempts": COUNT,
        "fence": COUNT,
        "ready_at": TIME,
        "lease_until": TIME,
        "dead_at": TIME,
    },
    "delivery_actions": {"id": PLACE_IN_JOURNAL, "at": TIME, "seq": SEQ, "number": COUNT},
    "quarantine": {"id": PLACE_IN_JOURNAL, "quarantined_at": TIME, "released_at": TIME},
}
"""Every integer column of both schemas. A negative counter is left to the schema."""


def check_write(what: Write) -> None:
    """Refuse a write with a number that does not fit every store.

    Nearly every write is far within the bounds, and that is cheap to check: all values of a kind are combined with
    bitwise or, and only a bit beyond the bound leads to the exact check.
    """
    try:
        for change in what.runs:
            _check_run(change.run)
        if what.steps:
            _check_steps(what.steps)
        if what.new_steps:
            _check_steps(what.new_steps)
        for attempt in what.attempts:
            counters = attempt.no | attempt.fence | attempt.number | attempt.worker
            if counters >> 31 or (attempt.started_at | attempt.ended_at) >> 57:
                _check_row("attempts", attempt)
        _check_entries(what.entries)
        if not what.is_plain:
            _check_rest(what)
    except TypeError:
        _check_types(what)
        raise


def _check_rest(what: Write) -> None:
    """The parts that few writes have."""
    for new in what.new_runs:
        run, details = new.run, new.details
        _check_run(run)
        priority = run.priority
        if type(priority) is not int or abs(priority) > MAX_PRIORITY or run.definition_id >> 31:
            _check_row("runs", run)
        is_known = 0 < details.version <= MAX_VERSION
        if not is_known or (details.policy_revision or 0) >> 31 or details.created_at >> 57:
            _check_row("run_details", details)
        _check_steps(new.steps)
        _check_entries(new.entries)
    if what.only_creates:
        return
    for message in (*what.messages, *what.consumed, *(one for new in what.new_runs for one in new.messages)):
        _check_row("messages", message)
    for sent in what.mailbox:
        _check_row("mailbox", sent)
    for told in (*what.outbox, *(one for new in what.new_runs for one in new.outbox)):
        _check_row("outbox", told)
    for cursor in (one for new in what.new_runs for one in new.deliveries):
        _check_row("deliveries", cursor)
    for gate in (*what.gates, *(one for new in what.new_runs for one in new.gates)):
        _check_row("gates", gate)
    for child in (*what.children, *what.begun):
        _check_row("children", child)
    for vote in what.votes:
        _check_row("decisions", vote)
    for adoption in (one for new in what.new_runs for one in new.adoptions):
        _check_row("adoptions", adoption)
    for slot in (new.slot for new in what.new_runs if new.slot is not None):
        _check_row("slots", slot)
    for hold in what.holds:
        _check_row("resource_holds", hold)
    for change in what.triggers:
        _check_row("triggers", change.row)
    for firing in what.firings:
        _check_row("firings", firing)
    for backfill in what.backfills:
        _check_row("backfills", backfill)


def check_worker(worker: Worker, entry: SealedEntry | None) -> None:
    """The same for a worker and an entry of its journal."""
    _check_row("workers", worker)
    if entry is not None:
        _check_row("worker_journal", entry)


def check_audit(rows: Iterable[AuditRow]) -> None:
    """The same for entries of the audit log."""
    for row in rows:
        _check_row("audit", row)


def check_people(change: PeopleChange) -> None:
    """The same for a change of people."""
    _check_row("people_journal", change.entry)
    for table in ("tenants", "principals", "memberships", "delegations", "sessions"):
        for row in getattr(change, table):
            _check_row(table, row)
    for key in change.keys:
        _check_row("api_keys", key)


def check_version(version: int) -> None:
    """The same for the version of a definition."""
    _check("definitions", "version", version, VERSION)


def check_revision(revision: int) -> None:
    """The same for the revision of a policy or a setting."""
    _check("policies", "revision", revision, ID)


def _check_run(run: Run) -> None:
    """What changes in a run."""
    counters = run.open | run.moving | run.leased | run.failed | run.undoing | run.inbox
    times = (run.due_at or 0) | (run.started_at or 0) | (run.ended_at or 0) | run.moved_at
    if counters >> 31 or times >> 57 or run.seq >> 43:
        _check_row("runs", run)


def _check_entries(entries: Iterable[SealedEntry]) -> None:
    for entry in entries:
        if entry.seq >> 43 or entry.at >> 57:
            _check_row("journal", entry)


def _check_steps(steps: Iterable[Step]) -> None:
    for step in steps:
        counters = step.no | step.queue | step.fence | (step.worker or 0) | step.attempts | step.losses | step.unmet
        times = (step.ready_at or 0) | (step.due_at or 0) | (step.claimed_at or 0)
        if (
            counters >> 31
            or times >> 57
            or (step.settled or 0) >> 63
            or not -MAX_PRIORITY <= step.priority <= MAX_PRIORITY
        ):
            _check_row("steps", step)


def _check_row(table: str, row: msgspec.Struct) -> None:
    for column, bounds in INTEGERS[table].items():
        _check(table, column, getattr(row, column, None), bounds)


def _check_types(what: Write) -> None:
    """Name the value that is not a number."""
    for table, rows in (
        ("runs", [change.run for change in what.runs]),
        ("runs", [new.run for new in what.new_runs]),
        ("run_details", [new.details for new in what.new_runs]),
        ("steps", [*what.steps, *what.new_steps, *(step for new in what.new_runs for step in new.steps)]),
        ("attempts", what.attempts),
        ("journal", [*what.entries, *(entry for new in what.new_runs for entry in new.entries)]),
    ):
        for row in rows:
            _check_row(table, row)


def _check(table: str, column: str, value: Any, bounds: Bounds) -> None:
    if value is None:
        return
    if type(value) is not int:
        raise InvalidInput(f"{table}.{column} is a whole number, not {type(value).__name__}; nothing was written")
    if not bounds.low <= value <= bounds.high:
        raise InvalidInput(
            f"{table}.{column} would be {value}; it is from {bounds.low} to {bounds.high}. Nothing was written."
        )
