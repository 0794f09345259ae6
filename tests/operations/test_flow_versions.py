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
        try:
            yield engine
        finally:
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


calls: list[int] = []


def paying(*, is_mended: bool) -> sk.Registry:
    """A flow of three payments; its function has a mistake behind them, or not."""
    registry = sk.Registry()

    @sk.step("g.pay", registry=registry)
    def pay(n: int) -> int:
        calls.append(n)
        return n

    async def wrong(ctx: Any) -> int:
        paid = [await ctx.step("g.pay", n) for n in range(3)]
        return int(sum(paid) + no_such_name)  # type: ignore[name-defined] # noqa: F821

    async def mended(ctx: Any) -> int:
        paid = [await ctx.step("g.pay", n) for n in range(3)]
        return int(sum(paid))

    retry = sk.Retry(max_attempts=2, initial="1ms")
    made = sk.flow("g", retry=retry, registry=registry)(mended if is_mended else wrong)
    registry.made = {1: made}  # type: ignore[attr-defined]
    return registry


async def test_an_error_of_the_functions_own_code_holds_the_run_until_it_is_mended(database_url: str) -> None:
    wrong, mended = paying(is_mended=False), paying(is_mended=True)
    calls.clear()
    async with at_work(database_url, wrong) as engine:
        run_id = (await engine.start(workflow(wrong, 1), {})).run_id
        await waits(engine, run_id)
        [cause, *_] = (await engine.explain(run_id)).causes
        assert "NameError: name 'no_such_name' is not defined" in cause.sentence
        assert "It goes on when a worker has other code for it." in cause.sentence
    async with at_work(database_url, mended) as engine:
        assert (await engine.wait(run_id)).output == 3
        await certified(engine, run_id)
    assert calls == [0, 1, 2], "no call is repeated"


async def test_a_person_ends_a_run_whose_function_has_a_mistake(database_url: str) -> None:
    wrong = paying(is_mended=False)
    async with at_work(database_url, wrong) as engine:
        run_id = (await engine.start(workflow(wrong, 1), {})).run_id
        await waits(engine, run_id)
        await engine.decide(run_id, "g", "fail", by="ann")
        assert (await engine.wait(run_id)).state == "failed"
        await certified(engine, run_id)


@pytest.mark.parametrize("is_final", [True, False])
async def test_what_a_flow_means_to_fail_by_fails_its_run(database_url: str, is_final: bool) -> None:
    registry = sk.Registry()

    @sk.flow("g", registry=registry, retry=sk.Retry(max_attempts=1), on_exhausted="hold" if is_final else "fail")
    async def gives_up(ctx: Any) -> None:
        raise sk.fail("no stock", category="conflict") if is_final else KeyError("email")

    async with at_work(database_url, registry) as engine:
        run_id = (await engine.start(gives_up, {})).run_id
        found = await engine.wait(run_id)
        assert (found.state, found.error) == ("failed", "no stock" if is_final else "KeyError: 'email'")
        await certified(engine, run_id)


async def test_patched_keeps_its_first_answer_for_the_life_of_a_run(database_url: str) -> None:
    async def patched(ctx: Any) -> list[Any]:
        found = [1, await ctx.step("g.a", 1)]
        if await ctx.patched("extra"):
            found.append(await ctx.step("g.a", 2))
        found.append(await ctx.wait_for("go"))
        if await ctx.patched("late"):
            found.append(await ctx.step("g.a", 3))
        return [*found, await ctx.wait_for("end")]

    old, new = code((one, 1)), code((patched, 1))
    async with at_work(database_url, old) as engine:
        before = (await engine.start(workflow(old, 1), {})).run_id
        await waits(engine, before)
    for message in ("go", "end"):
        # Another process each time: every answer comes from the record.
        async with at_work(database_url, new) as engine:
            if message == "go":
                after = (await engine.start(workflow(new, 1), {})).run_id
                await waits(engine, after)
            for run_id in (before, after):
                await engine.send(run_id, message, payload=message)
                if message == "go":
                    await waits(engine, run_id)
            if message == "go":
                continue
            found = [(await engine.wait(run_id)).output for run_id in (before, after)]
            assert found == [[1, 2, "go", 4, "end"], [1, 2, 3, "go", 4, "end"]]
            for run_id in (before, after):
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
