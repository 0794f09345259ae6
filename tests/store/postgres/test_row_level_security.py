"""Row-level security for the role of the API: complete, on in each transaction, and not for the role to switch off."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import asyncpg
import psycopg
import pytest
from tests.confined import ROLE, as_role, confine, unprotected

import stepkeep as sk
from stepkeep.engine import AsyncEngine
from stepkeep.kernel.errors import InvalidInput, PermissionDenied, StoreError
from stepkeep.store.postgres.connections import PLANNER, fetch
from stepkeep.store.postgres.grants import Part, tables_of
from stepkeep.store.postgres.load import SQL
from stepkeep.store.postgres.store import PostgresStore
from stepkeep_lab.postgres import PostgresServer

pytestmark = pytest.mark.postgres

WITHOUT_TENANT = {"migrations"}
WHAT_TO_DO = (
    "A table needs a column `tenant`, the first of its primary key: stepkeep_confine protects each table that has one."
    " A table that belongs to no tenant goes into WITHOUT_TENANT here. What the API writes to it goes into RIGHTS of"
    " src/stepkeep/store/postgres/grants.py, and what it only reads into ONLY_READ."
)
NOT_EXPLAINED = {"create_migrations"}
Session = psycopg.Connection[tuple[Any, ...]]


@contextmanager
def session(dsn: str, tenant: str | None = None) -> Iterator[Session]:
    with psycopg.connect(dsn, options="-c search_path=stepkeep,pg_temp") as connection:
        if tenant is not None:
            connection.execute("select set_config('stepkeep.tenant', %s, true)", (tenant,))
        yield connection


@pytest.fixture(scope="module")
def api(postgres_server: PostgresServer) -> Iterator[tuple[str, str]]:
    """The DSNs of the owner and of the API, for tests that change nothing. Two tenants have rows in three tables."""
    with postgres_server.fresh_database() as dsn:
        yield furnish(dsn)


@pytest.fixture
def own_api(unused_postgres_dsn: str) -> tuple[str, str]:
    """The same for a test that changes something."""
    return furnish(unused_postgres_dsn)


def furnish(dsn: str) -> tuple[str, str]:
    with session(dsn) as owner:
        for tenant in ("acme", "rival"):
            owner.execute("insert into tenants values (%s, 'allowed', 1, 'root')", (tenant,))
            owner.execute(
                "insert into api_keys (tenant, id, owner, secret_hash, scopes, created_at, created_by)"
                " values (%s, %s, 'ann', repeat('0', 64), '[]', 1, 'root')",
                (tenant, f"key of {tenant}"),
            )
            owner.execute(
                "insert into quarantine (tenant, run_id, quarantined_at, quarantined_by, reason)"
                " values (%s, gen_random_uuid(), 1, 'ann', 'why')",
                (tenant,),
            )
    return dsn, confine(dsn)


# -- complete --------------------------------------------------------------------------------------------------------
def test_every_table_has_a_policy_for_the_api(api: tuple[str, str]) -> None:
    owner, _ = api
    assert unprotected(owner) == WITHOUT_TENANT, WHAT_TO_DO


def test_the_api_may_read_every_table_that_is_protected_and_no_other_relation(api: tuple[str, str]) -> None:
    owner, _ = api
    with session(owner) as connection:
        found = connection.execute(
            "select relname from pg_class where relnamespace = 'stepkeep'::regnamespace"
            " and relkind in ('r', 'p', 'v', 'm') and has_table_privilege(%s, oid, 'select')",
            (ROLE,),
        )
        readable = {str(name) for (name,) in found}
        tables = {
            str(name)
            for (name,) in connection.execute(
                "select relname from pg_class where relnamespace = 'stepkeep'::regnamespace"
                " and relkind in ('r', 'p') and not relispartition"
            )
        }
    assert readable == tables == set(tables_of(Part.API)), WHAT_TO_DO


def test_a_table_without_a_policy_is_found(own_api: tuple[str, str]) -> None:
    owner, _ = own_api
    with session(owner) as connection:
        connection.execute("create table stray (id integer)")
        connection.execute("create table late (tenant text, id integer)")
        connection.execute("drop policy stepkeep_own_tenant on steps")
        connection.execute("alter table runs no force row level security")
    assert unprotected(owner) == {"late", "runs", "steps", "stray"} | WITHOUT_TENANT
    # The grants that follow an upgrade protect what has a tenant.
    confine(owner)
    assert unprotected(owner) == {"stray"} | WITHOUT_TENANT


def test_confining_a_second_role_leaves_the_first_confined(own_api: tuple[str, str]) -> None:
    owner, first = own_api
    second = confine(owner, "Second-api")
    assert unprotected(owner) == unprotected(owner, '"Second-api"') == WITHOUT_TENANT
    for role in (first, second):
        with session(role, "rival") as connection:
            assert connection.execute("select name from tenants").fetchall() == [("rival",)]


def test_confining_again_locks_no_table(api: tuple[str, str]) -> None:
    owner, _ = api
    with session(owner) as busy, session(owner) as again:
        busy.execute("select * from runs, steps, journal")
        again.execute("set local lock_timeout = '10ms'")
        assert again.execute("select stepkeep_confine('stepkeep', %s)", (ROLE,)).fetchone() == (0,)


@pytest.mark.parametrize(
    ("making", "said"),
    [
        ("alter role stepkeep_strong superuser", "bypasses row-level security"),
        ("alter role stepkeep_strong bypassrls", "bypasses row-level security"),
        ("grant postgres to stepkeep_strong", "owns the tables"),
    ],
)
def test_a_role_that_would_not_be_confined_is_refused(unused_postgres_dsn: str, making: str, said: str) -> None:
    with session(unused_postgres_dsn) as connection:
        connection.execute("create role stepkeep_strong login")
        connection.execute(making)
        with pytest.raises(psycopg.errors.RaiseException, match=said):
            connection.execute("select stepkeep_confine('stepkeep', 'stepkeep_strong')")
        connection.rollback()


# -- on --------------------------------------------------------------------------------------------------------------
def test_the_api_sees_and_writes_rows_of_its_tenant_alone(own_api: tuple[str, str]) -> None:
    owner, confined = own_api
    with session(confined, "acme") as connection:
        assert connection.execute("select name from tenants").fetchall() == [("acme",)]
        assert connection.execute("select id from api_keys").fetchall() == [("key of acme",)]
        assert connection.execute("update api_keys set expires_at = 7").rowcount == 1
        assert connection.execute("update tenants set created_by = 'eve' where name = 'rival'").rowcount == 0
        for intruding in (
            "insert into tenants values ('third', 'allowed', 1, 'eve')",
            "insert into quota_scopes values ('rival', 'tenant')",
            "update tenants set name = 'rival'",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege), connection.transaction():
                connection.execute(intruding.encode())
    with session(owner) as connection:
        assert connection.execute("select id, expires_at from api_keys order by id").fetchall() == [
            ("key of acme", 7),
            ("key of rival", None),
        ]


@pytest.mark.parametrize("setting", [None, ""])
def test_without_a_tenant_every_table_refuses(api: tuple[str, str], setting: str | None) -> None:
    """A table without a row and without an index by tenant would answer with no row, and has one here for that."""
    _, confined = api
    refused = set()
    with session(confined, setting) as connection:
        for table in tables_of(Part.API):
            try:
                with connection.transaction():
                    connection.execute(f"select * from {table}".encode()).fetchall()
            except psycopg.errors.InsufficientPrivilege as problem:
                refused.add((table, problem.diag.message_primary))
    unset = "the setting stepkeep.tenant is not set in this transaction"
    assert refused == {(table, unset) for table in tables_of(Part.API) if table not in WITHOUT_TENANT}


def test_the_tenant_of_a_transaction_ends_with_it(api: tuple[str, str]) -> None:
    _, confined = api
    with session(confined, "acme") as connection:
        connection.execute("select * from tenants")
        connection.commit()
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="is not set"):
            connection.execute("select * from tenants")


# -- not to be switched off ------------------------------------------------------------------------------------------
ESCAPES = {
    "policies": "drop policy stepkeep_own_tenant on runs",
    "another policy": "create policy mine on runs using (true)",
    "security": "alter table runs disable row level security",
    "force": "alter table runs no force row level security",
    "owner": "alter table runs owner to current_user",
    "role": "set role postgres",
    "session": "set session authorization postgres",
    "bypass": f"alter role {ROLE} bypassrls",
    "function": "create or replace function stepkeep_tenant() returns text language sql return 'rival'",
    "table": "create table more (id integer)",
    "view": "select * from run_view",
    "partition": "select * from journal_default",
    "triggers": "set session_replication_role = replica",
    "another role": "select stepkeep_confine('stepkeep', 'pg_monitor')",
    "truncation": "truncate audit",
    "record": "delete from journal",
    "files": "copy tenants to '/dev/null'",
}


@pytest.mark.parametrize("escape", ESCAPES)
def test_the_api_cannot_leave_its_confinement(api: tuple[str, str], escape: str) -> None:
    _, confined = api
    with session(confined, "acme") as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute(ESCAPES[escape].encode())


def test_row_security_off_is_an_error_and_not_a_way_out(api: tuple[str, str]) -> None:
    _, confined = api
    with session(confined, "acme") as connection:
        connection.execute("set row_security = off")
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"):
            connection.execute("select * from tenants")


def test_no_search_path_reaches_into_the_functions(api: tuple[str, str]) -> None:
    _, confined = api
    with session(confined, "acme") as connection:
        for statement in (
            "create temp table api_keys (tenant text, id text)",
            "insert into pg_temp.api_keys values ('forged', 'key of rival')",
            "create temp table tenants (name text)",
            "insert into pg_temp.tenants values ('forged')",
            "set search_path = pg_temp, stepkeep",
        ):
            connection.execute(statement.encode())
        asked = "select stepkeep_tenant_of_key('key of rival'), array(select stepkeep_tenant_names(10))"
        assert connection.execute(asked.encode()).fetchone() == ("rival", ["acme", "rival"])


def test_the_functions_across_tenants_tell_names_only_and_are_for_the_api(api: tuple[str, str]) -> None:
    owner, confined = api
    with session(confined) as connection:
        asked = "select stepkeep_tenant_of_key('key of rival'), stepkeep_tenant_of_key('nothing')"
        assert connection.execute(asked.encode()).fetchone() == ("rival", None)
    with session(owner) as connection:
        found = connection.execute(
            "select proname, has_function_privilege('pg_monitor', oid, 'execute'), proconfig, prorettype::regtype::text"
            " from pg_proc where prosecdef and pronamespace = 'stepkeep'::regnamespace order by proname"
        ).fetchall()
    safe = ["search_path=pg_catalog, pg_temp"]
    assert found == [
        ("stepkeep_tenant_names", False, safe, "text"),
        ("stepkeep_tenant_of_key", False, safe, "text"),
        ("stepkeep_tenant_of_session", False, safe, "text"),
    ]


def test_other_roles_go_on_to_see_all_tenants(own_api: tuple[str, str]) -> None:
    owner, _ = own_api
    with session(owner) as connection:
        connection.execute("create role stepkeep_test_reader login")
        connection.execute("grant usage on schema stepkeep to stepkeep_test_reader")
        connection.execute("grant select on all tables in schema stepkeep to stepkeep_test_reader")
        connection.commit()
        try:
            with session(as_role(owner, "stepkeep_test_reader")) as reader:
                assert reader.execute("select count(*) from tenants").fetchone() == (2,)
                assert reader.execute("select count(*) from run_view").fetchone() == (0,)
        finally:
            connection.execute("drop owned by stepkeep_test_reader")
            connection.execute("drop role stepkeep_test_reader")


def test_no_statement_of_another_role_changes_its_plan(unused_postgres_dsn: str) -> None:
    """The policy `true` of workers and of the owner is folded away."""
    dsn = unused_postgres_dsn
    settings = " ".join(f"-c {name}={value}" for name, value in PLANNER.items())

    def plans() -> dict[str, list[Any]]:
        found = {}
        options = f"-c search_path=stepkeep,pg_temp {settings}"
        with psycopg.connect(as_role(dsn, "stepkeep_test_worker"), options=options, autocommit=True) as worker:
            for name, statement in vars(SQL).items():
                if name not in NOT_EXPLAINED:
                    told = worker.execute(f"explain (generic_plan, costs off) {statement}".encode()).fetchall()
                    found[name] = [in_any_order(line) for (line,) in told]
        return found

    def in_any_order(line: str) -> str | list[str]:
        """A filter may check its conditions, and the sides of an equation, in another order. A part of JSON may be
        relabelled as a text, which costs nothing."""
        is_loose = "Filter:" in line or "value ->> " in line
        return sorted(re.findall(r"[^\s()]+", line.replace("::text", ""))) if is_loose else line

    with session(dsn) as owner:
        if owner.info.server_version < 160_000:
            pytest.skip("EXPLAIN (GENERIC_PLAN) is new in PostgreSQL 16")
        owner.execute("create role stepkeep_test_worker login")
        owner.execute("grant usage on schema stepkeep to stepkeep_test_worker")
        owner.execute("grant select, insert, update, delete on all tables in schema stepkeep to stepkeep_test_worker")
        owner.execute("grant execute on all functions in schema stepkeep to stepkeep_test_worker")
        owner.commit()
        try:
            before = plans()
            confine(dsn)
            assert len(before) > 200
            assert plans() == before
        finally:
            owner.execute("drop owned by stepkeep_test_worker")
            owner.execute("drop role stepkeep_test_worker")


def test_a_database_without_such_a_role_has_no_row_level_security(unused_postgres_dsn: str) -> None:
    """Installations with one role keep their plans, and `pg_dump` by the owner."""
    with session(unused_postgres_dsn) as connection:
        found = connection.execute("select count(*) from pg_class where relrowsecurity").fetchone()
        assert found == (0,)
        assert connection.execute("select count(*) from pg_policy").fetchone() == (0,)


# -- the store -------------------------------------------------------------------------------------------------------
@asynccontextmanager
async def opened(url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(url)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def test_a_store_without_a_tenant_is_refused_by_the_database(api: tuple[str, str]) -> None:
    async with opened(api[1]) as store:
        with pytest.raises(StoreError, match="without a tenant"):
            await store.people.list_keys("acme")
        with pytest.raises(StoreError, match="without a tenant"):
            await store.drop_mailbox("acme", "k")


async def test_a_store_finds_keys_of_any_tenant_and_reads_them_as_that_tenant(api: tuple[str, str]) -> None:
    async with opened(api[1]) as store:
        store.confine_to("acme")
        for tenant in ("acme", "rival"):
            found = await store.people.find_key(f"key of {tenant}")
            assert found is not None
            assert found.tenant == tenant
        assert await store.people.find_key("nothing") is None
        assert await store.people.find_session("nothing") is None
        assert await store.people.list_tenant_names() == ["acme", "rival"]
        assert [one.id for one in await store.people.list_keys("rival")] == []
        rival = store.for_tenant("rival")
        assert [one.id for one in await rival.people.list_keys("rival")] == ["key of rival"]
        assert rival.for_tenant("rival") is rival is store.for_tenant("rival")
        assert rival.for_tenant("acme").tenant == "acme"


async def test_the_store_of_another_role_is_the_same_for_all_tenants(api: tuple[str, str]) -> None:
    async with opened(api[0]) as store:
        store.confine_to("acme")
        assert store.for_tenant("rival") is store
        assert store.entering == ""


async def test_no_connection_carries_a_tenant_to_the_next_transaction(api: tuple[str, str]) -> None:
    """Two tenants share one connection of each pool; transactions fail and are cancelled in the middle."""

    async def stall(store: PostgresStore, entered: asyncio.Event) -> None:
        async with store._transaction() as connection:
            entered.set()
            await fetch(connection, "select pg_sleep(30)")

    async def fail(store: PostgresStore) -> None:
        async with store._transaction() as connection:
            await fetch(connection, "select 1 / 0")

    async with opened(f"{api[1]}&pool_size=1") as store:
        views = [store.for_tenant(name) for name in ("acme", "rival", "O'Neil; drop table runs --", "\u00e9\u4e2d")]
        for round_no in range(8):
            view = views[round_no % len(views)]
            entered = asyncio.Event()
            stalled = asyncio.create_task(stall(view, entered))
            await entered.wait()
            stalled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await stalled
            with pytest.raises(InvalidInput):
                await fail(view)
            for other in views:
                names = [row.name for row in await other.people.list_tenants()]
                assert names == [name for name in ("acme", "rival") if name == other.tenant]
            with pytest.raises(StoreError, match="without a tenant"):
                await store.people.list_tenants()
            for pool in (store._engine, store._readers):
                async with pool.connection() as connection:
                    [(left,)] = await fetch(connection, "select current_setting('stepkeep.tenant', true)")
                    assert left in (None, "")


async def test_a_transaction_with_user_code_names_the_tenant_of_its_store(own_api: tuple[str, str]) -> None:
    async with AsyncEngine(own_api[1], tenant="rival", actor="ann") as engine:
        workflow = sk.Workflow("mine")
        workflow.approval("sign")
        await engine.publish(workflow)
        connection = await asyncpg.connect(own_api[1])
        try:
            async with connection.transaction():
                started = await engine.start("mine", connection=connection)
        finally:
            await connection.close()
        assert [run["id"] for run in (await engine.runs())["runs"]] == [started.run_id]
    async with AsyncEngine(own_api[1], tenant="acme", actor="ann") as engine:
        assert (await engine.runs())["runs"] == []


@pytest.mark.parametrize(
    ("change", "back", "said"),
    [
        (f"grant select on run_view to {ROLE}", "", "may use run_view without a policy"),
        (f"create table stray (id int); grant insert on stray to {ROLE}", "", "may use stray without a policy"),
        (f"alter role {ROLE} bypassrls", f"alter role {ROLE} nobypassrls", "bypasses row-level security"),
    ],
)
async def test_a_role_that_is_not_wholly_confined_is_refused_when_the_store_opens(
    own_api: tuple[str, str], change: str, back: str, said: str
) -> None:
    owner, confined = own_api
    with session(owner) as connection:
        connection.execute(change.encode())
    try:
        with pytest.raises(PermissionDenied, match=said):
            await PostgresStore(confined).open()
    finally:
        with session(owner) as connection:
            connection.execute((back or "select 1").encode())
