"""Limits of what stands below a step: calls of flows, elements of maps, and cases of choices."""

from __future__ import annotations

import asyncio
from collections import Counter

from msgspec.structs import replace

import stepkeep as sk
from stepkeep.kernel.definition import Case, Definition, Limit, Map, StepDefinition, Switch
from stepkeep.kernel.machine.states import RunState
from stepkeep.store.connect import connect
from tests.operations.judge_of_limits import judge
from tests.operations.test_limits import begin, runs_of, use
from tests.workbench import TENANT, on, task

PER_CUSTOMER = Limit(name="api", per="${{ input.customer }}", running=1)


def choice(*limits: Limit) -> Definition:
    case = replace(task("pay"), limits=limits)
    cases = (Case(name="dear", when="input.customer == 'acme'", step=case), Case(name="cheap", step=task("pay")))
    step = StepDefinition(name="pay", order=0, growth=Switch(max=2, cases=cases))
    return Definition(name="choice", version=1, steps=(step,))


async def test_a_case_counts_under_its_own_limits(database_url: str) -> None:
    async with on(database_url) as bench:
        first, second, free = await begin(bench, choice(PER_CUSTOMER), "acme", "acme", "beta")
        claims = [*await bench.claim(10), *await bench.claim(10)]
        assert runs_of(claims) == {first, free}
        assert await use(bench) == (1, 1)
        for claim in claims:
            await bench.report(claim)
        [claim] = await bench.claim(10)
        assert claim.run_id == second
        await bench.report(claim)
        assert {await bench.state(run) for run in (first, second, free)} == {RunState.SUCCEEDED}
        assert await judge(bench.store, TENANT) == 2


async def test_a_case_without_a_key_fails_its_step(database_url: str) -> None:
    async with on(database_url) as bench:
        nothing = replace(PER_CUSTOMER, per="${{ input.nothing }}")
        [run] = await begin(bench, choice(nothing), "acme")
        assert await bench.state(run) is RunState.FAILED


async def test_elements_share_the_key_of_their_map(database_url: str) -> None:
    async with on(database_url) as bench:
        growth = Map(over="${{ [1, 2, 3] }}", max=9, in_flight=3)
        step = replace(task("each"), growth=growth, limits=(replace(PER_CUSTOMER, running=2),))
        [run] = await begin(bench, Definition(name="many", version=1, steps=(step,)), "acme")
        claims = await bench.claim(10)
        assert len(claims) == 2
        assert await use(bench) == (2, 1)
        while claims:
            for claim in claims:
                await bench.report(claim)
            claims = await bench.claim(10)
        assert await bench.state(run) is RunState.SUCCEEDED
        assert await judge(bench.store, TENANT) == 3


async def test_calls_of_a_flow_count_under_their_limits(database_url: str) -> None:
    to = '${{ it\'s }} "ann"'
    registry, running, most = sk.Registry(), Counter[str](), Counter[str]()

    @sk.step("send", registry=registry)
    async def send(to: str, no: int) -> int:
        running[to] += 1
        most[to] = max(most[to], running[to])
        await asyncio.sleep(0.02)
        running[to] -= 1
        return no

    @sk.flow("letters", registry=registry)
    async def letters(ctx: sk.FlowContext) -> list[int]:
        to = ctx.input["to"]
        limits = [{"name": "post", "per": to, "running": 2}, "all"]
        calls = [ctx.options(limits=limits).step(send, to=to, no=no) for no in range(5)]
        return [await call for call in calls]

    with sk.open(database_url, registry=registry) as engine:
        assert engine.run(letters, {"to": to}, check=True).output == [0, 1, 2, 3, 4]
    assert most == {to: 2}
    store = connect(database_url)
    await store.open()
    try:
        assert await judge(store, "default") == 10
    finally:
        await store.close()
