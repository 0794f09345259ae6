"""One description of columns for both stores: the databases and the statements agree with it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import apsw
import asyncpg
import msgspec
import pytest

from stepkeep.kernel.machine.journal import SealedEntry
from stepkeep.kernel.machine.rows import (
    HOT_OF_RUN,
    HOT_OF_STEP,
    Attempt,
    Checkpoint,
    Child,
    Details,
    Gate,
    Message,
    OutboxEntry,
    Run,
    Step,
    Vote,
    Worker,
)
from stepkeep.store.change import IdempotencyKey, StoredDefinition, StoredPolicy, StoredSchema, StoredSetting
from stepkeep.store.columns import TABLES, Column, Kind, columns_of, reader
from stepkeep.store.connect import migrate
from stepkeep.store.principals import (
    ApiKey,
    DelegationRow,
    MembershipRow,
    Principal,
    SealedPeopleEntry,
    SessionRow,
    TenantRow,
)
from stepkeep.store.records import SignedHead
from stepkeep.store.rows import (
    AdoptionRow,
    AuditHead,
    AuditRow,
    Backfill,
    ChainedRow,
    Conversation,
    ConversationItem,
    Delivery,
    Firing,
    HoldRow,
    Job,
    JobRun,
    LimitHold,
    LimitKeyRow,
    LimitWait,
    MailboxMessage,
    SinkRow,
    SlotRow,
    StreamRow,
    TriggerRow,
)
from stepkeep.store.statements import load_statements

NO_FIELD = {"journal": {"xact"}}
NO_FIELD_OF_SQLITE = {"journal": {"place"}}
"""Columns that the database fills and no row has: an entry is sealed before its transaction has a number."""

SQLITE_TYPES = {Kind.NUMBER: "INTEGER", Kind.BYTES: "BLOB"}
POSTGRES_TYPES = {Kind.NUMBER: {"integer", "bigint"}, Kind.BYTES: {"bytea"}, Kind.RUN: {"uuid"}}


def names(row: type[msgspec.Struct], without: int = 0) -> list[str]:
    return [column.name for column in columns_of(row)][without:]


# -- the databases -----------------------------------------------------------------------------------------------------


async def test_the_tables_of_sqlite_have_the_described_columns(tmp_path: Path) -> None:
    await migrate(f"sqlite:///{tmp_path}/s.db")
    file = apsw.Connection(f"{tmp_path}/s.db")
    for table, row in TABLES.items():
        found = {
            name: (kind.upper(), not (required or key))
            for _, name, kind, required, _, key in file.execute(f"pragma table_info({table})")
            if name not in NO_FIELD_OF_SQLITE.get(table, ())
        }
        assert found == {
            column.name: (SQLITE_TYPES.get(column.kind, "TEXT"), column.is_nullable) for column in columns_of(row)
        }, table
    file.close()


@pytest.mark.postgres
async def test_the_tables_of_postgresql_have_the_described_columns(postgres_dsn: str) -> None:
    server = await asyncpg.connect(postgres_dsn)
    for table, row in TABLES.items():
        found = await server.fetch(
            "select column_name::text, data_type::text, is_nullable = 'YES' from information_schema.columns"
            " where table_schema = 'stepkeep' and table_name = $1",
            table,
        )
        held = {name: (kind, is_nullable) for name, kind, is_nullable in found}
        assert set(held) == set(names(row)) | NO_FIELD.get(table, set()), table
        for column in columns_of(row):
            kind, is_nullable = held[column.name]
            assert kind in POSTGRES_TYPES.get(column.kind, {"text"}), (table, column)
            assert is_nullable == column.is_nullable, (table, column)
    await server.close()


# -- what statements answer --------------------------------------------------------------------------------------------

ALIKE = {
    Worker: ("read_worker", "list_workers", "list_living_workers", "find_worker", "silent_workers", "beat_worker"),
    StoredDefinition: ("read_definition", "load_definitions", "list_definitions"),
    StoredSchema: ("read_schema", "list_schemas"),
    Attempt: ("read_attempts", "read_attempts_of"),
    Checkpoint: ("read_checkpoints", "newest_checkpoints", "read_checkpoints_of"),
    Message: ("read_messages", "read_messages_of"),
    MailboxMessage: ("list_mailbox", "list_mailbox_of", "load_kept_messages", "load_mailbox_messages"),
    OutboxEntry: ("read_outbox", "read_outbox_of", "read_outbox_after"),
    Child: ("find_due_children", "read_children", "read_child_link"),
    Gate: ("read_gates", "read_gates_of", "list_open_gates"),
    AdoptionRow: ("load_adoptions",),
    SlotRow: ("read_slot",),
    HoldRow: ("read_resource_holds",),
    LimitHold: ("read_limit_holds",),
    LimitWait: ("read_limit_waits",),
    Vote: ("read_decisions", "read_decisions_of"),
    SealedEntry: ("read_journal", "read_journal_of"),
    StreamRow: ("read_stream_rows", "read_new_stream_rows"),
    SignedHead: ("read_signed_heads",),
    Details: ("read_details",),
    IdempotencyKey: ("load_idempotency_keys",),
    StoredSetting: ("read_setting", "list_settings"),
    StoredPolicy: ("read_policy", "list_policies", "load_policies", "load_revisions"),
    TenantRow: ("list_tenants", "read_tenant"),
    Principal: ("list_principals", "find_principal"),
    MembershipRow: ("read_memberships", "read_members", "list_memberships", "load_memberships"),
    DelegationRow: ("read_delegations", "list_delegations", "list_all_delegations", "load_delegations"),
    ApiKey: ("list_keys", "find_key", "load_keys"),
    SessionRow: ("find_session", "list_sessions"),
    AuditRow: ("read_audit", "read_audit_of_actor", "read_audit_of_target"),
    ChainedRow: ("read_audit_chain",),
    AuditHead: ("read_audit_head",),
    TriggerRow: (
        "read_trigger",
        "lock_triggers",
        "list_triggers",
        "list_triggers_of_workflow",
        "list_triggers_of_kind",
    ),
    Firing: ("list_firings", "read_firings", "find_firings_of"),
    Backfill: ("list_backfills", "read_backfill", "list_backfills_of_tenant"),
    Job: ("claim_job", "read_job", "find_job_by_key", "list_jobs"),
    JobRun: ("list_job_runs",),
    SealedPeopleEntry: (
        *("read_people_head", "read_people_journal", "read_people_journal_of"),
        "read_people_journal_before",
    ),
    Conversation: ("list_conversations", "read_conversation"),
    ConversationItem: ("read_conversation_items", "read_newest_conversation_items", "find_conversation_items"),
    SinkRow: ("list_sinks",),
    Delivery: ("claim_deliveries", "read_deliveries", "list_open_deliveries", "list_dead_deliveries"),
}
RECORD = [*names(Run), *names(Details, 2)]
STEPS = (names(Step), ["place", *names(Step, 2)])
ANSWERS: dict[str, tuple[list[str], list[str]]] = {
    **{statement: (names(row), names(row)) for row, statements in ALIKE.items() for statement in statements},
    **dict.fromkeys(("read_run", "read_runs"), (RECORD, RECORD)),
    **dict.fromkeys(("load_all_steps", "load_waiting_steps", "load_claimable"), STEPS),
    "load_requesters": (["tenant", "run_id", "created_by", "asked_before"], ["place", "created_by", "asked_before"]),
    "find_slot_waiters": ([*names(SlotRow), "state"],) * 2,
    "lock_limit_keys": ([], names(LimitKeyRow)),
    "find_parked_steps": (["tenant", "run_id", "no", "definition_id"],) * 2,
    "find_due_limit_lines": ([*names(LimitKeyRow)[:3], "queue", "due_at", *names(LimitKeyRow, 3)],) * 2,
    **dict.fromkeys(("read_watched_firings", "read_endings"), ([*names(Firing), "run_state"],) * 2),
    **dict.fromkeys(
        ("read_worker_journal", "read_worker_entries"), (["tenant", "worker_id", *names(SealedEntry, 2)],) * 2
    ),
    "read_tail": (
        [*names(SealedEntry), "place", "overtakes"],
        [*names(SealedEntry), "xact", "overtakes"],
    ),
    "read_steps": (names(Step), names(Step, 2)),
    "load_steps": (names(Step), ["place", *names(Step, 3)]),
    "load_inbox": (names(Message), ["place", *names(Message, 2)]),
    "lock_runs": ([*names(Run), "?column?"], ["now", "place", *names(Run, 2), "?column?"]),
    "propose_steps": ([], ["now", "tenant", "run_id", *names(Run, 2)]),
    "find_claimable": ([], ["now", "tenant", "run_id", *names(Step, 2), *names(Run, 2)]),
}
"""The columns that each statement answers with, on SQLite and on PostgreSQL, in the order in which they are read."""


async def test_statements_of_sqlite_answer_in_the_described_order(tmp_path: Path) -> None:
    await migrate(f"sqlite:///{tmp_path}/s.db")
    file = apsw.Connection(f"{tmp_path}/s.db")
    answered: list[str] = []

    def note(cursor: apsw.Cursor, *_: object) -> bool:
        answered[:] = [name for name, *_ in cursor.getdescription()]
        return True

    file.exec_trace = note
    for statement, (expected, _) in ANSWERS.items():
        if expected:
            text = getattr(load_statements("stepkeep.store.sqlite"), statement)
            file.execute(text, (0,) * max(int(number) for number in re.findall(r"\?(\d+)", text)))
            if "?column?" in expected:
                answered[-1] = "?column?"
            assert answered == expected, statement
    file.close()


@pytest.mark.postgres
async def test_statements_of_postgresql_answer_in_the_described_order(postgres_dsn: str) -> None:
    server = await asyncpg.connect(postgres_dsn)
    statements = load_statements("stepkeep.store.postgres")
    for statement, (_, expected) in ANSWERS.items():
        prepared = await server.prepare(getattr(statements, statement))
        answered = [attribute.name.replace("given_key", "business_key") for attribute in prepared.get_attributes()]
        assert answered == expected, statement
    await server.close()


def test_every_statement_that_reads_a_described_table_is_checked() -> None:
    """A statement that selects more than a few columns of a table feeds a reader, and is in the list above."""
    for store in ("sqlite", "postgres"):
        for name, text in vars(load_statements(f"stepkeep.store.{store}")).items():
            rest = [set(names(row, 3)) for row in TABLES.values()]
            wide = any(len(some) > 1 and some <= words(text) for some in rest)
            is_read = wide and not name.startswith(("insert_", "update_", "write_", "save_"))
            assert not is_read or name in ANSWERS, (store, name)


def words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))


# -- what statements take ----------------------------------------------------------------------------------------------

INSERT = re.compile(r"insert into (\w+) \(([^)]*)\)\s*(?:values\s*\(([^)]*)\)|select (.*?)\s+from )", re.DOTALL)
ASSIGNED = re.compile(r"\b(\w+) (?:=|is|>=) (?:max\(\w+, )?\?(\d+)")


def inserts(store: str) -> Iterator[tuple[str, type[msgspec.Struct], list[str], str]]:
    for name, text in vars(load_statements(f"stepkeep.store.{store}")).items():
        for table, columns, values, selected in INSERT.findall(text):
            if table in TABLES:
                yield name, TABLES[table], re.split(r",\s*", columns.strip()), values or selected


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_rows_are_inserted_in_the_described_order(store: str) -> None:
    seen = set()
    for name, row, columns, values in inserts(store):
        seen.add(row)
        left_out = {Worker: {"no"}, StoredDefinition: {"id"}}.get(row, set())
        if (name, row) == ("write_hot_columns", Attempt):
            left_out = {"category", "error"}
        if row is Delivery and name != "insert_deliveries":
            left_out = {"attempts", "fence", "lease_until", "holder", "dead_at", "error"}
            left_out |= set() if name == "emit_worker_deliveries" else {"target"}
        if row is Firing and name != "save_firing":
            left_out = {"run_id", "backfill", "reason", "given"}
        in_order = [one for one in names(row) if one not in left_out]
        if row is StoredDefinition:
            assert set(columns) == set(in_order), name
        else:
            assert columns == in_order, name
        if set(values) <= set("?, "):
            assert values.count("?") == len(columns), name
    assert seen == set(TABLES.values())


@pytest.mark.parametrize(("statement", "row"), [("insert_messages", Message), ("insert_outbox", OutboxEntry)])
def test_arrays_of_columns_are_unpacked_in_the_described_order(statement: str, row: type[msgspec.Struct]) -> None:
    [unpacked] = re.findall(r"as \w+ \(([^)]*)\)$", getattr(load_statements("stepkeep.store.postgres"), statement))
    assert unpacked.replace("payload_from, payload_for", "payload").split(", ") == ["\n    tenant", *names(row, 1)]


def test_the_updates_of_sqlite_number_their_parameters_in_the_described_order() -> None:
    statements = load_statements("stepkeep.store.sqlite")
    hot = ["tenant", "run_id", "no", *(one for one in names(Step) if one in HOT_OF_STEP - {"ready_at"})]
    for name, order in {
        "update_runs": names(Run),
        "update_run_unindexed_columns": names(Run),
        "update_steps": names(Step),
        "update_standing_steps": names(Step),
        "update_step_hot_columns": hot,
        "update_worker": [one for one in names(Worker) if one != "no"],
    }.items():
        text = getattr(statements, name).replace("\n", " ")
        numbered = {int(number): column for column, number in ASSIGNED.findall(text.split(" and not exists")[0])}
        assert [numbered[place] for place in range(1, len(order) + 1)] == order, name


NUMBERED = re.compile(
    r"select \$2::text(?: as tenant)?, ((?:[^$]|\$1\b)*?)\s+from \(select .*?cardinality\(n\) - 1, (\d+)\)", re.DOTALL
)
WRITTEN = {
    "write_hot": (
        ["id", "was", *names(Run, 3)],
        names(Step, 1),
        names(Attempt, 1),
        names(SealedEntry, 1),
        names(Step, 1),
    ),
    "write_hot_columns": (
        ["id", "was", *(one for one in names(Run) if one in HOT_OF_RUN)],
        ["run_id", "no", *(one for one in names(Step) if one in HOT_OF_STEP)],
        [one for one in names(Attempt, 1) if one not in ("category", "error")],
        names(SealedEntry, 1),
    ),
    "insert_runs": (names(Details, 1), names(Step, 1), names(SealedEntry, 1), names(Run, 1)),
}
ROWS = {
    "write_hot": (Run, Step, Attempt, SealedEntry, Step),
    "write_hot_columns": (Run, Step, Attempt, SealedEntry),
    "insert_runs": (Details, Step, SealedEntry, Run),
}
DECODED = {
    Kind.NUMBER: "n[i + {}]",
    Kind.WORD: "word[n[i + {}]]",
    Kind.RUN: "run[n[i + {}]]",
    Kind.TEXT: "stepkeep_text($1, n[i + {}])",
    Kind.NOTE: "stepkeep_text($1, n[i + {}])",
    Kind.BYTES: "stepkeep_part($1, n[i + {}])",
}


def expression(column: Column | None, place: int) -> str:
    if column is None:
        return f"n[i + {place}]"
    decoded = DECODED[column.kind].format(place)
    return f"nullif({decoded}, -1)" if column.kind is Kind.NUMBER and column.is_nullable else decoded


@pytest.mark.parametrize("statement", WRITTEN)
def test_every_number_of_a_hot_row_is_read_from_its_place(statement: str) -> None:
    """The statement reads the numbers in the order and the way in which `parameters` writes them."""
    text = getattr(load_statements("stepkeep.store.postgres"), statement)
    parts = NUMBERED.findall(text)
    assert len(parts) == len(WRITTEN[statement])
    for (selected, stride), order, row in zip(parts, WRITTEN[statement], ROWS[statement], strict=True):
        columns = {column.name: column for column in columns_of(row)}
        read = re.sub(r"\s+", " ", selected).replace("::int", "").strip()
        expected = [expression(columns.get(name), place) for place, name in enumerate(order, 1)]
        assert re.sub(r" as \w+", "", read) == ", ".join(expected), (statement, row)
        assert re.findall(r" as (\w+)", read) in ([], order), (statement, row)
        assert int(stride) == len(order)


# -- readers -----------------------------------------------------------------------------------------------------------


def test_a_reader_refuses_a_row_of_another_width_and_a_word_that_does_not_exist() -> None:
    read = reader(OutboxEntry, "tenant", "run_id")
    assert read("acme", "r", (1, 0, "paid", b"{}", 5)) == OutboxEntry(
        tenant="acme", run_id="r", seq=1, number=0, name="paid", payload=b"{}", created_at=5
    )
    for wrong in ((1, 0, "paid", b"{}"), (1, 0, "paid", b"{}", 5, 6)):
        with pytest.raises(ValueError, match="unpack"):
            read("acme", "r", wrong)
    with pytest.raises(KeyError, match="flying"):
        reader(Attempt)(("acme", "r", 0, 1, 1, "flying", 3, 1, 2, None, None, None, None))
