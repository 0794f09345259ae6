"""Transactional steps: the handler's writes and the decision are one transaction (design, promise 4)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.workbench import eventually, until
from tests.worker.bed import Bed, On, step
from tests.worker.test_leases import serving

from stepkeep.kernel.definition import Retry, Rule
from stepkeep.kernel.errors import Contended, StoreUnavailable
from stepkeep.kernel.machine.states import RunState
from stepkeep.operations.pipeline.expire import sweep


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


@pytest.mark.parametrize("handler", [insert, insert_async])
async def test_writes_and_result_commit_together(on_each: On, handler: Any) -> None:
    async with on_each() as bed:
        await make_table(bed)
        bed.handler("write", handler)
        run_id = await bed.start(
            step("write", order=0, transactional=True),
            step("again", "write", order=1, uses="write", transactional=True),
        )
        assert await bed.finish(run_id) is RunState.SUCCEEDED
        assert await count(bed) == 2
        assert await bed.output(run_id, 0) == "written"


async def test_a_failure_takes_the_writes_with_it(on_each: On) -> None:
    async with on_each() as bed:
        await make_table(bed)

        def half(ctx: Any) -> None:
            insert(ctx)
            raise ConnectionError("after the write")

        bed.handler("write", half)
        run_id = await bed.start(step("write", transactional=True, retry=Retry(max_attempts=2, initial=1000)))
        assert await bed.finish(run_id) is RunState.FAILED
        assert len(await bed.attempts(run_id)) == 2
        assert await count(bed) == 0


@pytest.mark.postgres
async def test_a_lost_lease_takes_the_writes_with_it(on_postgres: On) -> None:
    async with on_postgres() as bed:
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
        # The clock has also moved past the worker's heartbeat, so that a second lease may be lost with the first.
        assert await bed.output(run_id, 0) != "attempt 1"
        assert await count(bed) == 1


async def test_a_step_whose_time_ran_out_during_its_commit_is_not_judged_in_a_place_that_is_promised(
    on_store: On,
) -> None:
    """Its place goes to what the report under way makes ready; a lease that nobody minds is left to run out."""

    async with on_store() as bed:
        await make_table(bed)
        bed.handler("write", insert)
        timed_out, answered = asyncio.Event(), asyncio.Event()
        room: list[int] = []
        really, change = bed.store.transaction, bed.store.change

        @asynccontextmanager
        async def slow_to_answer() -> AsyncIterator[Any]:
            async with really() as transaction:
                yield transaction
            await asyncio.wait_for(timed_out.wait(), 20)
            bed.store.transaction = really  # type: ignore[method-assign]
            answered.set()

        async def slow_report(wants: Any, decide: Any, propose: Any = None) -> None:
            if propose is None and not answered.is_set():
                timed_out.set()
                await answered.wait()
                for _ in range(100):  # turns of the loop, in which the attempt goes on
                    await asyncio.sleep(0)
                room.append(worker._shared.slots.free.total)
            await change(wants, decide, propose)

        rules = (Rule(expression="output == 'written'"),)
        run_id = await bed.start(
            step("write", transactional=True, rules=rules, timeout=300_000, retry=Retry(max_attempts=3)),
            lease=3_000_000,
        )
        bed.store.transaction = slow_to_answer  # type: ignore[method-assign]
        bed.store.change = slow_report  # type: ignore[method-assign]
        bed.store.write_if_unchanged = refuse_to_write  # type: ignore[method-assign]
        worker = bed.worker(concurrency=1)
        await serving(worker, lambda: eventually(bed.ended(run_id)))
        assert room == [0]
        assert (await bed.run(run_id)).state is RunState.SUCCEEDED
        assert await count(bed) == 1


async def refuse_to_write(what: Any, known: Any, basis: Any) -> int:
    raise Contended("somebody has to look")


@pytest.mark.postgres
async def test_a_connection_that_a_handler_kept_is_of_no_use_to_it_after_its_attempt(on_postgres: On) -> None:
    async with on_postgres() as bed:
        await make_table(bed)
        kept: list[Any] = []

        def keep(ctx: Any) -> str:
            kept.append((ctx.connection, ctx.connection.execute))
            return insert(ctx)

        bed.handler("keep", keep)
        assert await bed.finish(await bed.start(step("keep", transactional=True))) is RunState.SUCCEEDED
        [(connection, execute)] = kept
        with pytest.raises(StoreUnavailable, match="has ended"):
            connection.execute("insert into orders values ('late')")
        with pytest.raises(StoreUnavailable, match="has ended"):
            await execute("insert into orders values ('late')")
        assert await count(bed) == 1
