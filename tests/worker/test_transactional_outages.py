"""A database that fails under a transactional step: the step is handed back, nothing is counted, nothing is written."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.workbench import eventually, until
from tests.worker.bed import Bed, On, step
from tests.worker.test_leases import serving
from tests.worker.test_transactional import count, insert, insert_async, make_table

from stepkeep.kernel.definition import Retry
from stepkeep.kernel.machine.states import RunState, StepState
from stepkeep.worker.answers import StepError
from stepkeep.worker.attempts import transactional
from stepkeep_lab.postgres import PostgresServer, StopMode

LONG = "x" * 200_000
ONCE = Retry(max_attempts=1, initial=1000)


class Interrupted:
    """A handler whose first call waits in the middle of its writes until `go_on` is set."""

    def __init__(self, *, swallows: bool) -> None:
        self.calls = 0
        self.is_inside, self.go_on = threading.Event(), threading.Event()
        self._swallows = swallows

    def __call__(self, ctx: Any) -> str:
        self.calls += 1
        insert(ctx)
        if self.calls == 1:
            self.is_inside.set()
            self.go_on.wait(60)
            try:
                insert(ctx)
            except Exception:
                if not self._swallows:
                    raise
        return f"call {self.calls}"


async def through_an_outage(bed: Bed, interrupt: Callable[[], Any], *, swallows: bool) -> None:
    await make_table(bed)
    handler = Interrupted(swallows=swallows)
    bed.handler("write", handler.__call__)
    run_id = await bed.start(step("write", transactional=True, retry=ONCE))

    async def fail_under_it() -> None:
        await until(handler.is_inside.is_set)
        await asyncio.to_thread(interrupt)
        handler.go_on.set()
        await eventually(bed.ended(run_id))

    await serving(bed.worker(), fail_under_it)
    assert (await bed.run(run_id)).state is RunState.SUCCEEDED
    assert await bed.output(run_id, 0) == "call 2"
    assert [str(one.state) for one in await bed.attempts(run_id)] == ["released", "succeeded"]
    assert (await bed.steps(run_id))[0].attempts == 0
    assert await count(bed) == 1


@pytest.mark.postgres
@pytest.mark.parametrize("swallows", [False, True], ids=["raises", "swallows"])
@pytest.mark.parametrize("mode", [StopMode.FAST, StopMode.IMMEDIATE])
async def test_a_restart_of_the_server_inside_a_transactional_step_counts_no_attempt(
    on_postgres: On, postgres_server: PostgresServer, mode: StopMode, swallows: bool
) -> None:
    async with on_postgres() as bed:
        await through_an_outage(bed, lambda: postgres_server.restart(mode), swallows=swallows)


@pytest.mark.postgres
async def test_a_connection_that_is_cut_inside_a_transactional_step_counts_no_attempt(on_postgres: On) -> None:
    async with on_postgres() as bed:
        loop = asyncio.get_running_loop()

        async def cut() -> None:
            async with bed.store.transaction() as transaction:
                await transaction.connection.execute(
                    "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database()"
                    " and query like 'insert into orders%' and pid <> pg_backend_pid()"
                )

        await through_an_outage(bed, lambda: asyncio.run_coroutine_threadsafe(cut(), loop).result(30), swallows=False)


async def test_a_disk_that_is_full_for_the_result_of_a_transactional_step_counts_no_attempt(on_store: On) -> None:
    """The limit on the file's pages belongs to one connection; the next attempt has another."""

    async with on_store() as bed:
        await make_table(bed)
        calls: list[int] = []

        def write(ctx: Any) -> str:
            insert(ctx)
            calls.append(ctx.attempt)
            if len(calls) == 1:
                [(pages,)] = ctx.connection.execute("pragma page_count").fetchall()
                ctx.connection.execute(f"pragma max_page_count = {pages}")
            return LONG

        bed.handler("write", write)
        run_id = await bed.start(step("write", transactional=True, retry=ONCE))
        assert await bed.finish(run_id) is RunState.SUCCEEDED
        assert calls == [1, 1]
        assert [str(one.state) for one in await bed.attempts(run_id)] == ["released", "succeeded"]
        assert await count(bed) == 1


@pytest.mark.postgres
async def test_a_handler_that_ends_its_own_connection_every_time_fails_in_the_end(
    on_postgres: On, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactional, "MAX_UNCOUNTED", 3)

    async with on_postgres() as bed:
        await make_table(bed)

        async def suicidal(ctx: Any) -> None:
            await insert_async(ctx)
            await ctx.connection.execute("select pg_terminate_backend(pg_backend_pid())")

        bed.handler("write", suicidal)
        run_id = await bed.start(step("write", transactional=True, retry=Retry(max_attempts=2, initial=1000)))
        assert await bed.finish(run_id) is RunState.FAILED
        states = [str(one.state) for one in await bed.attempts(run_id)]
        assert states == ["released"] * 3 + ["failed"] * 2
        assert await count(bed) == 0


@pytest.mark.postgres
async def test_what_a_handler_says_for_certain_stands_although_its_connection_is_gone(on_postgres: On) -> None:
    async with on_postgres() as bed:

        async def refuse(ctx: Any) -> None:
            try:
                await ctx.connection.execute("select pg_terminate_backend(pg_backend_pid())")
            except Exception as gone:
                raise StepError("there is no such customer", category="validation") from gone

        bed.handler("refuse", refuse)
        run_id = await bed.start(step("refuse", transactional=True))
        assert await bed.finish(run_id) is RunState.FAILED
        assert [str(one.state) for one in await bed.attempts(run_id)] == ["failed"]
        assert (await bed.steps(run_id))[0].state is StepState.FAILED
