"""Promise 3: at most one attempt's outcome is accepted per claim, whatever dies, sleeps or comes back."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from stepkeep.kernel.definition import Definition, Handler, Retry
from stepkeep.kernel.errors import Fenced
from stepkeep.kernel.machine.outcomes import Completed
from stepkeep.kernel.machine.states import AttemptState, Category, RunState, StepState, WorkerState
from stepkeep.operations.pipeline.expire import sweep
from tests.processes import Fleet
from tests.suites import first_on, in_proof
from tests.workbench import SECOND, TENANT, Bench, benches, eventually, report_of, task

SHORT = SECOND


def one_step(handler: str, *, lease: int = SHORT, **options: object) -> Definition:
    step = task("only", executor=Handler(name=handler), timeout=600 * SECOND, **options)
    return Definition(name=handler, version=1, steps=(step,), lease=lease)


async def late_writes(url: str, count: int) -> None:
    async with benches(url, 2) as (first, second):
        plan = await first.publish(one_step("noop", lease=60 * SECOND))
        run_ids = [await first.start(plan) for _ in range(count)]
        zombies = await first.claim(count)
        assert len(zombies) == count
        first.store.clock_offset = second.store.clock_offset = 100 * SECOND
        before_takeover = await first.report(zombies[0], Completed(output=b'"late"'))
        assert isinstance(before_takeover, Fenced), "a lease that ran out was believed although nobody took over"
        await expire(second)
        successors = await second.claim(count)
        assert len(successors) == count
        during = [await first.report(zombie, Completed(output=b'"late"')) for zombie in zombies]
        for successor in successors:
            assert not isinstance(await second.report(successor, Completed(output=b'"right"')), Exception)
        after, _ = await first.transactor.report(
            [report_of(zombie, Completed(output=b'"late"')) for zombie in zombies], None
        )
        refused = [reply for reply in (*during, *after) if isinstance(reply, Fenced)]
        assert len(refused) == 2 * count, "a late write was accepted"
        for run_id in run_ids:
            assert await second.state(run_id) is RunState.SUCCEEDED
        outputs = await second.store.read_outputs([(TENANT, run_id, 0) for run_id in run_ids])
        assert set(outputs.values()) == {b'"right"'}
        print(f"late writes tried: {1 + 2 * count}, accepted: 0")


async def expire(bench: Bench) -> None:
    while await sweep(bench.transactor):
        pass


@pytest.mark.parametrize("count", [50, in_proof(500)])
async def test_no_late_write_is_accepted_before_during_or_after_the_successor(database_url: str, count: int) -> None:
    await late_writes(database_url, count)


@first_on("postgres")
async def test_a_worker_stopped_past_its_lease_and_continued_never_overwrites_its_successor(
    database_url: str, tmp_path: Path
) -> None:
    async with benches(database_url) as (bench,):
        plan = await bench.publish(one_step("linger"))
        run_ids = [await bench.start(plan) for _ in range(20)]
        with Fleet(database_url, tmp_path) as workers:

            async def all_begun(times: int) -> bool:
                return all(workers.marked(f"begun-{run_id}") == times for run_id in run_ids)

            sleeper = workers.launch(20)
            await eventually(lambda: all_begun(1), "the first worker to begin every step")
            sleeper.send_signal(signal.SIGSTOP)
            successor = workers.launch(20)
            await eventually(lambda: all_begun(2), "the second worker to take every step over")
            workers.allow("may-end")
            for run_id in run_ids:
                await eventually(lambda r=run_id: succeeded(bench, r), "the successor to finish")  # type: ignore[misc]
            sleeper.send_signal(signal.SIGCONT)
            sleeper.terminate()
            assert await asyncio.to_thread(sleeper.wait, 30) == 0
            outputs = await bench.store.read_outputs([(TENANT, run_id, 0) for run_id in run_ids])
            assert set(outputs.values()) == {str(successor.pid).encode()}
            for run_id in run_ids:
                states = [attempt.state for attempt in await bench.store.read_attempts(TENANT, run_id)]
                assert states == [AttemptState.LOST, AttemptState.SUCCEEDED]


async def succeeded(bench: Bench, run_id: str) -> bool:
    return await bench.state(run_id) is RunState.SUCCEEDED


async def draining(bench: Bench) -> bool:
    return any(worker.state is WorkerState.DRAINING for worker in await bench.store.list_workers(TENANT))


@first_on("postgres")
async def test_a_step_that_kills_its_worker_fails_after_the_cap(database_url: str, tmp_path: Path) -> None:
    async with benches(database_url) as (bench,):
        retry = Retry(max_attempts=10, max_losses=3)
        run_id = await bench.start(one_step("kill-worker", retry=retry))
        with Fleet(database_url, tmp_path) as workers:

            async def over() -> bool:
                if all(process.poll() is not None for process in workers.programs):
                    workers.launch()
                return await bench.state(run_id) is RunState.FAILED

            await eventually(over, "the step to be given up")
            assert workers.marked(f"kills-{run_id}") == 3
        (step,) = await bench.store.read_steps(TENANT, run_id)
        assert (step.state, step.category, step.losses) == (StepState.FAILED, Category.POISON, 3)


@first_on("sqlite")
async def test_a_draining_worker_hands_over_without_burning_an_attempt(database_url: str, tmp_path: Path) -> None:
    async with benches(database_url) as (bench,):
        plan = await bench.publish(one_step("linger", lease=60 * SECOND))
        run_ids = [await bench.start(plan) for _ in range(5)]
        with Fleet(database_url, tmp_path) as workers:

            async def begun(times: int) -> bool:
                return all(workers.marked(f"begun-{run_id}") >= times for run_id in run_ids)

            leaver = workers.launch()
            await eventually(lambda: begun(1), "the first worker to begin")
            leaver.terminate()
            await eventually(lambda: draining(bench), "the worker to say that it drains")
            leaver.terminate()  # whoever asks twice will not wait for handlers to finish
            assert await asyncio.to_thread(leaver.wait, 40) == 0
            workers.launch()
            await eventually(lambda: begun(2), "the second worker to begin, long before the lease runs out")
            workers.allow("may-end")
            for run_id in run_ids:
                await eventually(lambda r=run_id: succeeded(bench, r), "the run to succeed")  # type: ignore[misc]
                (step,) = await bench.store.read_steps(TENANT, run_id)
                assert (step.attempts, step.losses) == (0, 0)
                states = [attempt.state for attempt in await bench.store.read_attempts(TENANT, run_id)]
                assert states == [AttemptState.RELEASED, AttemptState.SUCCEEDED]
