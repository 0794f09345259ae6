"""Workers and hints: an idle one comes at once when it is called, and finds its work all the same when it is not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace
from tests.workbench import count_calls, eventually, until
from tests.worker.bed import QUICK, Bed, bed_on, step

from stepkeep.store.protocol import Notification
from stepkeep.worker.chores.polling import Pace
from stepkeep.worker.runtime import Runtime

HOUR = 3600.0
SLEEPY = replace(
    QUICK,
    busy_poll_seconds=HOUR,
    idle_poll_seconds=HOUR,
    rare_poll_seconds=HOUR,
    refresh_queues_seconds=HOUR,
    sweep_seconds=HOUR,
    heartbeat_seconds=HOUR,
)
"""After its first look it looks for work only when it is called."""


@asynccontextmanager
async def asleep(url: str) -> AsyncIterator[tuple[Bed, Bed]]:
    """A worker on an opening of its own that has gone to sleep, and another opening to start runs from."""
    async with bed_on(url) as mine, bed_on(url) as theirs:
        theirs.handler("work", lambda: 1)
        first = await theirs.start(step("work"))
        worker = theirs.worker(SLEEPY)
        serving = asyncio.create_task(worker.serve())
        try:
            await until(lambda: theirs.store.notifier.is_connected)
            await eventually(theirs.ended(first))
            yield mine, theirs
        finally:
            worker.stop()
            await serving


async def until_ended(bed: Bed, run_id: str) -> None:
    await eventually(bed.ended(run_id))


async def test_a_sleeping_worker_comes_when_a_run_is_started_elsewhere(database_url: str) -> None:
    async with asleep(database_url) as (mine, _):
        await until_ended(mine, await mine.start(step("work")))


async def test_a_sleeping_worker_comes_for_a_queue_that_it_has_never_heard_of(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepkeep.worker.loop.NEWS", 0.0)

    async with asleep(database_url) as (mine, theirs):
        theirs.handler("novel", lambda: 2)
        await until_ended(mine, await mine.start(step("novel"), name="novel"))


async def test_a_worker_finds_what_no_hint_told_it_of(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with bed_on(database_url) as mine, bed_on(database_url) as theirs:
        monkeypatch.setattr(mine.store.notifier, "publish", lambda topics: None)
        theirs.handler("work", lambda: 1)
        worker = theirs.worker(replace(QUICK, rare_poll_seconds=0.05))
        serving = asyncio.create_task(worker.serve())
        try:
            await until_ended(mine, await mine.start(step("work")))
        finally:
            worker.stop()
            await serving


async def test_a_queue_of_somebody_else_is_asked_about_once(database_url: str) -> None:
    async with asleep(database_url) as (mine, theirs):
        asked = count_calls(theirs, "list_queues")
        for _ in range(5):
            theirs.store.notifier.deliver(Notification(frozenset({999_999})))
            await until(lambda: bool(asked))
        # What the worker does next shows that it has heard all of them.
        await until_ended(mine, await mine.start(step("work")))
        assert len(asked) == 1


async def test_an_idle_worker_looks_without_a_transaction(database_url: str) -> None:
    async with bed_on(database_url) as bed:
        bed.handler("work", lambda: 1)
        await bed.finish(await bed.start(step("work")))
        looks, changes = count_calls(bed, "has_ready"), count_calls(bed, "change")
        worker = bed.worker(replace(QUICK, idle_poll_seconds=0.01, rare_poll_seconds=0.01, sweep_seconds=HOUR))
        serving = asyncio.create_task(worker.serve())
        try:
            await until(lambda: len(looks) > 5)
            before = len(changes)
            await until(lambda: len(looks) > 20)
            assert len(changes) == before
        finally:
            worker.stop()
            await serving


def test_polls_grow_rarer_and_rarer_still_where_notifications_arrive() -> None:
    for heard, longest in ((False, QUICK.idle_poll_seconds), (True, QUICK.rare_poll_seconds)):
        pace = Pace(QUICK, Steady(), lambda heard=heard: heard)
        pauses = []
        for _ in range(20):
            pace.found(0, 16)
            pauses.append(pace.seconds)
        assert pauses == sorted(pauses)
        assert pauses[-1] == longest
        pace.found(1, 16)
        assert pace.seconds == QUICK.busy_poll_seconds
        pace.found(1, 16, was_called=True)
        assert (pace.seconds > QUICK.busy_poll_seconds) is heard
        pace.found(16, 16, was_called=True)
        assert pace.found_all


class Steady(Runtime):
    def spread(self, seconds: float, by: float = 0.25) -> float:
        return seconds
