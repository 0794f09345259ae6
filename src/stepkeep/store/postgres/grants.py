"""What each part of a deployment may do at PostgreSQL: the rights of a worker, a client and the API, as statements.

It prints statements and runs none. `stepkeep db grants` calls it; `docs/databases.md` shows the result for three roles,
and a test holds the page to it and runs programs with exactly these rights.
"""

from __future__ import annotations

import re
from enum import StrEnum

from stepkeep.kernel.errors import InvalidInput
from stepkeep.store.postgres.namespace import DEFAULT

_PLAIN = re.compile(r"[a-z_][a-z0-9_]{0,62}")
MAX_NAME_BYTES = 63

CHANGES_RUNS = {
    "insert": (
        *("steps", "attempts", "journal", "messages", "outbox", "payload_chunks", "gates", "decisions"),
        *("checkpoints", "stream_rows", "deliveries", "adoptions", "children"),
    ),
    "update": ("runs", "steps", "messages", "gates", "deliveries", "adoptions", "children"),
    "delete": ("business_keys",),
}
"""What every decision about a run may write. A business key is deleted when its run ends, and becomes free."""

CONVERSES = ("conversations", "conversation_items")
"""What sessions of agents and savers of checkpoints write."""

GRANTS_SLOTS = {"insert": ("slots", "quota_scopes"), "update": ("slots", "quota_scopes"), "delete": ("slots",)}
"""What a start and the grant of an execution slot write."""

TAKES_RESOURCES = {"insert": ("resource_holds",), "delete": ("resource_holds",)}
"""What the claim of a step that needs resources writes."""

COUNTS_PLACES = {
    "insert": ("limit_keys", "limit_holds", "limit_waits", "limit_lines"),
    "update": ("limit_keys", "limit_waits", "limit_lines"),
    "delete": ("limit_keys", "limit_holds", "limit_waits", "limit_lines"),
}
"""What the claim of a limited step writes, its end, and the sweep of unused keys. A client may end a claim, too."""

REQUESTERS = "update (asked_before)"
"""The right to name the person who started an idle run among its requesters."""

FIRES = {
    "insert": ("runs", "run_details", "idempotency_keys", "business_keys", "triggers", "firings", "backfills"),
    "update": ("triggers", "firings", "backfills"),
}
"""What a firing of a trigger writes, and a start. Any worker may fire."""


class Part(StrEnum):
    """A part of a deployment that has a role of its own. The owner of the tables needs no grants."""

    WORKER = "worker"
    CLIENT = "client"
    API = "api"


PEOPLE = {
    "insert": (
        *("tenants", "principals", "memberships", "delegations", "api_keys", "people_journal", "sessions"),
        *("policies", "settings"),
    ),
    "update": ("tenants", "principals", "memberships", "delegations", "api_keys", "sessions"),
}
"""What changes of people and of the settings of a tenant write."""

ONLY_READ = ("migrations", "signed_heads")
"""What the API reads and never writes."""

FUNCTIONS = ("stepkeep_tenant_of_key(text)", "stepkeep_tenant_of_session(text)", "stepkeep_tenant_names(integer)")
"""What the API may ask across tenants: which tenant a key or a session belongs to, and the names of tenants."""

