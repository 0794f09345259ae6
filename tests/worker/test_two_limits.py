"""Two limits at work: coroutines wait in all the places a worker has, what blocks has its threads, and neither kind
keeps the other out."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace
from tests.workbench import eventually, until
from tests.worker.bed import QUICK, TENANT, Bed, On, step

from stepkeep.kernel.decide.decision import Claimer
from stepkeep.kernel.definition import Command, Retry, Rule, StepDefinition
from stepkeep.kernel.errors import InvalidInput
from stepkeep.kernel.machine.events import StepReported
from stepkeep.kernel.machine.outcomes import Completed
from stepkeep.kernel.machine.states import RunState, StepState
from stepkeep.operations.pipeline.transact import Claim
from stepkeep.operations.pipeline.workers import register
from stepkeep.worker.loop import Worker

FIFTY = replace(QUICK, concurrency=50, threads=3)


class Crowd:
    """Handlers of both kinds that wait until they are let go, and how many of them there were at once."""

    def __init__(self, bed: Bed) -> None:
        self._let_go, self._lock = threading.Event(), threading.Lock()
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
        self.inside = {"patient": 0, "blocking": 0}
        self.most = {"patient": 0, "blocking": 0, "all": 0}

        async def patient() -> None:
            self._count("patient", 1)
            await self._wait()
            self._count("patient", -1)

        def blocking() -> None:
            self._count("blocking", 1)
            self._let_go.wait(30)
            self._count("blocking", -1)

        async def quick() -> int:
            return 1

        bed.handler("patient", patient)
        bed.handler("blocking", blocking)
        bed.handler("quick", quick)
        bed.handler("brisk", lambda: 1)

    def _count(self, kind: str, change: int) -> None:
        with self._lock:
            self.inside[kind] += change
            self.most[kind] = max(self.most[kind], self.inside[kind])
            self.most["all"] = max(self.most["all"], sum(self.inside.values()))

    async def _wait(self) -> None:
        gone = asyncio.Event()
        with self._lock:
            if self._let_go.is_set():
                return
            self._waiting.append((asyncio.get_running_loop(), gone))
        await gone.wait()

    def is_inside(self, **counts: int) -> Callable[[], bool]:
        return lambda: self.inside == {"patient": 0, "blocking": 0} | counts

    def let_go(self) -> None:
        with self._lock:
            self._let_go.set()
            waiting, self._waiting = self._waiting, []
        for loop, gone in waiting:
            loop.call_soon_threadsafe(gone.set)


async def start_many(bed: Bed, uses: str, count: int) -> list[str]:
    return await start_flow(bed, count, step(uses), name=uses)


async def start_flow(bed: Bed, count: int, *steps: StepDefinition, name: str = "flow") -> list[str]:
    first = await bed.start(*steps, name=name)
    plan = bed.transactor.plans.get((await bed.run(first)).definition_id)
    return [first, *[await bed.start_again(plan) for _ in range(count - 1)]]


async def serving(worker: Worker, crowd: Crowd, body: Callable[[], Awaitable[None]]) -> None:
    task = asyncio.create_task(worker.serve())
    try:
        async with asyncio.timeout(40):
            await body()
    finally:
        crowd.let_go()
        worker.stop()
        await task


async def test_three_threads_and_fifty_places_run_fifty_at_once_of_which_three_block_while_more_of_both_wait(
    on_store: On,
) -> None:
    async with on_store() as bed:
        crowd = Crowd(bed)
        runs = await start_many(bed, "patient", 60) + await start_many(bed, "blocking", 8)
        worker = bed.worker(FIFTY)

        async def watch() -> None:
            await until(crowd.is_inside(patient=47, blocking=3))
            assert worker.held == 50
            crowd.let_go()
            await eventually(bed.ended(*runs))

        await serving(worker, crowd, watch)
        assert crowd.most == {"patient": 47, "blocking": 3, "all": 50}


async def test_a_worker_that_only_has_coroutines_to_run_fills_all_its_places_with_them(on_store: On) -> None:
    async with on_store() as bed:
        crowd = Crowd(bed)
        runs = await start_many(bed, "patient", 60)
        worker = bed.worker(FIFTY)

        async def watch() -> None:
            await until(crowd.is_inside(patient=50))
            crowd.let_go()
            await eventually(bed.ended(*runs))

        await serving(worker, crowd, watch)
        assert crowd.most["all"] == 50


@pytest.mark.parametrize(
    ("crowded", "inside", "other"),
    [("blocking", {"blocking": 3}, "quick"), ("patient", {"patient": 47}, "brisk")],
)
async def test_a_house_full_of_one_kind_does_not_keep_the_other_from_being_claimed(
    on_store: On, crowded: str, inside: dict[str, int], other: str
) -> None:
    async with on_store() as bed:
        crowd = Crowd(bed)
        before = await start_many(bed, other, 1)
        waiting = await start_many(bed, crowded, 60)
        worker = bed.worker(FIFTY)

        async def watch() -> None:
            await until(crowd.is_inside(**inside))
            await eventually(bed.ended(*before))
            await eventually(bed.ended(*await start_many(bed, other, 20)))
            assert crowd.is_inside(**inside)()
            crowd.let_go()
            await eventually(bed.ended(*waiting))

        await serving(worker, crowd, watch)


async def test_a_thread_that_comes_free_is_filled_at_once_although_nobody_calls(on_store: On) -> None:
    """What waits beyond the threads is found when one ends, not when the next regular look is due."""

    async with on_store() as bed:
        crowd = Crowd(bed)
        runs = await start_many(bed, "brisk", 40)
        patient = replace(FIFTY, idle_poll_seconds=30.0, rare_poll_seconds=30.0)

        async def watch() -> None:
            async with asyncio.timeout(20):
                await eventually(bed.ended(*runs))

        await serving(bed.worker(patient), crowd, watch)


async def test_steps_that_block_after_coroutines_never_have_more_than_the_threads(on_store: On) -> None:
    async with on_store() as bed:
        crowd = Crowd(bed)
        runs = await start_flow(bed, 20, step("quick"), step("blocking", "quick", order=1), step("brisk", "blocking"))
        worker = bed.worker(FIFTY)

        async def watch() -> None:
            await until(crowd.is_inside(blocking=3))
            await until(lambda: worker.held == 3)
            crowd.let_go()
            await eventually(bed.ended(*runs))

        await serving(worker, crowd, watch)
        assert crowd.most == {"patient": 0, "blocking": 3, "all": 3}


async def test_one_commit_over_many_runs_chains_no_more_blocking_steps_than_its_worker_has_slots_for(
    on_store: On,
) -> None:
    async with on_store() as bed:
        Crowd(bed)
        await start_flow(bed, 6, step("quick"), step("blocking", "quick", order=1), step("also", "quick", uses="quick"))
        row = await register(bed.store, tenant=TENANT, app="tests", capacity=9)
        queues = {spec.name: number for number, spec in await bed.store.list_queues(TENANT)}
        worker = Claimer(actor=row.id, worker=row.no, lease=None, slots=6, queues=frozenset(queues.values()))
        claims = await bed.transactor.claim(worker, limit=6)
        ended = [
            StepReported(
                tenant=TENANT,
                run_id=claim.run_id,
                actor=row.id,
                no=claim.step.no,
                fence=claim.step.fence,
                worker=row.no,
                outcome=Completed(output=b"1"),
            )
            for claim in claims
        ]
        blocking = replace(worker, slots=7, blocking=frozenset({queues["blocking"]}), blocking_slots=2)
        _, chained = await bed.transactor.report(ended, blocking)
        assert Counter(claim.planned.name for claim in chained) == {"blocking": 2, "also": 5}


async def test_four_places_are_four_of_anything(on_store: On) -> None:
    async with on_store() as bed:
        crowd = Crowd(bed)
        runs = await start_many(bed, "blocking", 6)
        worker = bed.worker(QUICK, concurrency=4)

        async def watch() -> None:
            await until(crowd.is_inside(blocking=4))
            runs.extend(await start_many(bed, "patient", 6))
            crowd.let_go()
            await eventually(bed.ended(*runs))

        await serving(worker, crowd, watch)
        assert crowd.most["all"] == 4


async def test_a_program_takes_a_thread_s_place(on_store: On) -> None:
    async with on_store() as bed:
        crowd = Crowd(bed)
        await start_many(bed, "blocking", 3)
        worker = bed.worker(FIFTY)

        async def watch() -> None:
            await until(crowd.is_inside(blocking=3))
            program = await bed.start(step("program", executor=Command(argv=("true",))), name="program")
            await eventually(bed.ended(*await start_many(bed, "quick", 5)))
            assert (await bed.steps(program))[0].state is StepState.READY
            crowd.let_go()
            await eventually(bed.ended(program))

        await serving(worker, crowd, watch)


async def test_a_thread_that_outlives_its_timeout_is_still_one_of_the_threads(on_store: On) -> None:
    async with on_store() as bed:
        crowd = Crowd(bed)
        once = Retry(max_attempts=1)
        late = await bed.start(step("blocking", timeout=100_000, retry=once), name="late")
        worker = bed.worker(FIFTY, threads=1)

        async def watch() -> None:
            await eventually(bed.ended(late))
            waits = await start_many(bed, "brisk", 1)
            await eventually(bed.ended(*await start_many(bed, "quick", 5)))
            assert (await bed.steps(waits[0]))[0].state is StepState.READY
            crowd.let_go()
            await eventually(bed.ended(*waits))

        await serving(worker, crowd, watch)


async def test_the_rules_of_a_coroutine_wait_for_no_handler_that_blocks(on_store: On) -> None:
    """Judged too late they would fail their step."""

    async with on_store() as bed:
        crowd = Crowd(bed)
        await start_many(bed, "blocking", 3)

        async def watch() -> None:
            await until(crowd.is_inside(blocking=3))
            judged = await bed.start(step("quick", rules=(Rule(expression="output == 1"),)), name="judged")
            await eventually(bed.ended(judged))
            assert (await bed.run(judged)).state is RunState.SUCCEEDED
            assert crowd.is_inside(blocking=3)()

        await serving(bed.worker(FIFTY), crowd, watch)


async def test_one_kind_of_work_is_looked_for_and_claimed_by_one_look(on_store: On) -> None:
    async with on_store() as bed:
        Crowd(bed)
        runs = [*await start_many(bed, "brisk", 3), *await start_many(bed, "quick", 3)]
        asked: list[frozenset[int]] = []
        transactor: Any = bed.transactor
        real = transactor.claim

        async def claim(claimer: Claimer, **asked_for: Any) -> list[Claim]:
            asked.append(claimer.queues)
            found: list[Claim] = await real(claimer, **asked_for)
            return found

        transactor.claim = claim
        assert await bed.finish(*runs) is RunState.SUCCEEDED
        assert {len(queues) for queues in asked} == {2}, "as many threads as places: both queues at once"
        asked.clear()
        runs = [*await start_many(bed, "brisk", 3), *await start_many(bed, "quick", 3)]
        assert await bed.finish(*runs, settings=FIFTY) is RunState.SUCCEEDED
        assert {len(queues) for queues in asked} == {1}, "fewer threads than places: each kind by itself"


async def test_a_worker_without_a_thread_is_refused(on_store: On) -> None:
    async with on_store() as bed:
        with pytest.raises(InvalidInput, match="at least one slot"):
            bed.worker(QUICK, threads=0)
        with pytest.raises(InvalidInput, match="at least one slot"):
            bed.worker(QUICK, concurrency=0)
