"""Cancel, with and without undoing what was done, and run again: terminal states are never left."""

from __future__ import annotations

import asyncio

import pytest

from stepkeep.kernel.decide.decision import Accepted
from stepkeep.kernel.definition import Definition, Handler, Undo
from stepkeep.kernel.errors import Conflict, Fenced, NotFound
from stepkeep.kernel.machine.states import AttemptState, Rollback, RunState, StepState
from stepkeep.kernel.people.authority import Caller
from stepkeep.operations.continuation.going_on import rerun
from stepkeep.operations.pipeline.expire import sweep
from stepkeep.operations.pipeline.start import Started
from tests.workbench import ACTOR, NOBODYS, SECOND, TENANT, Bench, benches, chain, on, task

UNDONE = Definition(
    name="undone",
    version=1,
    steps=(
        task("book", undo=Undo(executor=Handler(name="noop"))),
        task("pay", 1, ["book"], undo=Undo(executor=Handler(name="noop"))),
        task("ship", 2, ["pay"]),
    ),
)


async def again(bench: Bench, run_id: str, **options: object) -> Started:
    return await rerun(bench.transactor, bench.starter, run_id, caller=Caller(TENANT, ACTOR), **options)  # type: ignore[arg-type]


# -- cancel ----------------------------------------------------------------------------------------------------------
async def test_a_cancelled_run_ends_at_once_and_its_worker_is_fenced(database_url: str) -> None:
    async with on(database_url) as bench:
        run_id = await bench.start(chain("three", 3))
        [claim] = await bench.claim()
        reply = await bench.cancel(run_id, reason="changed our minds")
        assert reply.record["state"] is RunState.CANCELLED
        assert await bench.step_states(run_id) == [StepState.CANCELLED] * 3
        assert isinstance(await bench.report(claim), Fenced)
        [attempt] = await bench.store.read_attempts(TENANT, run_id)
        assert attempt.state is AttemptState.CANCELLED
        found = await bench.store.read_run(TENANT, run_id)
        assert found is not None
        assert found.run.error == f"cancelled by {ACTOR}: changed our minds"


async def test_cancelling_again_changes_nothing_and_a_finished_run_cannot_be_cancelled(database_url: str) -> None:
    async with on(database_url) as bench:
        run_id = await bench.start(chain("one", 1))
        await bench.cancel(run_id)
        assert (await bench.cancel(run_id)).repeated
        done = await bench.start(chain("one", 1))
        await bench.work_off()
        with pytest.raises(Conflict, match="already ended") as refused:
            await bench.cancel(done)
        assert refused.value.winner is not None
        assert refused.value.winner["state"] is RunState.SUCCEEDED


async def test_an_idle_run_can_be_cancelled_also_with_compensation(database_url: str) -> None:
    async with on(database_url) as bench:
        for compensate in (False, True):
            run_id = await bench.start(UNDONE, start_now=False)
            await bench.cancel(run_id, compensate=compensate)
            assert await bench.state(run_id) is RunState.CANCELLED


async def test_cancel_with_compensation_undoes_what_was_done_last_things_first(database_url: str) -> None:
    async with on(database_url) as bench:
        run_id = await bench.start(UNDONE)
        for _ in range(2):
            [claim] = await bench.claim()
            await bench.report(claim)
        await bench.cancel(run_id, compensate=True)
        assert await bench.state(run_id) is RunState.COMPENSATING
        assert (await bench.cancel(run_id)).repeated, "an undo that began is finished"
        order = []
        while claims := await bench.claim():
            order += [claim.step.no for claim in claims]
            await bench.report(claims[0])
        assert order == [4, 3]
        found = await bench.store.read_run(TENANT, run_id)
        assert found is not None
        assert (found.run.state, found.run.rollback) == (RunState.ROLLED_BACK, Rollback.COMPLETE)


async def test_what_is_in_flight_settles_first_and_a_late_success_is_undone_too(database_url: str) -> None:
    async with on(database_url) as bench:
        run_id = await bench.start(UNDONE)
        [claim] = await bench.claim()
        await bench.cancel(run_id, compensate=True)
        assert await bench.state(run_id) is RunState.STOPPING
        assert isinstance(await bench.report(claim), Accepted)
        assert await bench.state(run_id) is RunState.COMPENSATING
        assert await bench.work_off() == 1
        assert await bench.state(run_id) is RunState.ROLLED_BACK


