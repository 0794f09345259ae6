"""Group commit in the worker: what ends together is reported together, and holds no slot that others could use."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace
from tests.workbench import until
from tests.worker.bed import QUICK, Bed, On, step
from tests.worker.making import handler_job

from stepkeep.kernel.decide.decision import Claimer
from stepkeep.kernel.machine.events import StepReported
from stepkeep.kernel.machine.outcomes import Outcome, Stopped
from stepkeep.kernel.machine.states import RunState
from stepkeep.worker.attempts.executor import Job
from stepkeep.worker.cancellation import Why
from stepkeep.worker.pools import loop as handlers_loop


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that stands still for a moment must not split a group."""
    monkeypatch.setattr(handlers_loop, "TOGETHER", 3600.0)


def watch_reports(bed: Bed) -> list[int]:
    """The sizes of all reports from now on."""
    sizes: list[int] = []
    transactor: Any = bed.transactor
    real = transactor.report

    async def report(events: Sequence[StepReported], claimer: Claimer | None) -> Any:
        sizes.append(len(events))
        return await real(events, claimer)

    transactor.report = report
    return sizes


@pytest.mark.usefixtures("unhurried")
async def test_runs_that_were_claimed_together_are_reported_together_step_by_step(on_store: On) -> None:
    async with on_store() as bed:

        async def quick() -> int:
            return 1

        bed.handler("quick", quick)
        flow = [step(f"s{n}", *(f"s{n - 1}",) * (n > 0), uses="quick", order=n) for n in range(3)]
        run_ids = [await bed.start(*flow) for _ in range(6)]
        sizes = watch_reports(bed)
        assert await bed.finish(*run_ids) is RunState.SUCCEEDED
        assert sizes == [6, 6, 6]


@pytest.mark.usefixtures("unhurried")
async def test_steps_of_one_run_that_may_run_beside_each_other_share_a_lane(on_store: On) -> None:
    async with on_store() as bed:

        async def quick() -> int:
            return 1

        bed.handler("quick", quick)
        run_id = await bed.start(*(step(f"s{n}", uses="quick") for n in range(8)))
        sizes = watch_reports(bed)
        assert await bed.finish(run_id) is RunState.SUCCEEDED
        assert sizes == [8]


async def test_a_report_under_way_holds_no_slot_that_it_cannot_fill(on_store: On) -> None:
    async with on_store() as bed:
        begun: list[str] = []
        gate = asyncio.Event()

        async def quick(ctx: Any) -> None:
            begun.append(ctx.run_id)

        bed.handler("quick", quick)
        transactor: Any = bed.transactor
        real = transactor.report

        async def report(events: Sequence[StepReported], claimer: Claimer | None) -> Any:
            await gate.wait()
            return await real(events, claimer)

        transactor.report = report
        first = await bed.start(step("quick"))
        worker = bed.worker(replace(QUICK, concurrency=3))
        serving = asyncio.create_task(worker.serve())
        await until(lambda: begun == [first])
        others = [await bed.start(step("quick")) for _ in range(2)]
        await until(lambda: sorted(begun) == sorted([first, *others]))
        gate.set()
        await until(lambda: worker.held == 0)
        worker.stop()
        await serving


def test_a_job_that_is_stopped_before_it_began_is_heard_of_all_the_same() -> None:
    """Else its slot would be held forever by a handler that nobody runs."""

    async def quick() -> int:
        return 1

    place = handlers_loop.LoopPool(result_limit=1000)
    ended: list[tuple[Job, Outcome]] = []
    place.open(ended.extend)
    job = handler_job(quick)
    blocked, entered = threading.Event(), threading.Event()

    async def block() -> None:
        entered.set()
        blocked.wait()

    place.start([handler_job(block)])
    assert entered.wait(10)
    place.start([job])
    job.cancelled.set(Why.LEASE_LOST)
    place.stop(job)
    blocked.set()
    place.close()
    assert (job, Stopped()) in ended
