"""What one attempt sets for itself is gone before the next, in whichever place both of them run."""

from __future__ import annotations

import asyncio
import os
from contextvars import ContextVar
from typing import Any

import msgspec
import pytest
from tests.worker import process_handlers
from tests.worker.bed import QUICK, On, step
from tests.worker.making import handler_job

from stepkeep.kernel.machine.outcomes import Completed
from stepkeep.kernel.machine.states import RunState
from stepkeep.worker.attempts.executor import Job
from stepkeep.worker.attempts.runner import PooledRunner
from stepkeep.worker.settings import Settings

WHO: ContextVar[str] = ContextVar("who", default="nobody")


def swap() -> str:
    found = WHO.get()
    WHO.set("an attempt")
    return found


async def swap_async() -> str:
    return swap()


async def answers(*jobs: Job) -> list[Any]:
    """The answers of jobs that run one after the other on one runner with a single place of each kind."""
    runner = PooledRunner(Settings(concurrency=1))
    ended: asyncio.Queue[Any] = asyncio.Queue()
    runner.open(ended.put_nowait)
    found = []
    try:
        for job in jobs:
            runner.start([job])
            async with asyncio.timeout(30):
                [(_, outcome)] = await ended.get()
            assert isinstance(outcome, Completed), outcome
            found.append(msgspec.json.decode(outcome.output or b"null"))
    finally:
        runner.close()
    return found


@pytest.mark.parametrize("handler", [swap, swap_async])
async def test_a_context_variable_is_not_handed_to_the_next_attempt(handler: Any) -> None:
    assert await answers(*(handler_job(handler) for _ in range(3))) == ["nobody"] * 3


async def test_a_context_variable_is_not_handed_to_the_next_attempt_in_a_process() -> None:
    jobs = [handler_job(process_handlers.swap_variable, mode="process") for _ in range(3)]
    assert await answers(*jobs) == ["nobody"] * 3


@pytest.mark.parametrize(("first", "second"), [(swap, swap_async), (swap_async, swap_async), (swap_async, swap)])
async def test_a_context_variable_does_not_travel_with_the_report_to_steps_that_follow(
    on_store: On, first: Any, second: Any
) -> None:
    async with on_store() as bed:
        bed.handler("first", first)
        bed.handler("second", second)
        runs = [await bed.start(step("first"), step("second", "first", order=1), name=f"flow-{no}") for no in range(3)]
        assert await bed.finish(*runs, settings=QUICK) is RunState.SUCCEEDED
        seen = [await bed.output(run, no) for run in runs for no in (0, 1)]
        assert seen == ["nobody"] * 6


async def test_what_a_handler_changes_for_its_process_is_as_before_for_the_next() -> None:
    jobs = [handler_job(process_handlers.change_surroundings, mode="process") for _ in range(3)]
    found = await answers(*jobs)
    assert len({each["pid"] for each in found}) == 1
    assert [each["directory"] for each in found] == [os.getcwd()] * 3
    assert [each["variables"] for each in found] == [[None, os.environ.get("PATH")]] * 3
    assert len({each["mask"] for each in found}) == 1
    assert found[0]["mask"] != 0o77
