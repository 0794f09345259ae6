"""The engine lives in a schema of its own, in a database that belongs to an application."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import psycopg
import pytest
from tests.operations.test_callers_transaction import greeting
from tests.store.conftest import opened
from tests.store.listening import listening, ready_to_hear
from tests.store.postgres.conftest import session
from tests.store.postgres.test_connections import pooler
from tests.store.test_upgrade import at_version, by_command
from tests.store.values import QUEUE, a_run, load, moved, new_run, ready, run_id, save, want

import stepkeep as sk
from stepkeep.cli.main import main
from stepkeep.kernel.errors import InvalidInput, SchemaMismatch
from stepkeep.store.change import Basis, Loaded, Write
from stepkeep.store.connect import connect, migrate
from stepkeep.store.postgres.namespace import Namespace
from stepkeep.store.protocol import Store

pytestmark = pytest.mark.postgres

RELATIONS = "select count(*) from pg_class where relnamespace = to_regnamespace($1)::oid"


@pytest.fixture
def url(empty_postgres_dsn: str) -> str:
    """A database as an application has it: nothing in it, and a search path that does not know the engine."""

    async def forget() -> None:
        async with session(empty_postgres_dsn) as connection:
            name = await connection.fetchval("select current_database()")
            await connection.execute(f'alter database "{name}" reset search_path')

    asyncio.run(forget())
    return empty_postgres_dsn


async def ask(url: str, question: str, *arguments: Any) -> Any:
    async with session(url) as connection:
        return await connection.fetchval(question, *arguments)


async def bump(store: Store, number: int) -> None:
    def decide(loaded: Loaded) -> Write:
        change, entry = moved(loaded.runs[want(number).key])
        return Write(runs=[change], entries=[entry])

    async with store.transaction() as transaction:
        await transaction.change([want(number)], decide)


# -- where the tables are ----------------------------------------------------------------------------------------------


async def test_tables_of_the_application_with_the_same_names_are_left_alone(url: str) -> None:
    theirs = "create table runs (mine text); create table migrations (id int); insert into runs values ('mine')"
    async with session(url) as application:
        await application.execute(theirs)
    async with opened(url) as store:
        await save(store, new_run(1))
        assert (await load(store, want(1))).runs
        assert (await store.status()).schema == "stepkeep"
    async with session(url) as application:
        assert [row["mine"] for row in await application.fetch("select * from runs")] == ["mine"]
        assert await application.fetchval(RELATIONS, "public") == 2
        assert await application.fetchval("select state from stepkeep.run_view") == "running"


async def test_a_url_names_another_schema(url: str) -> None:
    async with opened(f"{url}&schema=shop_flows") as store:
        await save(store, new_run(1))
        assert (await store.status()).schema == "shop_flows"
    assert await ask(url, "select count(*) from shop_flows.runs") == 1
    assert await ask(url, RELATIONS, "public") == 0
    async with session(url) as application:
        with pytest.raises(asyncpg.CheckViolationError, match="only the journal of a finished run"):
            await application.execute("delete from shop_flows.journal")


async def test_two_installations_in_one_database_share_nothing(url: str) -> None:
    one, other = f"{url}&schema=one", f"{url}&schema=user"
    async with opened(one) as first:
        with pytest.raises(SchemaMismatch, match=r"db migrate --db .*schema=user"):
            async with sk.AsyncEngine(other, actor="a"):
                pytest.fail("it opened")
        async with opened(other) as second:
            with listening(second) as deaf, listening(first) as ear:
                await ready_to_hear(second, deaf)
                await ready_to_hear(first, ear)
                new = Write(new_runs=[new_run(1, (ready(1),))])
                await first.write_if_unchanged(new, Loaded(now=0), Basis.NEW)
                assert await first.read_run(*want(1).key) is not None
                assert await second.read_run(*want(1).key) is None
                assert not await second.has_ready([QUEUE])
                # The second one's own notification comes after all that the server had to deliver before it.
                async with session(url) as somebody:
                    await somebody.execute("notify stepkeep_user, 'later-version queue=8'")
                assert (await deaf.hears()).topics is None
                assert deaf.heard == []


async def test_one_installation_is_maintained_while_another_is_migrated(url: str) -> None:
    async with opened(f"{url}&schema=one") as first, session(url) as somebody:
        await somebody.execute(f"begin; select pg_advisory_xact_lock({Namespace('other').lock})")
        assert (await first.maintain()).put_off == ()
        await somebody.execute(f"select pg_advisory_xact_lock({Namespace('one').lock})")
        assert "another process" in (await first.maintain()).put_off[0]


async def test_only_a_migration_makes_the_schema(url: str) -> None:
    store = connect(url)
    await store.open()
    await store.close()
    assert await ask(url, "select to_regnamespace('stepkeep')") is None


@pytest.mark.parametrize("name", ["", "Shop", "a b", 'x"; drop table runs', "1st", "pg_flows", "x" * 51, "öl"])
def test_a_name_that_is_no_plain_identifier_is_refused(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    url = urlunsplit(urlsplit("postgresql://app@127.0.0.1:1/shop")._replace(query=f"schema={name.replace(' ', '%20')}"))
    with pytest.raises(InvalidInput, match="schema in the database URL must be"):
        connect(url)
    for words in (["db", "status"], ["runs"], ["db", "grants", "app", "--as", "worker"]):
        assert main([*words, "--db", url]) == 2
        said = capsys.readouterr()
        assert "schema in the database URL must be" in said.err
        assert "grant " not in said.out


# -- transactions of the application -----------------------------------------------------------------------------------


async def test_a_change_in_the_users_transaction_leaves_the_search_path_as_it_was(url: str) -> None:
    async with session(url) as application:
        await application.execute("create table runs (mine text)")
    async with opened(url) as store:
        await save(store, new_run(1))

        def decide(loaded: Loaded) -> Write:
            change, entry = moved(loaded.runs[want(1).key])
            return Write(runs=[change], entries=[entry])

        async with store.transaction() as transaction:
            connection = transaction.connection
            assert await connection.fetchval("show search_path") == '"$user", public'
            # A temporary table must not hide one of the engine's.
            await connection.execute("create temp table steps (mine text)")
            await connection.execute("insert into runs values ('mine')")
            await transaction.change([want(1)], decide)
            assert await connection.fetchval("show search_path") == '"$user", public'
            assert await connection.fetchval("select count(*) from runs") == 1
            await connection.execute("drop table pg_temp.steps")
        assert (await load(store, want(1))).runs[want(1).key].seq == 2
    assert await ask(url, "select count(*) from public.runs") == 1


@pytest.mark.parametrize("through", ["asyncpg", "psycopg"])
@pytest.mark.parametrize("named", ["", "&schema=shop_flows"])
async def test_a_run_starts_in_a_transaction_that_does_not_know_the_schema(url: str, through: str, named: str) -> None:
    flow, registry = greeting()
    async with sk.AsyncEngine(f"{url}{named}", registry=registry, actor="a", auto_migrate=True) as engine:
        await engine.publish(flow)
        if through == "asyncpg":
            async with session(url) as connection, connection.transaction():
                await connection.execute("create table orders (id int)")
                started = await engine.start(flow, connection=connection)
                assert await connection.fetchval("show search_path") == '"$user", public'
                await connection.execute("insert into orders values (1)")
        else:
            async with await psycopg.AsyncConnection.connect(url) as caller:
                await caller.execute("create table orders (id int)")
                started = await engine.start(flow, connection=caller)
                await caller.execute("insert into orders values (1)")
        assert (await engine.work_on(started.run_id)).output == "hello you"
    assert await ask(url, "select count(*) from public.orders") == 1


@pytest.mark.parametrize("through", ["asyncpg", "psycopg"])
async def test_a_caller_without_rights_on_the_schema_is_told_so(url: str, through: str) -> None:
    flow, registry = greeting()
    async with session(url) as administrator:
        await administrator.execute("create role flow_guest login")
    try:
        guest = url.replace("//postgres@", "//flow_guest@")
        async with sk.AsyncEngine(url, registry=registry, actor="a", auto_migrate=True) as engine:
            await engine.publish(flow)
            if through == "asyncpg":
                async with session(guest) as connection, connection.transaction():
                    with pytest.raises(SchemaMismatch, match="grant this role USAGE on the schema"):
                        await engine.start(flow, connection=connection)
                    assert await connection.fetchval("select 1") == 1
            else:
                async with await psycopg.AsyncConnection.connect(guest) as caller:
                    with pytest.raises(SchemaMismatch, match="grant this role USAGE on the schema"):
                        await engine.start(flow, connection=caller)
                    await caller.execute("select 1")
    finally:
        async with session(url) as administrator:
            await administrator.execute("drop role flow_guest")


# -- what was there before ---------------------------------------------------------------------------------------------


async def test_an_old_installation_in_public_goes_on_where_it_is(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    async with at_version(url, 1) as store:
        await save(store, new_run(1, (ready(1),), run=a_run(1, open=1, moving=1)))
    await asyncio.to_thread(by_command, url)
    assert "in the schema public" in capsys.readouterr().out
    async with opened(url) as store, opened(url) as other:
        assert (await store.status()).schema == "public"
        assert (await load(store, want(1))).runs
        await bump(store, 1)
        assert (await store.maintain()).put_off == ()
        with listening(other) as ear:
            await ready_to_hear(other, ear)
            await save(store, new_run(2, (ready(2),)))
            await ear.hears_of(QUEUE)
    assert await ask(url, "select count(*) from public.runs") == 2
    assert await ask(url, "select to_regnamespace('stepkeep')") is None


async def test_a_schema_that_is_renamed_is_the_new_place(url: str) -> None:
    """As docs/databases.md says to move an old installation whose database holds nothing else."""
    await migrate(f"{url}&schema=public")
    async with opened(url) as store:
        await save(store, new_run(1))
    async with session(url) as owner:
        await owner.execute("alter schema public rename to stepkeep; create schema public")
    async with opened(url) as store:
        assert (await store.status()).schema == "stepkeep"
        await bump(store, 1)
        assert (await store.maintain()).put_off == ()


async def test_tables_in_a_schema_that_the_url_does_not_name_are_pointed_out(url: str) -> None:
    await migrate(f"{url}&schema=elsewhere")
    with pytest.raises(SchemaMismatch, match="schema=elsewhere"):
        await connect(url).open()
    assert (await migrate(f"{url}&schema=stepkeep")).schema == "stepkeep"
    async with opened(url) as store:
        assert (await store.status()).schema == "stepkeep"


# -- rights and poolers ------------------------------------------------------------------------------------------------


async def test_an_owner_of_the_schema_alone_may_migrate(url: str) -> None:
    async with session(url) as administrator:
        await administrator.execute("create role flow_owner login; create role flow_guest login")
        await administrator.execute("revoke all on schema public from public")
    try:
        owner, guest = (url.replace("//postgres@", f"//{role}@") for role in ("flow_owner", "flow_guest"))
        assert await asyncio.to_thread(main, ["db", "migrate", "--db", guest]) == 1
        async with session(url) as administrator:
            await administrator.execute("create schema stepkeep authorization flow_owner")
        assert await asyncio.to_thread(main, ["db", "migrate", "--db", owner]) == 0
        async with opened(owner) as store:
            await save(store, new_run(1))
            assert (await store.maintain()).put_off == ()
    finally:
        async with session(url) as administrator:
            await administrator.execute("drop owned by flow_owner, flow_guest; drop role flow_owner, flow_guest")


async def test_a_role_that_may_not_make_the_schema_learns_which_one(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async with session(url) as administrator:
        await administrator.execute("create role flow_guest login")
    try:
        guest = url.replace("//postgres@", "//flow_guest@")
        assert await asyncio.to_thread(main, ["db", "migrate", "--db", guest]) == 1
        assert "owns the schema stepkeep or may create it" in capsys.readouterr().err
    finally:
        async with session(url) as administrator:
            await administrator.execute("drop role flow_guest")


async def test_the_tables_are_found_behind_a_pooler_that_refuses_a_search_path(url: str, tmp_path: Path) -> None:
    async with pooler(url, tmp_path) as (pooled, refused):
        store = connect(f"{pooled}&schema=shop_flows")
        await store.open()
        try:
            await store.migrate()
            await save(store, new_run(1))
            await bump(store, 1)
            assert (await load(store, want(1))).runs[want(1).key].seq == 2
            assert await store.read_run(*want(1).key) is not None
            assert [whole.record.run.id for whole in await store.read_whole(want(1).tenant, [run_id(1)])] == [run_id(1)]
            assert (await store.maintain()).put_off == ()
            assert any(b"search_path" in message for message in refused)
        finally:
            await store.close()
    assert await ask(url, "select count(*) from shop_flows.runs") == 1
