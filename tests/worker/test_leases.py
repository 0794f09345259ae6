"""Leases, timeouts and fences: a worker that is late loses, and its handlers hear of it (faults B1, B2, B34, B40)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace
from tests.workbench import PATIENCE_SECONDS, count_calls, eventually, results_of, until
from tests.worker.bed import LEASE_US, PAST_THE_LEASE_US, QUICK, TENANT, Bed, On, step

from stepkeep.kernel.definition import Command, Retry
from stepkeep.kernel.errors import StoreUnavailable
from stepkeep.kernel.machine.events import CancelRequested
from stepkeep.kernel.machine.states import AttemptState, Category, RunState, StepState, WorkerState
from stepkeep.operations.pipeline.expire import sweep
from stepkeep.worker.cancellation import Why
from stepkeep.worker.loop import WATCH, Worker
from stepkeep.worker.runtime import Runtime

RENEWALS = 4
"""A lease is renewed when a third of it has passed: after this many it would have expired without them."""
RENEW_SECONDS = LEASE_US / 3_000_000 + 1
ONCE = Retry(max_attempts=1)


class Ahead(Runtime):
    """A clock of a worker that tests move: no lease ends because this process gets no CPU for a while."""

    seconds = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.seconds

    async def wait(self, event: asyncio.Event, seconds: float | None) -> bool:
        if seconds is None:
            return await super().wait(event, None)
        end = self.monotonic() + seconds
        while not await super().wait(event, min(0.01, end - self.monotonic())):
            if self.monotonic() >= end:
                return False
        return True

    def renew(self) -> None:
        """Let so much time pass that leases are renewed."""
        self.seconds += RENEW_SECONDS


async def outlive_a_lease(bed: Bed, runtime: Ahead, renewals: list[Any]) -> None:
    """Let more time pass than a lease has, by the clocks of the worker and of the database, with renewals meanwhile."""
    for done in range(RENEWALS):
        runtime.renew()
        await until(lambda done=done: len(renewals) > done)  # type: ignore[misc]
        bed.store.clock_offset += round(RENEW_SECONDS * 1_000_000)


async def serving(worker: Worker, body: Callable[[], Awaitable[None]], grace: float = 5.0) -> None:
    """Let a worker serve while `body` runs, then stop it."""
    task = asyncio.create_task(worker.serve())
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await body()
    finally:
        worker.stop(grace)
        await task


# -- renewal -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["async", "blocking", "blocks its own loop"])
async def test_an_attempt_that_outlives_its_lease_keeps_it_while_its_worker_lives(on_store: On, kind: str) -> None:
    async with on_store() as bed:
        calls, outlived = [], threading.Event()

        async def slow() -> str:
            calls.append(1)
            await until(outlived.is_set)
            return "done"

        async def rude() -> str:
            return slow_in_thread()

        def slow_in_thread() -> str:
            calls.append(1)
            outlived.wait(20)
            return "done"

        bed.handler("slow", {"async": slow, "blocking": slow_in_thread, "blocks its own loop": rude}[kind])
        run_id = await bed.start(step("slow"))
        renewals, runtime = results_of(bed.store, "renew"), Ahead()

        async def outlive() -> None:
            await until(lambda: bool(calls))
            await outlive_a_lease(bed, runtime, renewals)
            outlived.set()
            await eventually(bed.ended(run_id))

        await serving(bed.worker(runtime=runtime), outlive)
        assert (await bed.run(run_id)).state is RunState.SUCCEEDED
        assert len(calls) == 1
        assert [attempt.state for attempt in await bed.attempts(run_id)] == [AttemptState.SUCCEEDED]


async def test_short_attempts_renew_nothing(on_store: On) -> None:
    async with on_store() as bed:
        renewals = count_calls(bed, "renew")
        bed.handler("quick", lambda: 1)
        run_id = await bed.start(*(step(f"s{n}", uses="quick", order=n) for n in range(20)))
        await bed.finish(run_id)
        assert renewals == []


# -- losing ------------------------------------------------------------------------------------------------------------
async def test_a_worker_whose_step_was_taken_by_another_drops_its_result_and_cancels_its_handler(on_store: On) -> None:
    async with on_store() as bed:
        heard: list[object] = []
        started = threading.Event()

        async def slow(ctx: Any) -> str:
            if ctx.attempt > 1:
                return "second"
            started.set()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                heard.append(ctx.cancelled.why)
                raise
            return "first"

        bed.handler("slow", slow)
        run_id = await bed.start(step("slow"))

        runtime = Ahead()

        async def lose() -> None:
            await until(started.is_set)
            bed.store.clock_offset += PAST_THE_LEASE_US
            await sweep(bed.transactor)
            runtime.renew()
            await eventually(bed.ended(run_id))

        await serving(bed.worker(runtime=runtime), lose)
        assert heard == [Why.LEASE_LOST]
        assert await bed.output(run_id, 0) == "second"
        states = [attempt.state for attempt in await bed.attempts(run_id)]
        assert states == [AttemptState.LOST, AttemptState.SUCCEEDED]


async def test_a_result_that_comes_after_the_lease_ran_out_is_refused_even_if_nobody_took_over(on_store: On) -> None:
    async with on_store() as bed:
        release, started = threading.Event(), threading.Event()

        def late() -> str:
            started.set()
            release.wait(20)
            return "late"

        bed.handler("late", late)
        run_id = await bed.start(step("late", retry=ONCE))
        settings = replace(QUICK, sweep_seconds=3600.0)

        reports = results_of(bed.transactor, "report")

        async def be_late() -> None:
            await until(started.is_set)
            bed.store.clock_offset += 31_000_000
            release.set()
            await until(lambda: len(reports) > 0)
            assert (await bed.steps(run_id))[0].state is StepState.RUNNING
            assert await bed.attempts(run_id) == []

        await serving(bed.worker(settings), be_late)
        await sweep(bed.transactor)
        assert (await bed.run(run_id)).category is Category.POISON


async def test_a_cancelled_run_cancels_its_running_handler(on_store: On) -> None:
    async with on_store() as bed:
        started, ended = threading.Event(), threading.Event()

        async def slow() -> None:
            started.set()
            try:
                await asyncio.sleep(60)
            finally:
                ended.set()

        bed.handler("slow", slow)
        run_id = await bed.start(step("slow"))

        runtime = Ahead()

        async def cancel() -> None:
            await until(started.is_set)
            await bed.transactor.submit(CancelRequested(tenant=TENANT, run_id=run_id, actor="ada"))
            runtime.renew()
            await until(ended.is_set)

        await serving(bed.worker(runtime=runtime), cancel)
        assert (await bed.run(run_id)).state is RunState.CANCELLED


async def test_a_handler_of_a_stopping_run_is_asked_and_not_killed(on_store: On) -> None:
    async with on_store() as bed:
        started = threading.Event()
        told: list[object] = []

        async def careful(ctx: Any) -> str:
            started.set()
            await ctx.cancelled
            told.append(ctx.cancelled.why)
            return "tidied up"

        def explode() -> None:
            started.wait(20)
            raise RuntimeError("boom")

        bed.handler("careful", careful)
        bed.handler("explode", explode)
        run_id = await bed.start(step("careful", order=0), step("explode", order=0, retry=ONCE))
        runtime = Ahead()

        async def stop() -> None:
            await eventually(bed.step_is(run_id, 1, StepState.FAILED))
            runtime.renew()
            await eventually(bed.ended(run_id))

        await serving(bed.worker(runtime=runtime), stop)
        assert (await bed.run(run_id)).state is RunState.FAILED
        assert told == [Why.RUN_STOPPING]
        assert await bed.output(run_id, 0) == "tidied up"


async def test_a_worker_that_was_given_up_for_lost_comes_back_as_a_new_incarnation_and_holds_nothing(
    on_store: On,
) -> None:
    async with on_store() as bed:
        started, ended = threading.Event(), threading.Event()

        async def slow(ctx: Any) -> str:
            if ctx.attempt > 1:
                return "second"
            started.set()
            try:
                await asyncio.sleep(60)
            finally:
                ended.set()
            return "first"

        bed.handler("slow", slow)
        run_id = await bed.start(step("slow"))

        runtime = Ahead()

        async def give_up() -> None:
            await until(started.is_set)
            bed.store.clock_offset += PAST_THE_LEASE_US
            await sweep(bed.transactor)
            runtime.renew()
            await until(ended.is_set)
            await eventually(bed.ended(run_id))
            await eventually(lambda: incarnation_is(bed, 2))

        await serving(bed.worker(replace(QUICK, sweep_seconds=3600.0), runtime=runtime), give_up)
        assert await bed.output(run_id, 0) == "second"


async def incarnation_is(bed: Bed, number: int) -> bool:
    [worker] = await bed.store.list_workers(TENANT)
    return worker.incarnation == number


# -- timeouts ----------------------------------------------------------------------------------------------------------
async def test_a_coroutine_that_runs_too_long_is_cancelled_and_timed_out(on_store: On) -> None:
    async with on_store() as bed:
        ended = []

        async def slow() -> None:
            try:
                await asyncio.sleep(60)
            finally:
                ended.append(1)

        bed.handler("slow", slow)
        run_id = await bed.start(step("slow", timeout=100_000, retry=ONCE))
        assert await bed.finish(run_id) is RunState.FAILED
        [attempt] = await bed.attempts(run_id)
        assert (attempt.state, attempt.category) == (AttemptState.TIMED_OUT, Category.TIMEOUT)
        assert "0.1 s" in (attempt.error or "")
        assert ended == [1]


async def test_a_thread_that_runs_too_long_is_timed_out_at_once_and_keeps_its_slot_until_it_ends(on_store: On) -> None:
    async with on_store() as bed:
        release = threading.Event()
        running = []

        def stubborn(ctx: Any) -> str:
            if ctx.attempt > 1:
                running.append("second")
                return "second"
            running.append("first")
            release.wait(20)
            return "first, much too late"

        bed.handler("stubborn", stubborn)
        run_id = await bed.start(step("stubborn", timeout=100_000, retry=Retry(initial=0, max=0)))
        worker = bed.worker(replace(QUICK, concurrency=1))

        async def wait() -> None:
            async def was_timed_out() -> bool:
                return len(await bed.attempts(run_id)) == 1

            await eventually(was_timed_out)
            sweeps = results_of(bed.store, "find_due")
            await until(lambda: len(sweeps) >= 4)
            assert running == ["first"], "the only slot is still taken"
            release.set()
            await eventually(bed.ended(run_id))

        await serving(worker, wait)
        assert await bed.output(run_id, 0) == "second"


async def test_a_command_that_runs_too_long_is_killed(on_store: On) -> None:
    async with on_store() as bed:
        run_id = await bed.start(step("sleep", executor=Command(argv=("sleep", "600")), timeout=200_000, retry=ONCE))
        assert await bed.finish(run_id) is RunState.FAILED
        assert [attempt.state for attempt in await bed.attempts(run_id)] == [AttemptState.TIMED_OUT]


# -- draining ----------------------------------------------------------------------------------------------------------
async def test_a_draining_worker_lets_handlers_finish_and_claims_nothing_more(on_store: On) -> None:
    async with on_store() as bed:
        started, release = threading.Event(), threading.Event()

        def first() -> str:
            started.set()
            release.wait(20)
            return "finished"

        bed.handler("first", first)
        bed.handler("second", lambda: "never now")
        run_id = await bed.start(step("first", order=0), step("second", "first", order=1))
        worker = bed.worker()

        async def stop() -> None:
            await until(started.is_set)
            worker.stop()
            await eventually(lambda: worker_is(bed, WorkerState.DRAINING))
            release.set()

        await serving(worker, stop)
        assert await bed.states(run_id) == ["succeeded", "ready"]
        assert await worker_is(bed, WorkerState.SHUTDOWN)
        await bed.check_promises()


async def test_what_does_not_finish_within_the_grace_is_handed_back_and_nothing_is_counted(on_store: On) -> None:
    async with on_store() as bed:
        started, cancelled = threading.Event(), threading.Event()

        async def slow() -> None:
            started.set()
            try:
                await asyncio.sleep(60)
            finally:
                cancelled.set()

        bed.handler("slow", slow)
        run_id = await bed.start(step("slow"))

        async def wait() -> None:
            await until(started.is_set)

        await serving(bed.worker(), wait, grace=0.05)
        row = (await bed.steps(run_id))[0]
        assert (row.state, row.attempts, row.losses) == (StepState.READY, 0, 0)
        assert [attempt.state for attempt in await bed.attempts(run_id)] == [AttemptState.RELEASED]
        assert cancelled.is_set()


async def test_being_told_to_stop_again_ends_the_grace_at_once(on_store: On) -> None:
    class Watched(Runtime):
        """Notes when the worker has begun to wait for what it holds."""

        def __init__(self) -> None:
            self.patient = False

        async def wait(self, event: asyncio.Event, seconds: float | None) -> bool:
            self.patient = self.patient or seconds == WATCH
            return await super().wait(event, seconds)

    async with on_store() as bed:
        started, runtime = threading.Event(), Watched()

        async def slow() -> None:
            started.set()
            await asyncio.sleep(600)

        bed.handler("slow", slow)
        run_id = await bed.start(step("slow"))
        worker = bed.worker(runtime=runtime)

        async def stop() -> None:
            await until(started.is_set)
            worker.stop(600)
            await until(lambda: runtime.patient)

        async with asyncio.timeout(20):
            await serving(worker, stop, grace=0)
        assert [attempt.state for attempt in await bed.attempts(run_id)] == [AttemptState.RELEASED]


async def test_a_draining_worker_keeps_its_leases_alive(on_store: On) -> None:
    async with on_store() as bed:
        started, outlived = threading.Event(), threading.Event()
        renewals, runtime = results_of(bed.store, "renew"), Ahead()

        async def slow() -> str:
            started.set()
            await until(outlived.is_set)
            return "done"

        bed.handler("slow", slow)
        run_id = await bed.start(step("slow"))

        worker = bed.worker(runtime=runtime)

        async def wait() -> None:
            await until(started.is_set)
            worker.stop(3600)
            await outlive_a_lease(bed, runtime, renewals)
            outlived.set()

        await serving(worker, wait, grace=3600)
        assert await bed.states(run_id) == ["succeeded"]


async def worker_is(bed: Bed, state: WorkerState) -> bool:
    [worker] = await bed.store.list_workers(TENANT)
    return worker.state is state


# -- outages -----------------------------------------------------------------------------------------------------------
async def test_an_outage_is_told_once_and_work_goes_on_after_it(on_store: On, caplog: pytest.LogCaptureFixture) -> None:
    async with on_store() as bed:
        bed.handler("a", lambda: 1)
        run_id = await bed.start(step("a", order=0), step("b", "a", order=1, uses="a"))
        down = Outage(bed)

        async def outage() -> None:
            await until(lambda: down.refused > 5)
            down.over()
            await eventually(bed.ended(run_id))

        await serving(bed.worker(), outage)
        assert await bed.states(run_id) == ["succeeded", "succeeded"]
    told = [record.message for record in caplog.records if "does not answer" in record.message]
    assert len(told) == 1


class Outage:
    """The store refuses every write and claim until it is over."""

    def __init__(self, bed: Bed) -> None:
        self.refused = 0
        self._store: Any = bed.store
        self._real = self._store.change
        self._store.change = self._refuse

    async def _refuse(self, *_: object, **__: object) -> None:
        self.refused += 1
        raise StoreUnavailable("down for a moment")

    def over(self) -> None:
        self._store.change = self._real
