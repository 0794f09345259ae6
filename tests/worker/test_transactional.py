"""Transactional steps: the handler's writes and the decision are one transaction (design, promise 4)."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from tests.worker.bed import Bed, On, step
from tests.worker.making import eventually, until
from tests.worker.test_leases import serving

from stepkeep.kernel.definition import Retry
from stepkeep.kernel.states import RunState
from stepkeep.operations.expire import sweep


async def count(bed: Bed) -> int:
    async with bed.store.transaction() as transaction:
        if hasattr(transaction.connection, "fetchval"):
            return await transaction.connection.fetchval("select count(*) from orders")
        return transaction.connection.execute("select count(*) from orders").fetchone()[0]


async def make_table(bed: Bed) -> None:
    async with bed.store.transaction() as transaction:
        made = transaction.connection.execute("create table orders (id text)")
        if asyncio.iscoroutine(made):
            await made


def insert(ctx: Any) -> str:
    ctx.connection.execute(f"insert into orders values ('{ctx.run_id}')")
    return "written"


async def insert_async(ctx: Any) -> str:
    written = ctx.connection.execute(f"insert into orders values ('{ctx.run_id}')")
    if asyncio.isfuture(written):
        await written
        async with ctx.connection.transaction():
            assert await ctx.connection.fetchval("select 1") == 1
    return "written"


async def writes_and_result_commit_together(bed: Bed, handler: Any) -> None:
    await make_table(bed)
    bed.handler("write", handler)
    run_id = await bed.start(
        step("write", order=0, transactional=True), step("again", "write", order=1, uses="write", transactional=True)
    )
    assert await bed.finish(run_id) is RunState.SUCCEEDED
    assert await count(bed) == 2
    assert await bed.output(run_id, 0) == "written"


@pytest.mark.parametrize("handler", [insert, insert_async])
def test_writes_and_result_commit_together(on_store: On, handler: Any) -> None:
    on_store(lambda bed: writes_and_result_commit_together(bed, handler))


@pytest.mark.postgres
@pytest.mark.parametrize("handler", [insert, insert_async])
def test_writes_and_result_commit_together_on_postgresql(on_postgres: On, handler: Any) -> None:
    on_postgres(lambda bed: writes_and_result_commit_together(bed, handler))


async def a_failure_takes_the_writes_with_it(bed: Bed) -> None:
    await make_table(bed)

    def half(ctx: Any) -> None:
        insert(ctx)
        raise ConnectionError("after the write")

    bed.handler("write", half)
    run_id = await bed.start(step("write", transactional=True, retry=Retry(max_attempts=2, initial=1000)))
    assert await bed.finish(run_id) is RunState.FAILED
    assert len(await bed.attempts(run_id)) == 2
    assert await count(bed) == 0


def test_a_failure_takes_the_writes_with_it(on_store: On) -> None:
    on_store(a_failure_takes_the_writes_with_it)


@pytest.mark.postgres
def test_a_failure_takes_the_writes_with_it_on_postgresql(on_postgres: On) -> None:
    on_postgres(a_failure_takes_the_writes_with_it)


@pytest.mark.postgres
def test_a_lost_lease_takes_the_writes_with_it(on_postgres: On) -> None:
    async def body(bed: Bed) -> None:
        await make_table(bed)
        started, release = threading.Event(), threading.Event()

        def slow(ctx: Any) -> str:
            insert(ctx)
            if ctx.attempt == 1:
                started.set()
                release.wait(20)
            return f"attempt {ctx.attempt}"

        bed.handler("write", slow)
        run_id = await bed.start(step("write", transactional=True))

        async def lose() -> None:
            await until(started.is_set)
            bed.store.clock_offset += 31_000_000
            await sweep(bed.transactor)
            release.set()
            await eventually(bed.ended(run_id))

        await serving(bed.worker(), lose)
        assert await bed.output(run_id, 0) == "attempt 2"
        assert await count(bed) == 1

    on_postgres(body)
