"""Connections that break, are refused, are shared with a child, or pass through a pooler."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from msgspec.structs import replace
from tests.store.conftest import opened
from tests.store.postgres.conftest import session, until_somebody_waits
from tests.store.values import key, load, moved, new_run, save, want
from tests.workbench import until

from stepkeep.kernel.errors import InvalidInput, SchemaMismatch, StoreUnavailable
from stepkeep.store.change import Loaded, Want, Write
from stepkeep.store.connect import connect
from stepkeep.store.postgres.connections import ENGINE, read_options
from stepkeep.store.protocol import Store
from stepkeep_lab.postgres import PostgresServer, StopMode

pytestmark = pytest.mark.postgres

KILL = (
    "select pg_terminate_backend(pid) from pg_stat_activity"
    " where datname = current_database() and pid <> pg_backend_pid()"
)


def kill_everybody(url: str) -> None:
    """End every other session of the database, from a thread, so that a callback of the store can do it."""

    async def kill() -> None:
        async with session(url) as rival:
            assert await rival.fetch(KILL)

    thread = threading.Thread(target=lambda: asyncio.run(kill()))
    thread.start()
    thread.join()


async def until_idle_ones_are_lost(store: Any) -> None:
    """Come back when this process has heard that its idle connections are closed."""
    idle = [connection for pool in (store._engine, store._readers) for connection in pool._idle]
    assert idle
    await until(lambda: all(connection.is_closed() for connection in idle))


async def test_a_connection_killed_in_the_middle_writes_nothing_and_the_next_call_has_a_new_one(
    store: Store, url: str
) -> None:
    await save(store, new_run(1))

    def decide(loaded: Loaded) -> Write:
        kill_everybody(url)
        change, entry = moved(loaded.runs[key(1)])
        return Write(runs=[change], entries=[entry])

    with pytest.raises(StoreUnavailable, match="nothing was acknowledged"):
        await store.change([want(1)], decide)
    assert (await load(store, want(1))).runs[key(1)].seq == 1


async def test_connections_killed_while_idle_are_replaced_unseen(store: Store, url: str) -> None:
    await save(store, new_run(1))
    await store.read_run(*key(1))
    kill_everybody(url)
    await until_idle_ones_are_lost(store)
    assert (await load(store, want(1))).runs
    assert await store.read_run(*key(1)) is not None


async def test_a_server_that_crashed_is_used_again_when_it_is_back(
    store: Store, postgres_server: PostgresServer
) -> None:
    if postgres_server.is_external:
        pytest.skip("a server that is not ours is not stopped")
    await save(store, new_run(1))
    await asyncio.to_thread(postgres_server.restart, StopMode.IMMEDIATE)
    await until_idle_ones_are_lost(store)
    assert (await load(store, want(1))).runs[key(1)].seq == 1


async def test_a_server_that_is_not_there_is_said_to_be_unavailable(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable):
        await connect(f"postgresql://nobody@/nothing?host={tmp_path}").open()


async def test_a_database_that_was_never_migrated_says_so(empty_postgres_dsn: str) -> None:
    store = connect(empty_postgres_dsn)
    await store.open()
    try:
        with pytest.raises(SchemaMismatch, match="db migrate"):
            await load(store, want(1))
    finally:
        await store.close()


async def test_a_cancelled_change_lets_its_locks_go(store: Store, url: str) -> None:
    await save(store, new_run(1))
    async with session(url) as rival:
        async with rival.transaction():
            await rival.execute("select from runs for update")
            task = asyncio.create_task(load(store, want(1)))
            async with session(url) as onlooker:
                await until_somebody_waits(onlooker)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        async with asyncio.timeout(5):
            await rival.execute("select from runs for update")
    assert (await load(store, want(1))).runs


def test_a_child_of_a_fork_has_connections_of_its_own(runner: asyncio.Runner, store: Store) -> None:
    runner.run(save(store, new_run(1)))
    child = os.fork()
    if child == 0:
        status = 1
        try:
            asyncio.run(load(store, want(1)))
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert runner.run(load(store, want(1))).runs


# -- settings ------------------------------------------------------------------------------------------------------


async def test_the_engine_never_trades_durability(store: Store, url: str) -> None:
    async with session(url) as rival:
        name = await rival.fetchval("select current_database()")
        await rival.execute(f'alter database "{name}" set synchronous_commit = off')
    async with opened(url) as fresh, fresh._transaction() as connection:  # type: ignore[attr-defined]
        assert await connection.fetchval("show synchronous_commit") == "on"
    async with opened(url) as fresh, fresh.transaction() as transaction:
        assert await transaction.connection.fetchval("show synchronous_commit") == "on"


async def test_settings_are_made_in_each_transaction_where_a_pooler_refuses_them_at_the_start(
    url: str, tmp_path: Path
) -> None:
    async with pooler(url, tmp_path) as (pooled, refused), opened(pooled) as store:
        await save(store, new_run(1))
        assert (await load(store, want(1))).runs
        assert refused
        async with store._transaction() as connection:  # type: ignore[attr-defined]
            for name, value in ENGINE.items():
                assert await connection.fetchval("select current_setting($1)", name) in (value, "1min"), name
        async with store._engine.connection() as connection:  # type: ignore[attr-defined]
            assert await connection.fetchval("show enable_seqscan") == "on"


@asynccontextmanager
async def pooler(url: str, tmp_path: Path) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A go-between that refuses start-up parameters as poolers in transaction mode do."""
    where = parse_qs(urlsplit(url).query)
    number = where["port"][0]
    refused: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        length = await reader.readexactly(4)
        message = await reader.readexactly(int.from_bytes(length) - 4)
        if b"plan_cache_mode" in message or b"search_path" in message:
            refused.append(message)
            fields = b"SFATAL\0C08P01\0Munsupported startup parameter: plan_cache_mode\0\0"
            writer.write(b"E" + (len(fields) + 4).to_bytes(4) + fields)
            writer.close()
            return
        up_reader, up_writer = await asyncio.open_unix_connection(f"{where['host'][0]}/.s.PGSQL.{number}")
        up_writer.write(length + message)
        await asyncio.gather(copy(reader, up_writer), copy(up_reader, writer))

    async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            target.write(data)
        target.close()

    async with await asyncio.start_unix_server(serve, tmp_path / f".s.PGSQL.{number}"):
        yield f"{url.split('?')[0]}?host={tmp_path}&port={number}&statement_cache_size=0", refused


