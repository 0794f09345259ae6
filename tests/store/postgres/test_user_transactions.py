"""Transactions that user code takes part in: whole or not at all, and planned as the user would have it."""

import asyncpg
import pytest
from tests.store.postgres.conftest import session
from tests.store.values import key, load, moved, new_run, save, want

from stepkeep.errors import StoreError, StoreUnavailable
from stepkeep.store.protocol import Loaded, Store, Write

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
