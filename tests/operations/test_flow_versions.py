"""Flows in several versions: runs go to workers that have theirs, and code that does not fit harms no run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace as altered

import stepkeep as sk
from stepkeep.kernel.errors import InvalidInput
from stepkeep.kernel.machine.states import AttemptState
from stepkeep.worker.settings import Settings
from tests.workbench import eventually

QUICK = Settings(sweep_seconds=0.02, idle_poll_seconds=0.02, heartbeat_seconds=0.2, first_publish_seconds=0.02)

Body = Callable[..., Awaitable[Any]]


def code(*flows: tuple[Body, int], name: str = "g") -> sk.Registry:
    """The code of one deployment: a handler, and these functions as versions of one flow."""
    registry = sk.Registry()

    @sk.step("g.a", registry=registry)
    def a(n: int) -> int:
        return n + 1

    for function, version in flows:
        made = sk.flow(name, version=version, registry=registry)(function)
        registry.made = {**getattr(registry, "made", {}), version: made}  # type: ignore[attr-defined]
    return registry


def workflow(registry: sk.Registry, version: int) -> sk.Workflow:
    made: sk.Workflow = registry.made[version]  # type: ignore[attr-defined]
    return made


async def one(ctx: Any) -> list[Any]:
    return [1, await ctx.step("g.a", 1), await ctx.wait_for("go")]


async def two(ctx: Any) -> list[Any]:
    return [2, await ctx.step("g.a", 1), await ctx.step("g.a", 2), await ctx.wait_for("go")]


async def unlike(ctx: Any) -> list[Any]:
    return ["other", await ctx.step("g.a", 10), await ctx.wait_for("go")]


@asynccontextmanager
async def at_work(url: str, registry: sk.Registry, settings: Settings = QUICK) -> AsyncIterator[sk.AsyncEngine]:
    async with sk.AsyncEngine(url, registry=registry) as engine:
        worker = engine.worker(settings=altered(settings, grace_seconds=0.0))
        serving = asyncio.create_task(worker.serve())
        await worker.joined.wait()
        yield engine
        worker.stop(0.0)
        await serving


async def waits(engine: sk.AsyncEngine, run_id: str) -> None:
    async def blocked() -> bool:
        return str((await engine.show(run_id)).run.state) == "blocked"

    await eventually(blocked)


async def certified(engine: sk.AsyncEngine, run_id: str) -> None:
    certificate = await engine.certify(run_id)
    assert certificate.ok, [certificate.canonical, *((one.dialect, one.findings) for one in certificate.dialects)]


async def test_runs_go_to_workers_that_have_their_version(database_url: str) -> None:
    old, new = code((one, 1)), code((two, 2))
    async with at_work(database_url, old) as first, at_work(database_url, new) as second:
        runs = [(await first.start(workflow(old, 1), {})).run_id for _ in range(5)]
        runs += [(await second.start(workflow(new, 2), {})).run_id for _ in range(5)]
        for run_id in runs:
            await waits(first, run_id)
            await first.send(run_id, "go", payload="on")
        found = [(await first.wait(run_id)).output for run_id in runs]
        assert found == [[1, 2, "on"]] * 5 + [[2, 2, 3, "on"]] * 5
        for run_id in runs:
            await certified(first, run_id)


async def test_one_module_has_several_versions_and_a_lone_version_waits_for_its_code(database_url: str) -> None:
    old, both, new = code((one, 1)), code((one, 1), (two, 2)), code((two, 2))
    async with at_work(database_url, old) as engine:
        run_id = (await engine.start(workflow(old, 1), {})).run_id
        await waits(engine, run_id)
    async with at_work(database_url, new) as engine:
        await engine.send(run_id, "go", payload="on")

        async def told() -> str:
            [cause, *_] = (await engine.explain(run_id)).causes
            return cause.sentence if cause.code == "no_version" else ""

        await eventually(told)
        assert "it needs version 1 of flow g, and no live worker has it: worker " in await told()
        assert "has version 2" in await told()
    async with at_work(database_url, both) as engine:
        assert (await engine.wait(run_id)).output == [1, 2, "on"]
        other = (await engine.start(workflow(both, 2), {})).run_id
        await waits(engine, other)
        await engine.send(other, "go", payload="on")
        assert (await engine.wait(other)).output == [2, 2, 3, "on"]


async def test_code_that_does_not_fit_hands_the_run_back_and_other_code_goes_on(database_url: str) -> None:
    right, wrong = code((one, 1)), code((unlike, 1))
    async with at_work(database_url, right) as engine:
        run_id = (await engine.start(workflow(right, 1), {})).run_id
        await waits(engine, run_id)
    async with at_work(database_url, wrong) as engine:
        await engine.send(run_id, "go", payload="on")

        async def held() -> bool:
            return (await engine.show(run_id)).steps[0].state == "awaiting_approval"

        await eventually(held)
        [cause, *_] = (await engine.explain(run_id)).causes
        assert cause.code == "decision"
        assert "holds: the flow g is not deterministic: its call 0 is step g.a" in cause.sentence
        assert "It goes on when a worker has other code for it." in cause.sentence
        attempts = await engine.transactor.store.read_attempts("default", run_id)
        assert [each.state for each in attempts if each.no == 0][-1] is AttemptState.RELEASED
        steps = await engine.transactor.store.read_steps("default", run_id)
        assert (steps[0].attempts, steps[0].losses) == (0, 0)
    async with at_work(database_url, right) as engine:
        assert (await engine.wait(run_id)).output == [1, 2, "on"]
        await certified(engine, run_id)


async def test_a_person_decides_about_a_run_that_no_code_fits(database_url: str) -> None:
    right, wrong = code((one, 1)), code((unlike, 1))
    async with at_work(database_url, right) as engine:
        run_id = (await engine.start(workflow(right, 1), {})).run_id
        await waits(engine, run_id)
    async with at_work(database_url, wrong) as engine:
        await engine.send(run_id, "go", payload="on")

        async def held() -> bool:
            return (await engine.show(run_id)).steps[0].state == "awaiting_approval"

        await eventually(held)
        await engine.decide(run_id, "g", "fail", reason="that code is gone", by="ann")
        assert (await engine.wait(run_id)).state == "failed"
        await certified(engine, run_id)


def test_a_version_belongs_to_one_function() -> None:
    with pytest.raises(InvalidInput, match=r"version 1 of flow g is already .*Give one of them another `version=`"):
        code((one, 1), (two, 1))
    registry = code((one, 1), (two, 2))
    assert [spec.version for spec in registry if spec.name == "g"] == [2]
    found = registry.get("g", 1)
    assert found is not None
    assert found.function is one
    assert registry.get("g", 3) is None
