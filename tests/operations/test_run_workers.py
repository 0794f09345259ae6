"""The workers that an engine has for its own runs: registered once, at rest between runs, gone with the engine."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import pytest

import stepkeep as sk
from stepkeep.definition.python.registry import HandlerSpec, Registry
from stepkeep.engine import AsyncEngine
from stepkeep.engine.hosted import MOST_RESTING
from stepkeep.kernel.definition import QueueSpec
from stepkeep.kernel.errors import ConnectionLost
from stepkeep.kernel.machine.states import RunState
from stepkeep.operations.remote.services import Known, Lack, Service
from stepkeep.store.protocol import Store
from stepkeep.worker.shared import NO_RUN
from tests.workbench import until
from tests.worker.bed import QUICK

caller: ContextVar[str] = ContextVar("caller", default="nobody")


def flow_of(registry: Registry, name: str, *functions: Callable[..., Any]) -> sk.Workflow:
    """A sequence of these functions."""
    made = sk.Workflow(name, version=1, timeout="1m")
    for number, function in enumerate(functions):
        handler = f"{name}.{number}"
        if registry.get(handler) is None:
            registry.register(HandlerSpec(name=handler, function=function))
        made.step(f"step-{number}", handler, inputs={})
    return made


async def note() -> str:
    return caller.get()


def sync_note() -> str:
    return "done"


async def live(engine: AsyncEngine) -> list[str]:
    return [one["id"] for one in (await engine.workers())["workers"]]


async def test_two_runs_share_one_registration_and_the_end_of_the_engine_ends_it(database_url: str) -> None:
    registry = Registry()
    flow = flow_of(registry, "shared", note, sync_note)
    async with AsyncEngine(database_url, registry=registry, auto_migrate=True) as engine:
        assert (await engine.run(flow)).output == "done"
        first = await live(engine)
        for _ in range(3):
            run = await engine.run(flow)
            assert run.state is RunState.SUCCEEDED
            assert (await engine.certify(run.run_id)).ok
        assert len(first) == 1
        assert await live(engine) == first
    async with AsyncEngine(database_url, registry=registry, auto_migrate=True) as engine:
        assert await live(engine) == []
        [ended] = (await engine.workers(live_only=False))["workers"]
        assert (ended["id"], ended["state"]) == (first[0], "shutdown")


def test_a_program_without_a_loop_shares_it_between_its_threads_and_leaves_none(database_url: str) -> None:
    registry, outputs = Registry(), list[Any]()
    flow = flow_of(registry, "threads", sync_note)
    with sk.open(database_url, registry=registry, auto_migrate=True) as engine:
        threads = [threading.Thread(target=lambda: outputs.append(engine.run(flow).output)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert outputs == ["done"] * 8
        assert 1 <= len(engine.workers()["workers"]) <= MOST_RESTING
    with sk.open(database_url, registry=registry, auto_migrate=True) as engine:
        assert engine.workers()["workers"] == []


def test_an_engine_serves_one_loop_after_another(tmp_path: object) -> None:
    registry = Registry()
    flow = flow_of(registry, "loops", note)
    engine = AsyncEngine(f"sqlite:///{tmp_path}/loops.db", registry=registry)
    asyncio.run(engine.open())
    for _ in range(2):
        assert asyncio.run(engine.run(flow)).state is RunState.SUCCEEDED
        assert asyncio.run(live(engine)) == []
    asyncio.run(engine.close())


async def test_a_worker_at_rest_claims_nothing_and_asks_the_database_nothing(database_url: str) -> None:
    registry = Registry()
    flow = flow_of(registry, "rest", note)
    async with AsyncEngine(database_url, registry=registry, auto_migrate=True) as engine:
        await engine.publish(flow)
        worker = engine.worker(only_run=NO_RUN, settings=QUICK)
        serving = asyncio.ensure_future(worker.serve())
        await worker.joined.wait()
        asked = count_calls(engine.store, "change", "has_ready", "find_due", "find_claimable", "write_if_unchanged")
        waiting = await engine.start(flow)
        before = len(asked)
        # A worker with the same pauses, which serves another registry, shows that many of them have passed.
        async with AsyncEngine(database_url, registry=Registry()) as other:
            busy, swept = other.worker(settings=QUICK), count_calls(other.store, "find_due")
            working = asyncio.ensure_future(busy.serve())
            await until(lambda: len(swept) >= 6)
            busy.stop()
            await working
        assert asked[before:] == []
        assert (await engine.show(waiting.run_id))["run"]["state"] == RunState.QUEUED
        worker.stop()
        await serving


def count_calls(store: Store, *names: str) -> list[str]:
    """The names of the methods that are called from now on."""
    calls: list[str] = []

    def counted(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            calls.append(name)
            return real(*given, **named)

        return call

    for name in names:
        setattr(store, name, counted(name, getattr(store, name)))
    return calls


async def test_a_short_run_is_four_transactions_and_reads_nothing(database_url: str) -> None:
    async def go() -> None:
        registry = Registry()
        flow = flow_of(registry, "short", note, note, note)
        async with AsyncEngine(database_url, registry=registry, auto_migrate=True) as engine:
            plan = await engine.publish(flow)
            # The first marks the worker as busy, and reads the clock of the database.
            await engine.run(plan)
            reads = ("read_states", "read_outputs", "read_run", "list_queues", "find_claimable", "has_ready")
            for _ in range(20):
                asked = count_calls(engine.store, "change", "write_if_unchanged", *reads)
                await engine.run(plan)
                if asked == ["write_if_unchanged"] * 4:
                    return
            raise AssertionError(f"the last of 20 runs called {asked}")

    await go()


async def test_a_handler_that_is_registered_later_is_found(database_url: str) -> None:

    async def note() -> str:
        return "before"

    async def again() -> str:
        return "again"

    again.__qualname__ = note.__qualname__
    registry = Registry()
    first = flow_of(registry, "first", note)
    async with AsyncEngine(database_url, registry=registry, auto_migrate=True) as engine:
        assert (await engine.run(first)).state is RunState.SUCCEEDED
        assert (await engine.run(flow_of(registry, "second", sync_note, note))).state is RunState.SUCCEEDED
        # The same workflow with other code, as in a notebook.
        registry.register(HandlerSpec(name="first.0", function=again))
        assert (await engine.run(first)).output == "again"
        assert len(await live(engine)) == 1


async def test_each_run_has_the_context_of_its_own_caller(database_url: str) -> None:
    registry = Registry()
    flow = flow_of(registry, "context", note, note)
    async with AsyncEngine(database_url, registry=registry, auto_migrate=True) as engine:
        for name in ("ada", "bea"):
            caller.set(name)
            assert (await engine.run(flow)).output == name


async def test_a_refused_start_leaves_the_worker_at_rest(database_url: str) -> None:
    registry = Registry()
    flow = flow_of(registry, "refused", note)
    async with AsyncEngine(database_url, registry=registry, auto_migrate=True) as engine:
        first = await engine.run(flow, {"a": 1}, idempotency_key="once")
        workers = await live(engine)
        with pytest.raises(sk.KeyReused):
            await engine.run(flow, {"a": 2}, idempotency_key="once")
        again = await engine.run(flow, {"a": 1}, idempotency_key="once")
        assert (again.run_id, again.output) == (first.run_id, first.output)
        assert await live(engine) == workers


async def test_a_caller_that_gives_up_hands_its_step_back(database_url: str) -> None:
    registry, begun = Registry(), asyncio.Event()
    here = asyncio.get_running_loop()

    async def hang() -> None:
        here.call_soon_threadsafe(begun.set)
        await asyncio.sleep(3600)

    flow = flow_of(registry, "hang", hang)
    async with AsyncEngine(database_url, registry=registry, auto_migrate=True) as engine:
        running = asyncio.ensure_future(engine.run(flow, business_key="b"))
        await begun.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        [run] = (await engine.runs(business_key="b"))["runs"]
        [step] = (await engine.show(run["id"]))["steps"]
        assert (step["state"], step["attempts"]) == ("ready", 0)
        assert await live(engine) == []


async def test_a_start_with_claims_whose_answer_was_lost_makes_one_run_and_burns_no_attempt(database_url: str) -> None:
    registry = Registry()
    flow = flow_of(registry, "lost", note, note)
    async with AsyncEngine(database_url, registry=registry, auto_migrate=True) as engine:
        plan = await engine.publish(flow)
        await engine.run(plan)
        real = engine.store.write_if_unchanged

        async def write_if_unchanged(what: Any, known: Any, basis: Any) -> int:
            now = await real(what, known, basis)
            if what.new_runs:
                engine.store.write_if_unchanged = real  # type: ignore[method-assign]
                raise ConnectionLost("the line broke after the commit")
            return now

        engine.store.write_if_unchanged = write_if_unchanged  # type: ignore[method-assign]
        run = await engine.run(plan)
        assert run.state is RunState.SUCCEEDED
        assert (await engine.runs())["total"] == 2
        view = await engine.show(run.run_id)
        assert [step["attempts"] for step in view["steps"]] == [1, 1]
        assert (await engine.certify(run.run_id)).ok


def test_a_worker_at_rest_is_no_reason_to_expect_that_a_step_is_claimed() -> None:
    offer = Service(handlers=("a.b",), only_run=NO_RUN)
    known = Known(_row(), offer)
    assert known.lacks(QueueSpec(kind="python", name="a.b"), 7) == (Lack.RUN,)
    assert offer.own_runs == "only runs that its own program starts"


def _row() -> Any:
    from stepkeep.kernel.machine.rows import Worker
    from stepkeep.kernel.machine.states import WorkerState

    return Worker(
        tenant="t",
        id="w",
        no=1,
        state=WorkerState.IDLE,
        incarnation=1,
        capacity=1,
        capabilities=(),
        queues=(7,),
        heard_at=0,
        started_at=0,
    )


async def test_a_run_that_another_worker_holds_says_until_when_it_is_waited_for(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING", "stepkeep.engine")
    registry, begun, may_end = Registry(), asyncio.Event(), asyncio.Event()

    async def slow() -> str:
        begun.set()
        await may_end.wait()
        return "done"

    flow = flow_of(registry, "held", slow)
    given = {"registry": registry, "auto_migrate": True, "loop": "mine"}
    async with AsyncEngine(database_url, **given) as one, AsyncEngine(database_url, **given) as other:
        first = asyncio.create_task(one.run(flow, idempotency_key="k"))
        await begun.wait()
        # In the same engine, the holder is known: nothing is to be said.
        same = asyncio.create_task(one.run(flow, idempotency_key="k"))
        second = asyncio.create_task(other.run(flow, idempotency_key="k"))
        while not caplog.messages:  # noqa: ASYNC110 - the log has no event
            await asyncio.sleep(0.001)
        may_end.set()
        results = [await run for run in (first, same, second)]
        assert [run.output for run in results] == ["done"] * 3
        [said] = caplog.messages
        said_first = f"run {results[0].run_id}: step-0 is leased to worker "
        names = tuple(f"{said_first}{worker}, heard " for worker in await live(one))
        assert said.startswith(names)
        assert "; if that worker is gone, step-0 goes on in " in said


async def test_a_worker_may_serve_the_default_queue_alone(database_url: str) -> None:
    registry = Registry()
    registry.register(HandlerSpec(name="said", function=note))
    flow = sk.Workflow("queues", version=1, timeout="1m", registry=registry)
    flow.step("plain", "said", inputs={}, after=())
    flow.step("elsewhere", "said", inputs={}, queue="slow", after=())
    async with AsyncEngine(database_url, registry=registry, auto_migrate=True) as engine:
        await engine.start_worker(queues=[""])
        run = await engine.start(flow)
        while (states := await step_states(engine, run.run_id))["plain"] != "succeeded":  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        assert states["elsewhere"] == "ready"
        await engine.start_worker(queues=["slow"])
        assert (await engine.wait(run.run_id)).state is RunState.SUCCEEDED


async def step_states(engine: AsyncEngine, run_id: str) -> dict[str, str]:
    return {step["name"]: step["state"] for step in (await engine.show(run_id))["steps"]}