def test_our_parameters_are_taken_out_of_the_url_and_passwords_are_not_shown() -> None:
    options = read_options("postgresql://ann:secret@host/db?pool_size=3&statement_cache_size=0&sslmode=require")
    assert (options.pool_size, options.statement_cache_size) == (3, 0)
    assert options.dsn == "postgresql://ann:secret@host/db?sslmode=require"
    assert "secret" not in options.shown
    assert "hidden" not in read_options("postgresql://ann@/db?host=/run&password=hidden").shown
    assert read_options("postgresql://ann@/db?host=/run&port=1").shown == "postgresql://ann@/db?host=/run&port=1"


def test_a_parameter_that_is_no_number_is_refused() -> None:
    with pytest.raises(InvalidInput, match="pool_size"):
        read_options("postgresql://ann@/db?pool_size=many")


# -- what cannot be said in the plain way ----------------------------------------------------------------------------


@pytest.mark.parametrize("tenant", ['a"b', "a\\b", "{a,b}", "null", "", "a,b", "é 日本", "'; drop table runs; --"])
async def test_a_tenant_may_have_any_name(store: Store, tenant: str) -> None:
    new = new_run(1)
    renamed = {"tenant": tenant}
    await save(
        store,
        replace(
            new,
            run=replace(new.run, **renamed),
            details=replace(new.details, **renamed),
            entries=(replace(new.entries[0], **renamed),),
        ),
        new_run(2),
    )
    loaded = await load(store, replace(want(1), tenant=tenant), want(2))
    assert set(loaded.runs) == {(tenant, key(1)[1]), key(2)}
    assert [entry.tenant for entry in await store.read_journal(tenant, key(1)[1])] == [tenant]


async def test_a_tenant_that_cannot_be_stored_is_refused(store: Store) -> None:
    with pytest.raises(InvalidInput):
        await store.list_queues("a\0b")


async def test_what_is_no_run_id_names_no_run(store: Store) -> None:
    await save(store, new_run(1))
    names = ["", "nothing", key(1)[1].upper() + " ", f"{key(1)[1]},{key(1)[1]}", "null"]
    loaded = await load(store, *(Want(tenant="acme", run_id=name, whole=True) for name in names))
    assert not loaded.runs
    for name in names:
        assert await store.read_run("acme", name) is None
        assert await store.read_steps("acme", name) == []
