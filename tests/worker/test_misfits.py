"""A deployment whose handler no longer fits stored inputs is its worker's problem: hand back, say it, harm no run."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.workbench import TENANT, eventually, results_of, until
from tests.worker.bed import QUICK, Bed, On, step

from stepkeep.definition.python.registry import HandlerSpec, Registry
from stepkeep.engine import AsyncEngine
from stepkeep.kernel.definition import Definition
from stepkeep.kernel.machine.journal import open_entry
from stepkeep.kernel.machine.states import AttemptState, RunState, StepState
from stepkeep.operations.runs import diagnosis
from stepkeep.operations.runs.status import list_workers
from stepkeep.worker.attempts.misfits import FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, Misfits
from stepkeep.worker.loop import Worker
from stepkeep.worker.runtime import Runtime


def old(n: int) -> int:
    return n + 1


def new(n: int, region: str) -> str:
    return f"{n} {region}"


def workers(bed: Bed, function: object) -> Worker:
    registry = Registry()
    registry.register(HandlerSpec(name="b", function=function))  # type: ignore[arg-type]
    return Worker(bed.transactor, registry, settings=QUICK)


async def handed_back(bed: Bed, run_id: str) -> bool:
    return any(attempt.state is AttemptState.RELEASED for attempt in await bed.attempts(run_id))


async def test_a_new_required_parameter_hands_the_step_back_and_an_older_worker_serves_it(
    on_each: On, caplog: pytest.LogCaptureFixture
) -> None:
    async with on_each() as bed:
        run_id = await bed.start(step("b", inputs={"n": 41}))
        first = workers(bed, new)
        serving = asyncio.create_task(first.serve())
        await eventually(lambda: handed_back(bed, run_id))
        row = (await bed.steps(run_id))[0]
        assert (row.state, row.attempts, row.losses) == (StepState.READY, 0, 0)
        [entry] = [
            cause
            for sealed in await bed.store.read_journal(TENANT, run_id, 0)
            for cause in open_entry(sealed.body).causes
            if cause.event == "step_reported"
        ]
        assert entry.detail is not None
        assert "handler b needs region" in entry.detail["reason"]

        # What it says, and where.
        async def told() -> bool:
            [found] = (await list_workers(bed.transactor, tenant=TENANT, live_only=True))["workers"]
            return bool(found["misfits"])

        await eventually(told)
        [worker] = (await list_workers(bed.transactor, tenant=TENANT, live_only=True))["workers"]
        assert "handler b needs region; the stored inputs are n" in worker["misfits"][0]
        explained = await diagnosis.explain(bed.transactor, run_id, None, tenant=TENANT)
        assert explained.causes[0].code == "misfit"
        assert f"worker {worker['id']} hands it back: step b of" in explained.causes[0].sentence
        assert "handed back: handler b needs region" in caplog.text
        # Other workers may serve it.
        await asyncio.wait_for(workers(bed, old).run_until(bed.ended(run_id)), 30)
        assert (await bed.run(run_id)).state is RunState.SUCCEEDED
        assert await bed.output(run_id, 0) == 42
        first.stop(0.0)
        await serving


async def test_an_argument_that_the_handler_no_longer_takes_is_a_misfit_too(on_each: On) -> None:
    async with on_each() as bed:
        run_id = await bed.start(step("b", inputs={"n": 1, "gone": "${{ input }}"}))
        worker = workers(bed, old)
        serving = asyncio.create_task(worker.serve())
        await eventually(lambda: handed_back(bed, run_id))
        attempts = await bed.attempts(run_id)
        assert "handler b has no parameter gone" in str(attempts[0].error)
        assert (await bed.run(run_id)).state in (RunState.QUEUED, RunState.RUNNING)
        worker.stop(0.0)
        await serving


async def test_a_worker_tries_a_misfit_ever_more_rarely(on_store: On) -> None:
    async with on_store() as bed:
        run_id = await bed.start(step("b", inputs={"n": 1}))
        worker = workers(bed, new)
        serving = asyncio.create_task(worker.serve())
        await eventually(lambda: handed_back(bed, run_id))
        looks = results_of(bed.store, "list_queues")
        for _ in range(5):
            seen = len(looks)
            worker.wake(new_queues=True)
            await until(lambda seen=seen: len(looks) > seen)  # type: ignore[misc]
        assert len(await bed.attempts(run_id)) == 1
        worker.stop(0.0)
        await serving


def test_pauses_double_up_to_a_limit() -> None:
    class Moved(Runtime):
        now = 0.0

        def monotonic(self) -> float:
            return self.now

    assert FIRST_PAUSE_SECONDS < LONGEST_PAUSE_SECONDS
    moved = Moved()
    misfits = Misfits(moved)
    lengths = []
    for _ in range(8):
        misfits.pause(7)
        began = moved.now
        while 7 in misfits.paused:
            moved.now += 1.0
        lengths.append(moved.now - began)
    assert lengths == [10, 20, 40, 80, 160, 300, 300, 300]


async def test_values_that_do_not_fit_stay_the_failure_of_the_run(on_store: On) -> None:
    async with on_store() as bed:
        bed.handler("b", new)
        run_id = await bed.start(step("b", inputs="${{ input }}"), given={"n": 1})
        assert await bed.finish(run_id) is RunState.FAILED
        assert "needs region" in str((await bed.run(run_id)).error)


async def test_a_declared_input_that_lacks_the_parameter_is_a_misfit(on_store: On) -> None:
    async with on_store() as bed:
        run_id = await bed.start(step("b", inputs="${{ input }}"), given={"n": 1}, input_fields=("n",))
        worker = workers(bed, new)
        serving = asyncio.create_task(worker.serve())
        await eventually(lambda: handed_back(bed, run_id))
        worker.stop(0.0)
        await serving


async def test_the_other_steps_of_the_worker_go_on(on_store: On) -> None:
    async with on_store() as bed:
        stays = await bed.start(step("b", inputs={"n": 1}), name="stays")
        bed.handler("b", new)
        bed.handler("a", lambda: 1)
        goes = [await bed.start(step("a", inputs={}), name=f"goes-{no}") for no in range(3)]
        assert await bed.finish(*goes) is RunState.SUCCEEDED
        assert (await bed.run(stays)).state in (RunState.QUEUED, RunState.RUNNING)


async def test_a_run_that_was_handed_back_conforms(tmp_path: Path) -> None:
    registry = Registry()
    registry.register(HandlerSpec(name="b", function=new))
    definition = Definition(name="flow", version=1, steps=(step("b", inputs={"n": 1}),))
    async with AsyncEngine(f"sqlite:///{tmp_path}/test.db", registry=registry) as engine:
        run_id = (await engine.start(definition)).run_id
        worker = engine.worker(settings=replace(QUICK, grace_seconds=0.0))

        async def back() -> bool:
            return (await engine.show(run_id))["steps"][0]["history"] != []

        await asyncio.wait_for(worker.run_until(back), 30)
        shown = (await engine.show(run_id))["steps"][0]
        assert shown["attempts"] == 0
        assert "needs region" in shown["history"][0]["error"]
        await engine.cancel(run_id)
        assert (await engine.certify(run_id)).ok
