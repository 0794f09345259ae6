"""Transactions that user code takes part in: whole or not at all, and planned as the user would have it."""

import asyncpg
import pytest
from tests.store.postgres.conftest import session
from tests.store.values import key, load, moved, new_run, save, want

from stepkeep.kernel.errors import StoreError, StoreUnavailable
from stepkeep.store.change import Loaded, Write
from stepkeep.store.protocol import Store

pytestmark = pytest.mark.postgres


def bump(loaded: Loaded) -> Write:
    change, entry = moved(loaded.runs[key(1)])
    return Write(runs=[change], entries=[entry])


async def prepare(store: Store, url: str) -> None:
    await save(store, new_run(1))
    async with session(url) as rival:
        await rival.execute("create table orders (id integer primary key)")


async def orders(url: str) -> int:
    async with session(url) as rival:
        return int(await rival.fetchval("select count(*) from orders"))


async def test_an_error_that_the_user_swallowed_does_not_pass_for_a_commit(store: Store, url: str) -> None:
    await prepare(store, url)

    async def careless() -> None:
        async with store.transaction() as transaction:
            await transaction.change([want(1)], bump)
            with pytest.raises(asyncpg.UniqueViolationError):
                await transaction.connection.execute("insert into orders values (1), (1)")

    with pytest.raises(StoreError, match="had failed before"):
        await careless()
    assert (await load(store, want(1))).runs[key(1)].seq == 1


async def test_the_user_may_open_transactions_inside(store: Store, url: str) -> None:
    await prepare(store, url)
    async with store.transaction() as transaction:
        await transaction.connection.execute("insert into orders values (1)")
        with pytest.raises(asyncpg.UniqueViolationError):
            async with transaction.connection.transaction():
                await transaction.connection.execute("insert into orders values (1)")
        await transaction.change([want(1)], bump)
    assert await orders(url) == 1
    assert (await load(store, want(1))).runs[key(1)].seq == 2


async def test_the_users_statements_are_planned_as_the_user_set_it(store: Store, url: str) -> None:
    await prepare(store, url)
    async with store.transaction() as transaction:
        await transaction.connection.execute("set local enable_hashjoin = off")
        await transaction.change([want(1)], bump)
        assert await transaction.connection.fetchval("show enable_hashjoin") == "off"
        assert await transaction.connection.fetchval("show enable_seqscan") == "on"
        assert await transaction.connection.fetchval("show plan_cache_mode") == "auto"


async def test_a_connection_that_was_lost_loses_everything_of_the_transaction(store: Store, url: str) -> None:
    await prepare(store, url)

    async def unlucky() -> None:
        async with store.transaction() as transaction:
            await transaction.connection.execute("insert into orders values (1)")
            await transaction.change([want(1)], bump)
            pid = transaction.connection.get_server_pid()
            async with session(url) as rival:
                await rival.fetchval("select pg_terminate_backend($1, 5000)", pid)

    with pytest.raises(StoreUnavailable):
        await unlucky()
    assert await orders(url) == 0
    assert (await load(store, want(1))).runs[key(1)].seq == 1


async def test_nothing_that_user_code_leaves_in_a_session_reaches_the_next_transaction(store: Store, url: str) -> None:
    async with session(url) as rival:
        usual = await rival.fetchval("show search_path")
        await rival.execute("create schema theirs; create role their_role; create sequence numbers")
        await rival.execute("grant their_role to current_user")
    try:
        async with store.transaction() as transaction:
            connection = transaction.connection
            first = connection.get_server_pid()
            await connection.execute("set search_path to theirs")
            await connection.execute("set role their_role; reset role; set stepkeep.canary to 'CANARY'")
            await connection.execute("create temp table notes (text text); insert into notes values ('CANARY')")
            await connection.fetchval("select pg_advisory_lock(42)")
            await connection.execute("set role their_role")
        async with store.transaction() as transaction:
            connection = transaction.connection
            assert connection.get_server_pid() == first
            assert await connection.fetchval("show search_path") == usual
            assert await connection.fetchval("select current_user = session_user")
            assert await connection.fetchval("select coalesce(current_setting('stepkeep.canary', true), '')") == ""
            assert await connection.fetchval("select to_regclass('notes')") is None
            assert await connection.fetchval("select count(*) from pg_locks where locktype = 'advisory'") == 0
    finally:
        async with session(url) as rival:
            await rival.execute("drop owned by their_role; drop role their_role")


async def test_a_connection_whose_driver_was_altered_is_not_used_again(store: Store, url: str) -> None:
    async with store.transaction() as transaction:
        first = transaction.connection.get_server_pid()
        await transaction.connection.set_type_codec(
            "json", schema="pg_catalog", encoder=str, decoder=lambda text: "CANARY"
        )
    async with store.transaction() as transaction:
        assert transaction.connection.get_server_pid() != first
        assert await transaction.connection.fetchval("select '{}'::json") == "{}"