async def test_a_second_cancel_ends_the_grace_period_and_so_does_its_clock(database_url: str) -> None:
    async with on(database_url) as bench:
        plan = await bench.publish(UNDONE)
        for impatient in (True, False):
            run_id = await bench.start(plan)
            [claim] = await bench.claim(lease=3600 * SECOND)
            await bench.cancel(run_id, compensate=True)
            if impatient:
                await bench.cancel(run_id)
            else:
                bench.store.clock_offset += 31 * SECOND
                await sweep(bench.transactor)
            assert await bench.state(run_id) is RunState.CANCELLED
            assert isinstance(await bench.report(claim), Fenced)


async def test_a_cancel_races_the_last_report_and_one_of_them_wins_whole(database_url: str) -> None:
    async with benches(database_url, 2) as opened:
        plan = await opened[0].publish(chain("one", 1))
        for number in range(20):
            run_id = await opened[0].start(plan)
            [claim] = await opened[0].claim()
            both = (opened[0].report(claim), opened[1].cancel(run_id))
            await asyncio.gather(*(both if number % 2 else reversed(both)), return_exceptions=True)
            state = await opened[0].state(run_id)
            [step] = await opened[0].step_states(run_id)
            assert (state, step) in {
                (RunState.SUCCEEDED, StepState.SUCCEEDED),
                (RunState.CANCELLED, StepState.CANCELLED),
            }
        assert await opened[0].store.stuck_runs() == []


async def test_a_run_that_does_not_exist_cannot_be_cancelled_or_run_again(database_url: str) -> None:
    async with on(database_url) as bench:
        for run_id in (NOBODYS, "nothing-like-an-id"):
            with pytest.raises(NotFound):
                await bench.cancel(run_id)
            with pytest.raises(NotFound):
                await again(bench, run_id)


# -- rerun -----------------------------------------------------------------------------------------------------------
async def test_a_rerun_is_a_new_run_that_names_the_old_one_and_keeps_what_it_was_given(database_url: str) -> None:
    async with on(database_url) as bench:
        old = await bench.start(
            chain("one", 1),
            b'{"n":1}',
            priority=3,
            business_key="customer-7",
            correlation_id="order-1",
            labels=b'{"colour":"red"}',
        )
        await bench.cancel(old)
        new = (await again(bench, old)).run_id
        assert new != old
        before, after = await bench.store.read_run(TENANT, old), await bench.store.read_run(TENANT, new)
        assert before is not None
        assert after is not None
        assert after.details.rerun_of == old
        for kept in ("input", "workflow", "version", "business_key", "correlation_id", "labels"):
            assert getattr(after.details, kept) == getattr(before.details, kept)
        assert (after.run.priority, after.run.definition_id) == (3, before.run.definition_id)
        assert before.run.state is RunState.CANCELLED
        await bench.work_off()
        assert await bench.state(new) is RunState.SUCCEEDED


async def test_a_rerun_may_be_given_another_input(database_url: str) -> None:
    async with on(database_url) as bench:
        old = await bench.start(chain("one", 1), b'{"n":1}')
        await bench.work_off()
        new = (await again(bench, old, given=b'{"n":2}')).run_id
        found = await bench.store.read_run(TENANT, new)
        assert found is not None
        assert found.details.input == b'{"n":2}'


async def test_only_a_finished_run_is_run_again(database_url: str) -> None:
    async with on(database_url) as bench:
        run_id = await bench.start(chain("one", 1))
        with pytest.raises(Conflict, match="still queued"):
            await again(bench, run_id)


async def test_twenty_reruns_with_one_key_make_one_run(database_url: str) -> None:
    async with on(database_url) as bench:
        old = await bench.start(chain("one", 1))
        await bench.work_off()
        replies = await asyncio.gather(*(again(bench, old, idempotency_key="k") for _ in range(20)))
        assert len({reply.run_id for reply in replies}) == 1
        assert sum(reply.created for reply in replies) == 1
