"""Waiting for a run that another process works on: told by a hint, found without one, never forever in vain."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import stepkeep as sk
from stepkeep.definition.python.registry import HandlerSpec, Registry
from stepkeep.engine import AsyncEngine
from stepkeep.kernel.errors import NotFound, StoreUnavailable
from stepkeep.operations.runs.waiting import RunWaiter
from stepkeep.store.protocol import RUNS_SETTLED, Notification
from tests.workbench import NOBODYS, results_of, until

NEVER = 3600.0


def greet() -> str:
    return "hello"


def greeting() -> sk.Workflow:
    made = sk.Workflow("greeting", version=1)
    made.step("greet", "greet")
    return made


def signed() -> sk.Workflow:
    made = sk.Workflow("signed", version=1)
    made.approval("sign")
    return made


def a_registry() -> Registry:
    registry = Registry()
    registry.register(HandlerSpec(name="greet", function=greet))
    return registry


@asynccontextmanager
async def a_worker_elsewhere(url: str) -> AsyncIterator[None]:
    """A worker on an opening of its own, as another process would have it."""
    async with AsyncEngine(url, registry=a_registry()) as engine:
        worker = engine.worker()
        serving = asyncio.create_task(worker.serve())
        try:
            yield
        finally:
            worker.stop()
            await serving


async def test_a_hint_ends_the_wait_without_another_look(database_url: str) -> None:
    async with AsyncEngine(database_url) as engine:
        engine._waiting.pauses, engine._waiting.rare_pauses = (0.01, 0.01), (NEVER, NEVER)
        stop = engine.store.notifier.listen(lambda hint: None)
        async with asyncio.timeout(30):
            while not engine.store.notifier.is_connected:  # noqa: ASYNC110 - a notifier tells nobody when it begins to hear
                await asyncio.sleep(0.01)
            run_id = (await engine.start(greeting())).run_id
            reads = results_of(engine.store, "read_states")
            wait = asyncio.create_task(engine.wait(run_id))
            await until(lambda: len(reads) > 0)
            async with a_worker_elsewhere(database_url):
                assert (await wait).state == "succeeded"
        stop()


@asynccontextmanager
async def an_engine_told_of_all(url: str) -> AsyncIterator[AsyncEngine]:
    """An engine that listens, and polls for notifications alone."""
    async with AsyncEngine(url) as engine:
        await engine.wait((await engine.start(signed())).run_id, until_blocked=True)
        async with asyncio.timeout(30):
            while not engine.store.notifier.is_connected:  # noqa: ASYNC110 - a notifier tells nobody when it begins to hear
                await asyncio.sleep(0.01)
        engine._waiting.pauses = engine._waiting.rare_pauses = (NEVER, NEVER)
        yield engine


async def test_a_run_that_was_created_here_is_not_read_before_its_hint(database_url: str) -> None:
    async with an_engine_told_of_all(database_url) as engine:
        states, outputs = results_of(engine.store, "read_states"), results_of(engine.store, "read_outputs")
        run_id = (await engine.start(greeting())).run_id
        waited = asyncio.create_task(engine.wait(run_id))
        async with asyncio.timeout(30):
            await engine.wait((await engine.start(signed())).run_id, until_blocked=True)
            assert len(states) > 0
            assert not any((engine.tenant, run_id) in found for found in states)
            async with a_worker_elsewhere(database_url):
                assert (await waited).output == "hello"
        assert outputs == []


async def test_a_run_that_ended_before_anybody_waited_is_found_at_once(database_url: str) -> None:
    async with an_engine_told_of_all(database_url) as engine, a_worker_elsewhere(database_url):
        run_id = (await engine.start(greeting())).run_id
        async with asyncio.timeout(30):
            while run_id in engine._waiting._created:  # noqa: ASYNC110 - until its hint has come
                await asyncio.sleep(0.01)
            assert (await engine.wait(run_id)).state == "succeeded"


async def test_a_run_that_is_blocked_from_its_creation_on_is_read_without_a_hint(database_url: str) -> None:
    async with an_engine_told_of_all(database_url) as engine:
        async with asyncio.timeout(30):
            result = await engine.wait((await engine.start(signed())).run_id, until_blocked=True)
        assert result.state == "blocked"


async def test_a_run_whose_hint_is_lost_is_found_all_the_same(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AsyncEngine(database_url) as engine, a_worker_elsewhere(database_url):
        run_id = (await engine.start(greeting())).run_id
        monkeypatch.setattr(engine.store.notifier, "deliver", lambda hint: None)
        async with asyncio.timeout(30):
            assert (await engine.wait(run_id)).finished


async def test_a_lost_hint_is_made_up_for_while_hints_of_other_runs_go_on(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AsyncEngine(database_url) as engine, a_worker_elsewhere(database_url):
        engine._waiting.pauses = engine._waiting.rare_pauses = (0.3, 0.3)
        other = (await engine.start(signed())).run_id
        run_id = (await engine.start(greeting())).run_id
        deliver = engine.store.notifier.deliver
        monkeypatch.setattr(engine.store.notifier, "deliver", lambda hint: None)
        waits = [asyncio.create_task(engine.wait(one)) for one in (other, run_id)]

        async def steady() -> None:
            while True:
                deliver(Notification(frozenset({RUNS_SETTLED}), {RUNS_SETTLED: frozenset({other})}))
                await asyncio.sleep(0.02)

        noise = asyncio.create_task(steady())
        async with asyncio.timeout(30):
            assert (await waits[1]).finished
        for task in (noise, waits[0]):
            task.cancel()
        await asyncio.gather(noise, waits[0], return_exceptions=True)


async def test_a_run_that_waits_for_people_ends_the_wait_of_those_who_ask_for_that(database_url: str) -> None:
    async with AsyncEngine(database_url) as engine:
        run_id = (await engine.start(signed())).run_id
        assert (await engine.wait(run_id, until_blocked=True)).state == "blocked"
        waited = asyncio.create_task(engine.wait(run_id))
        await engine.approve(run_id)
        async with asyncio.timeout(30):
            assert (await waited).state == "succeeded"


async def test_whoever_waits_no_longer_than_so_many_seconds_is_told_how_it_stands(database_url: str) -> None:
    async with AsyncEngine(database_url) as engine:
        run_id = (await engine.start(signed())).run_id
        result = await engine.wait(run_id, seconds=0.05)
        assert not result.finished


async def test_nobody_waits_for_a_run_that_does_not_exist(database_url: str) -> None:
    async with AsyncEngine(database_url) as engine:
        with pytest.raises(NotFound):
            await engine.wait(NOBODYS)


async def test_many_who_wait_look_together(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with AsyncEngine(database_url) as engine:
        started = [(await engine.start(signed())).run_id for _ in range(20)]
        looks: list[int] = []
        real = engine.store.read_states

        async def counted(keys: Any, results: Any) -> Any:
            looks.append(len(keys))
            return await real(keys, results)

        monkeypatch.setattr(engine.store, "read_states", counted)
        waits = [asyncio.create_task(engine.wait(run_id, until_blocked=True)) for run_id in started * 2]
        await asyncio.gather(*waits)
        assert looks == [20]


async def test_closing_the_engine_ends_every_wait(database_url: str) -> None:
    async with AsyncEngine(database_url) as engine:
        run_id = (await engine.start(signed())).run_id
        together = RunWaiter(engine.transactor)
        reads = results_of(engine.store, "read_states")
        waited = asyncio.create_task(together.until(engine.tenant, run_id, ()))
        await until(lambda: len(reads) > 0)
        await together.close()
        with pytest.raises(StoreUnavailable):
            await waited


def test_a_program_without_an_event_loop_can_wait_too(database_url: str) -> None:
    with sk.open(database_url, registry=a_registry()) as engine:
        done = engine.run(greeting())
        assert engine.wait(done.id).output == done.output