RIGHTS: dict[Part, dict[str, tuple[str, ...]]] = {
    Part.WORKER: {
        "insert": (
            *CONVERSES,
            *CHANGES_RUNS["insert"],
            *FIRES["insert"],
            *GRANTS_SLOTS["insert"],
            *TAKES_RESOURCES["insert"],
            *COUNTS_PLACES["insert"],
            *("workers", "worker_journal", "worker_reports", "attempt_evidence", "queues"),
            *("sinks", "delivery_actions", "audit", "audit_heads"),
        ),
        "update": (
            *CONVERSES,
            *CHANGES_RUNS["update"],
            *FIRES["update"],
            *GRANTS_SLOTS["update"],
            *COUNTS_PLACES["update"],
            *("workers", "worker_reports", "sinks", "jobs", "job_runs", "audit_heads"),
        ),
        "delete": (
            *CONVERSES,
            *CHANGES_RUNS["delete"],
            *GRANTS_SLOTS["delete"],
            *TAKES_RESOURCES["delete"],
            *COUNTS_PLACES["delete"],
            "mailbox",
        ),
    },
    Part.CLIENT: {
        "insert": (
            *("definitions", "schemas", "queues"),
            *CONVERSES,
            *CHANGES_RUNS["insert"],
            *FIRES["insert"],
            *GRANTS_SLOTS["insert"],
            "limit_keys",
            *("quarantine", "mailbox", "sinks", "delivery_actions", "audit", "audit_heads", "quota_runs"),
            *("jobs", "job_runs"),
        ),
        "update": (
            *CONVERSES,
            *CHANGES_RUNS["update"],
            *FIRES["update"],
            *GRANTS_SLOTS["update"],
            *("limit_keys", "limit_lines"),
            *("quarantine", "mailbox", "sinks", "jobs", "audit_heads"),
        ),
        REQUESTERS: ("run_details",),
        "delete": (
            *CONVERSES,
            *CHANGES_RUNS["delete"],
            *GRANTS_SLOTS["delete"],
            *("limit_holds", "sinks", "deliveries", "quota_runs"),
        ),
    },
}
"""A worker runs what was published; a client publishes, starts, decides and looks. Neither changes the schema, a
definition or the journal, and neither deletes a run: retention is for the owner. A worker forgets old messages."""

RIGHTS[Part.API] = {
    right: tuple(
        dict.fromkeys(
            (*RIGHTS[Part.CLIENT].get(right, ()), *RIGHTS[Part.WORKER].get(right, ()), *PEOPLE.get(right, ()))
        )
    )
    for right in ("insert", "update", REQUESTERS, "delete")
}
"""The API does what clients and remote workers ask for and changes people, for one tenant in each transaction."""


def grants(role: str, part: Part, *, database: str, schema: str = DEFAULT) -> list[str]:
    """The statements that give a role the rights of this part, one after the other.

    >>> grants("app", Part.WORKER, database="shop")[0]
    'grant connect on database shop to app;'
    """
    name, where = quoted("the role", role), quoted("the schema", schema)
    said = [
        f"grant connect on database {quoted('the database', database)} to {name};",
        f"grant usage on schema {where} to {name};",
    ]
    if part is Part.API:
        # Each policy that is not there yet would be a notice.
        said.append("set client_min_messages = warning;")
        # First of all, so that no right precedes its limit.
        said.append(f"select {where}.stepkeep_confine({_literal(where)}, {_literal(name)});")
        said.append(f"grant select on {_listed(where, tables_of(part))} to {name};")
        said.append(f"grant execute on function {_listed(where, FUNCTIONS)} to {name};")
    else:
        said.append(f"grant select on all tables in schema {where} to {name};")
    for right, tables in RIGHTS[part].items():
        said.append(f"grant {right} on {_listed(where, tables)} to {name};")
    return said


def tables_of(part: Part) -> tuple[str, ...]:
    """The tables that a part writes, and those that it only reads. Views are not among them: a view reads with the
    rights of its owner, who sees all tenants."""
    written = (table for tables in RIGHTS[part].values() for table in tables)
    return tuple(dict.fromkeys((*written, *ONLY_READ)))


def _listed(where: str, names: tuple[str, ...]) -> str:
    return ", ".join(f"{where}.{name}" for name in names)


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def quoted(what: str, name: str) -> str:
    """An identifier as it stands in a statement."""
    if not 0 < len(name.encode()) <= MAX_NAME_BYTES or not name.isprintable():
        raise InvalidInput(f"{what} must have 1 to {MAX_NAME_BYTES} bytes of printable characters")
    return name if _PLAIN.fullmatch(name) else '"' + name.replace('"', '""') + '"'
