"""The roles that the documentation names: made by its own statements, they can do their part and nothing else."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

import stepkeep as sk
from stepkeep.cli.main import main
from stepkeep.definition.python.registry import HandlerSpec, Registry
from stepkeep.engine import AsyncEngine
from stepkeep.kernel.definition import Definition, Handler, StepDefinition, Undo, Wait
from stepkeep.kernel.errors import LoginRefused, PermissionDenied, SchemaMismatch
from stepkeep.kernel.machine.states import OnFailure, RunState
from stepkeep.operations.pipeline.maintenance import maintain
from stepkeep.store.connect import connect
from stepkeep.store.migrations import earlier_migrations
from stepkeep.store.postgres import schema
from stepkeep.store.postgres.grants import Part, grants, quoted
from stepkeep_lab.postgres import PostgresServer

pytestmark = pytest.mark.postgres

PAGE = Path(__file__).parents[3] / "docs" / "databases.md"
OWNER, WORKER, CLIENT, API = "stepkeep_owner", "stepkeep_worker", "stepkeep_client", "stepkeep_api"
TABLES = {
    *("definitions", "queues", "runs", "run_details", "steps", "attempts", "journal", "messages", "outbox"),
    *("idempotency_keys", "business_keys", "workers", "worker_journal", "migrations", "quarantine"),
    *(
        "worker_reports",
        "attempt_evidence",
        "stream_rows",
        "payload_chunks",
        "schemas",
        "gates",
        "decisions",
        "policies",
    ),
    *("sinks", "deliveries", "delivery_actions"),
    *(
        "tenants",
        "principals",
        "memberships",
        "delegations",
        "api_keys",
        "sessions",
        "people_journal",
        "audit",
        "quota_scopes",
        "quota_runs",
    ),
    *("triggers", "firings", "backfills", "settings", "mailbox", "signed_heads", "jobs", "job_runs"),
    "adoptions",
    *("checkpoints", "conversations", "conversation_items"),
    "audit_heads",
    "slots",
    "resource_holds",
    *("limit_keys", "limit_holds", "limit_waits", "limit_lines"),
    "children",
}


def blocks() -> list[list[str]]:
    """The statements of each SQL block of the page, in order."""
    section = PAGE.read_text().split("## Roles at PostgreSQL")[1].split("\n## ")[0]
    return [block.strip().splitlines() for block in re.findall(r"```sql\n(.*?)```", section, re.DOTALL)]


def as_role(dsn: str, role: str) -> str:
    parts = urlsplit(dsn)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{role}@{host}"))


@asynccontextmanager
async def session(dsn: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    connection = await asyncpg.connect(dsn, server_settings={"search_path": "stepkeep"})
    try:
        yield connection
    finally:
        await connection.close()


async def execute(dsn: str, *statements: str) -> list[str]:
    """Run the statements. Returns the notices that psql would print."""
    notices: list[str] = []
    async with session(dsn) as connection:
        connection.add_log_listener(lambda _, message: notices.append(str(message)))
        for statement in statements:
            await connection.execute(statement)
    return notices


@pytest.fixture
def roles(postgres_server: PostgresServer) -> Iterator[str]:
    """The database of the page with its roles, migrated by the owner and granted as the page says."""
    server = postgres_server.dsn()
    make, take_away, for_worker, for_client, for_api = blocks()

    async def prepare() -> str:
        await execute(server, *make)
        database = postgres_server.dsn("stepkeep")
        await execute(database, *take_away)
        return database

    async def grant(database: str) -> None:
        await execute(as_role(database, OWNER), *for_worker, *for_client, *for_api)

    try:
        database = asyncio.run(prepare())
        assert main(["db", "migrate", "--db", as_role(database, OWNER)]) == 0
        asyncio.run(grant(database))
        yield database
    finally:
        gone = [f"drop role if exists {role}" for role in (OWNER, WORKER, CLIENT, API)]
        asyncio.run(execute(server, "drop database if exists stepkeep with (force)", *gone))


async def test_the_grants_of_the_page_are_given_without_a_notice(roles: str) -> None:
    [*_, for_api] = blocks()
    await execute(as_role(roles, "postgres"), f"drop owned by {API}")
    assert await execute(as_role(roles, OWNER), *for_api) == []


def registry() -> Registry:
    made = Registry()
    made.register(HandlerSpec(name="pay", function=lambda: "paid"))
    made.register(HandlerSpec(name="fail", function=lambda: 1 / 0))
    return made


ORDER = Definition(
    name="order",
    version=1,
    steps=(
        StepDefinition(name="payment", order=0, executor=Handler(name="pay"), undo=Undo(executor=Handler(name="pay"))),
        StepDefinition(name="shipped", order=1, wait=Wait(event="shipped")),
    ),
)
BROKEN = Definition(
    name="broken",
    version=1,
    on_failure=OnFailure.COMPENSATE,
    steps=(
        StepDefinition(name="one", order=0, executor=Handler(name="pay"), undo=Undo(executor=Handler(name="pay"))),
        StepDefinition(name="two", order=1, executor=Handler(name="fail"), on_failure=OnFailure.COMPENSATE),
    ),
)


async def test_a_client_and_a_worker_do_their_parts_with_the_rights_of_the_page(roles: str) -> None:
    async with (
        AsyncEngine(as_role(roles, CLIENT), actor="client") as client,
        AsyncEngine(as_role(roles, WORKER), actor="worker", registry=registry()) as serving,
    ):
        worker = serving.worker(concurrency=4)
        task = asyncio.create_task(worker.serve())
        ordered = await client.start(ORDER, business_key="order-1", idempotency_key="k-1")
        broken = await client.start(BROKEN)
        cancelled = await client.start(ORDER)
        await client.cancel(cancelled.run_id, reason="too late")
        await client.send(ordered.run_id, "shipped", {"by": "post"}, message_id="m-1")
        done = await asyncio.wait_for(client.wait(ordered.run_id), 30)
        undone = await asyncio.wait_for(client.wait(broken.run_id), 60)
        assert (done.state, undone.state) == (RunState.SUCCEEDED, RunState.ROLLED_BACK)
        assert (await client.certify(ordered.run_id)).ok
        assert len(await client.store.list_workers("default")) == 1
        await serving.store.maintain()
        worker.stop()
        await asyncio.wait_for(task, 30)


async def test_a_worker_makes_the_queue_of_a_handler_that_a_flow_alone_calls(roles: str) -> None:
    """No definition names it, so that no client has published its queue."""
    known = sk.Registry()

    @sk.step("roles.rare", capabilities=["rare"], registry=known)
    def rare() -> str:
        return "done"

    @sk.flow("roles.flow", registry=known)
    async def calling(ctx: sk.FlowContext) -> str:
        return str(await ctx.step(rare))

    async with (
        AsyncEngine(as_role(roles, CLIENT), actor="client", registry=known) as client,
        AsyncEngine(as_role(roles, WORKER), actor="worker", registry=known) as serving,
    ):
        worker = serving.worker(concurrency=4, capabilities=["rare"])
        task = asyncio.create_task(worker.serve())
        started = await client.start(calling, {})
        done = await asyncio.wait_for(client.wait(started.run_id), 30)
        assert (done.state, done.output) == (RunState.SUCCEEDED, "done")
        worker.stop()
        await asyncio.wait_for(task, 30)


DDL = ("create table more (id int)", "alter table runs add column more int", "drop table outbox", "truncate journal")
RECORD = (
    "update journal set at = 1",
    "update definitions set version = 2",
    "update attempts set number = 9",
    *(f"delete from {table}" for table in ("runs", "steps", "attempts", "journal", "definitions", "worker_journal")),
    "insert into migrations values (99, 'x', 'x', 1)",
    "drop trigger journal_never_changes on journal",
)
NOT_FOR = {
    WORKER: (
        "insert into definitions (version) values (1)",
        "update queues set spec = 'x'",
    ),
    CLIENT: (
        "insert into workers (tenant) values ('x')",
        "update workers set state = 'shutdown'",
        "insert into worker_journal (tenant) values ('x')",
    ),
}


@pytest.mark.parametrize("role", [WORKER, CLIENT])
async def test_neither_may_change_the_schema_or_the_record_nor_do_the_others_part(roles: str, role: str) -> None:
    let_through = []
    async with session(as_role(roles, role)) as connection:
        for statement in (*DDL, *RECORD, *NOT_FOR[role]):
            try:
                await connection.execute(statement)
            except asyncpg.InsufficientPrivilegeError:
                continue
            let_through.append(statement)
    assert (let_through) == []


def test_the_page_shows_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    for role, part, block in zip((WORKER, CLIENT, API), ("worker", "client", "api"), blocks()[2:], strict=True):
        assert main(["db", "grants", role, "--as", part, "--db", f"postgresql://{OWNER}:secret@host/stepkeep"]) == 0
        remark, *statements = capsys.readouterr().out.splitlines()
        assert remark.startswith("-- CONNECT needs the owner of the database")
        assert statements == block


@pytest.mark.parametrize(
    "arguments",
    [
        ("app", "--as", "owner", "--db", "postgresql://u@h/d"),
        ("app", "--as", "worker", "--db", "sqlite:///x.db"),
        ("app", "--as", "worker", "--db", "postgresql://u@h"),
        ("", "--as", "worker", "--db", "postgresql://u@h/d"),
        ("a\x1bb", "--as", "worker", "--db", "postgresql://u@h/d"),
        ("x" * 64, "--as", "worker", "--db", "postgresql://u@h/d"),
    ],
    ids=str,
)
def test_grants_for_what_there_is_not_are_refused_as_usage(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["db", "grants", *arguments]) == 2
    assert "grant " not in capsys.readouterr().out


def test_odd_names_are_quoted() -> None:
    assert quoted("the role", 'a"b; drop table runs') == '"a""b; drop table runs"'
    assert grants("App", Part.CLIENT, database="my db")[0] == 'grant connect on database "my db" to "App";'


async def test_every_table_is_granted_on_purpose(roles: str) -> None:
    """A new table must be thought of here: `select on all tables` alone may be too little, or too much."""

    async with session(roles) as connection:
        found = await connection.fetch(
            "select relname from pg_class where relnamespace = 'stepkeep'::regnamespace and relkind in ('r', 'p')"
            " and relname !~ '^journal_'"
        )
    assert ({str(name) for (name,) in found}) == TABLES


# -- what is missing is said -----------------------------------------------------------------------------------------
MISSING = {
    "connect": (f"revoke connect on database stepkeep from {WORKER}", "permission denied for database"),
    "usage": (f"revoke usage on schema stepkeep from {WORKER}", "USAGE on the schema stepkeep is missing"),
    "select": (f"revoke select on migrations from {WORKER}", "permission denied for table migrations"),
    "update": (f"revoke update on workers from {WORKER}", "permission denied for table workers"),
}


@pytest.mark.parametrize("right", MISSING)
async def test_a_missing_right_is_named_with_the_role_and_the_remedy(roles: str, right: str) -> None:
    statement, said = MISSING[right]

    await execute(as_role(roles, OWNER), statement)
    with pytest.raises(PermissionDenied) as denied:
        async with AsyncEngine(as_role(roles, WORKER), actor="w") as engine:
            await engine.store.beat("default", 1, 1)
    message = str(denied.value)
    assert f"the role {WORKER} lacks a right" in message
    assert said in message
    assert f"stepkeep db grants {WORKER} --as worker" in message


async def test_the_command_line_says_so_too_and_ends_with_1(roles: str, capsys: pytest.CaptureFixture[str]) -> None:
    await execute(as_role(roles, OWNER), f"revoke select on runs from {CLIENT}")
    assert await asyncio.to_thread(main, ["runs", "--db", as_role(roles, CLIENT)]) == 1
    said = capsys.readouterr().err
    assert f"the role {CLIENT} lacks a right" in said
    assert "should not have happened" not in said


@pytest.mark.parametrize("auto_migrate", [False, True])
async def test_a_database_that_lacks_a_migration_asks_for_its_owner(roles: str, auto_migrate: bool) -> None:
    first = earlier_migrations("stepkeep.store.postgres")[0]
    await execute(as_role(roles, OWNER), "delete from migrations where version > 1")
    lacking = f"update migrations set name = '{first.name}', checksum = '{first.checksum}'"
    await execute(as_role(roles, OWNER), lacking)
    with pytest.raises(PermissionDenied if auto_migrate else SchemaMismatch) as refused:
        async with AsyncEngine(as_role(roles, CLIENT), actor="c", auto_migrate=auto_migrate):
            pytest.fail("it opened")
    message = str(refused.value)
    assert "0002_message_numbers" in message
    assert "stepkeep db migrate" in message
    assert "the owner of the tables" in message


async def test_opening_an_up_to_date_database_writes_nothing(roles: str) -> None:
    """Not even a transaction id is used, so a standby's rules or a lock on the table would not matter.

    The ids are of the whole server, and its own upkeep may use one: what writes uses them every time.
    """
    latest = "select pg_snapshot_xmax(pg_current_snapshot())::text"

    async def writes_nothing() -> bool:
        async with session(roles) as watching, watching.transaction():
            # The lock stands in the way of whoever would create or change the table.
            await watching.execute("lock table migrations in share row exclusive mode")
            before = await watching.fetchval(latest)
            for role in (OWNER, WORKER, CLIENT):
                async with AsyncEngine(as_role(roles, role), actor="x") as engine:
                    assert await engine.runs() is not None
            return bool(before == await watching.fetchval(latest))

    assert any([await writes_nothing() for _ in range(5)])


async def test_a_role_that_may_not_make_weeks_says_which_command_does(
    roles: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "WEEKS_AHEAD", 5)

    async def maintain_as(role: str) -> int:
        store = connect(as_role(roles, role))
        await store.open()
        try:
            await maintain(store)
        finally:
            await store.close()
        async with session(roles) as connection:
            weeks = "select count(*) from pg_class where relname ~ '^journal_[0-9]{8}$' and relkind = 'r'"
            return int(await connection.fetchval(weeks))

    assert await maintain_as(WORKER) == 3
    assert "3 weeks of the journal are missing" in caplog.text
    assert "`stepkeep db maintain` as the owner" in caplog.text
    caplog.clear()
    assert await maintain_as(OWNER) == 6
    assert caplog.text == ""


async def test_a_login_that_is_refused_is_not_waited_for(roles: str) -> None:
    for wrong in (as_role(roles, "nobody_at_all"), roles.replace("/stepkeep?", "/no_such_database?")):
        with pytest.raises(LoginRefused, match="refuses the connection"):
            await asyncio.wait_for(connect(wrong).open(), 30)
