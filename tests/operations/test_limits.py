"""Limits by key on a real database: places, lines, rates, changed rules, and what the journal says of each grant."""

from __future__ import annotations

import asyncio
import json
import time
from math import inf
from typing import Any

import pytest
from msgspec.structs import replace

from stepkeep.kernel.decide.limits import LimitRule, room_of
from stepkeep.kernel.definition import Definition, Limit
from stepkeep.kernel.errors import InvalidInput
from stepkeep.kernel.machine.journal import open_entry
from stepkeep.kernel.machine.outcomes import Failed, Released
from stepkeep.kernel.machine.states import Category, RunState
from stepkeep.kernel.people.authority import Caller
from stepkeep.operations.continuation.pausing import pause_run, resume_run
from stepkeep.operations.limits.limits import clear_limit, list_limits, set_limit, show_limit
from stepkeep.operations.pipeline.expire import sweep_timers
from stepkeep.operations.pipeline.transact import Claim
from stepkeep.operations.runs.diagnosis import explain
from tests.operations.judge_of_limits import judge
from tests.workbench import SECOND, TENANT, Bench, benches, on, task

CALLER = Caller(TENANT, "ann")
CUSTOMER = "${{ input.customer }}"


def limited(*limits: Limit, name: str = "order", length: int = 1) -> Definition:
    steps = [task(f"s{no}", no, [f"s{no - 1}"] if no else []) for no in range(length)]
    return Definition(name=name, version=1, steps=tuple(replace(step, limits=limits) for step in steps))


def per_customer(running: int = 1, **more: Any) -> Limit:
    return Limit(name="api", per=CUSTOMER, running=running, **more)


def of(customer: str) -> bytes:
    return json.dumps({"customer": customer}).encode()


async def begin(bench: Bench, definition: Definition, *customers: str) -> list[str]:
    plan = await bench.publish(definition)
    return [(await bench.begin(plan, input=of(one))).run_id for one in customers]


def runs_of(claims: list[Claim]) -> set[str]:
    return {claim.run_id for claim in claims}


async def use(bench: Bench, name: str = "api") -> tuple[int, int]:
    [found] = [one for one in (await list_limits(bench.store, TENANT)).limits if one.name == name]
    return found.held, found.waiting


async def grants(bench: Bench, *runs: str) -> list[dict[str, Any]]:
    found = []
    for run in runs:
        for row in await bench.store.read_journal(TENANT, run):
            for cause in open_entry(row.body).causes:
                found += [dict(one) for one in (cause.detail or {}).get("limits", ())]
    return sorted(found, key=lambda one: (one["name"], one["key"], one["seq"]))


async def test_each_key_has_its_own_places(database_url: str) -> None:
    async with on(database_url) as bench:
        a, other, b = await begin(bench, limited(per_customer()), "acme", "acme", "beta")
        claims = await bench.claim(10)
        assert runs_of(claims) == {a, b}
        assert await use(bench) == (2, 1)
        assert await bench.claim(10) == []
        for claim in claims:
            await bench.report(claim)
        assert await use(bench) == (0, 1)
        [last] = await bench.claim(10)
        assert last.run_id == other
        await bench.report(last)
        assert await use(bench) == (0, 0)
        assert {await bench.state(run) for run in (a, other, b)} == {RunState.SUCCEEDED}
        assert await bench.claim(10) == []
        assert await bench.store.limits.find_due([1, 2, 3], 10) == []
        told = await grants(bench, a, other, b)
        assert [(one["key"], one["held"], one["most"], len(one.get("freed", ()))) for one in told] == [
            ("acme", 0, 1, 0),
            ("acme", 0, 1, 1),
            ("beta", 0, 1, 0),
        ]
        await judge(bench.store, TENANT)


async def test_a_full_key_keeps_nobody_behind_it(database_url: str) -> None:
    async with on(database_url) as bench:
        await begin(bench, limited(per_customer()), *["acme"] * 120)
        [free] = await begin(bench, limited(per_customer()), "beta")
        plain = await bench.start(Definition(name="plain", version=1, steps=(task("a"),)))
        claimed = runs_of([claim for _ in range(4) for claim in await bench.claim(2)])
        assert {free, plain} < claimed
        assert await use(bench) == (2, 119)


async def test_a_line_is_served_in_the_order_of_its_steps(database_url: str) -> None:
    async with on(database_url) as bench:
        runs = await begin(bench, limited(per_customer()), *["acme"] * 5)
        served = []
        for _ in runs:
            [claim] = await bench.claim(10)
            served.append(claim.run_id)
            await bench.report(claim)
        assert served == runs


async def test_two_limits_are_both_free_or_none_is_taken(database_url: str) -> None:
    async with on(database_url) as bench:
        both = limited(per_customer(5), Limit(name="gpu", running=2))
        runs = await begin(bench, both, "a", "b", "c", "d")
        first = await bench.claim(10)
        assert len(first) == 2
        assert await use(bench, "gpu") == (2, 2)
        assert await use(bench, "api") == (2, 0)
        while first:
            for claim in first:
                await bench.report(claim)
            first = await bench.claim(10)
        assert {await bench.state(run) for run in runs} == {RunState.SUCCEEDED}
        await judge(bench.store, TENANT)


async def test_a_heavy_step_takes_its_weight_and_is_not_overtaken(database_url: str) -> None:
    async with on(database_url) as bench:
        light, heavy = limited(Limit(name="gpu", running=2), name="light"), None
        heavy = limited(Limit(name="gpu", running=2, weight=2), name="heavy")
        [one] = await begin(bench, light, "x")
        [held] = await bench.claim(10)
        [big] = await begin(bench, heavy, "x")
        assert await bench.claim(10) == []
        late = await begin(bench, light, "x")
        assert await bench.claim(10) == []
        await bench.report(held)
        [next_one] = await bench.claim(10)
        assert next_one.run_id == big
        await bench.report(next_one)
        assert runs_of(await bench.claim(10)) == set(late)
        assert await bench.state(one) is RunState.SUCCEEDED


async def test_every_end_of_a_claim_gives_the_place_back(database_url: str) -> None:
    async with on(database_url) as bench:
        for outcome in (Released(), Failed(category=Category.VALIDATION, error="no", final=True)):
            runs = await begin(bench, limited(per_customer()), "acme", "acme")
            [claim] = await bench.claim(10)
            await bench.report(claim, outcome)
            assert (await use(bench))[0] == 0
            [again] = await bench.claim(10)
            await bench.report(again)
            while claims := await bench.claim(10):
                for one in claims:
                    await bench.report(one)
            assert (await use(bench)) == (0, 0)
            assert {await bench.state(run) for run in runs} <= {RunState.SUCCEEDED, RunState.FAILED}
        await judge(bench.store, TENANT)


async def test_a_lost_lease_gives_the_place_back(database_url: str) -> None:
    async with on(database_url) as bench:
        first, second = await begin(bench, limited(per_customer()), "acme", "acme")
        [claim] = await bench.claim(10, lease=SECOND)
        assert claim.run_id == first
        assert await bench.claim(10) == []
        bench.store.clock_offset += 5 * SECOND
        await sweep_timers(bench.transactor)
        again = await bench.claim(10)
        assert len(again) == 1
        assert await use(bench) == (1, 1)
        assert second in {first, second}
        await judge(bench.store, TENANT)


async def test_a_cancelled_run_leaves_its_line(database_url: str) -> None:
    async with on(database_url) as bench:
        _, waiting, last = await begin(bench, limited(per_customer()), "acme", "acme", "acme")
        [claim] = await bench.claim(10)
        assert await bench.claim(10) == []
        await bench.cancel(waiting)
        await bench.report(claim)
        [other] = [*await bench.claim(10), *await bench.claim(10)]
        assert other.run_id == last
        assert await use(bench) == (1, 0)


async def test_a_paused_run_waits_again_when_it_goes_on(database_url: str) -> None:
    async with on(database_url) as bench:
        _, waiting = await begin(bench, limited(per_customer()), "acme", "acme")
        [claim] = await bench.claim(10)
        assert await bench.claim(10) == []
        await pause_run(bench.transactor, waiting, caller=CALLER)
        await bench.report(claim)
        assert await bench.claim(10) == []
        await resume_run(bench.transactor, waiting, caller=CALLER)
        [other] = await bench.claim(10)
        assert other.run_id == waiting


async def test_a_parked_step_that_was_paused_is_parked_again_once(database_url: str) -> None:
    async with on(database_url) as bench:
        _, waiting = await begin(bench, limited(per_customer()), "acme", "acme")
        [claim] = await bench.claim(10)
        await pause_run(bench.transactor, waiting, caller=CALLER)
        await resume_run(bench.transactor, waiting, caller=CALLER)
        bench.store.clock_offset += 2 * SECOND
        assert await bench.claim(10) == []
        assert await use(bench) == (1, 1)
        await bench.report(claim)
        assert runs_of(await bench.claim(10)) == {waiting}


async def test_a_rule_changes_for_all_keys_and_for_one(database_url: str) -> None:
    async with on(database_url) as bench:
        await begin(bench, limited(per_customer()), *["acme"] * 3, *["beta"] * 3)
        assert len(await bench.claim(10)) == 2
        await set_limit(bench.store, "api", LimitRule(running=2), "acme", "a good partner", caller=CALLER)
        bench.transactor.limit_rules.forget(TENANT)
        bench.store.clock_offset += SECOND
        assert len(await bench.claim(10)) == 1
        await set_limit(bench.store, "api", LimitRule(), None, "free", caller=CALLER)
        bench.transactor.limit_rules.forget(TENANT)
        bench.store.clock_offset += SECOND
        assert len(await bench.claim(10)) == 2
        shown = await show_limit(bench.store, TENANT, "api", None, "", 10)
        assert [(one.key, one.held, one.waiting) for one in shown.in_use] == [("acme", 2, 1), ("beta", 3, 0)]
        assert [(one.by, one.content["reason"]) for one in shown.history[:2]] == [
            ("ann", "free"),
            ("ann", "a good partner"),
        ]
        await clear_limit(bench.store, "api", None, "", caller=CALLER)
        await clear_limit(bench.store, "api", "acme", "", caller=CALLER)
        [rule] = (await list_limits(bench.store, TENANT)).limits
        assert (rule.running, rule.said_by, rule.of_keys) == (1, "order", [])
        await judge(bench.store, TENANT)


async def test_a_rate_lets_a_burst_begin_and_then_one_after_the_other(database_url: str) -> None:
    async with on(database_url) as bench:
        rate = Limit(name="mail", per=CUSTOMER, rate=1, period=SECOND, burst=3)
        runs = await begin(bench, limited(rate), *["acme"] * 6, "beta")
        claims = await bench.claim(20)
        assert len(claims) == 4
        for claim in claims:
            await bench.report(claim)
        assert await bench.claim(20) == []
        for _ in range(3):
            bench.store.clock_offset += SECOND
            [claim] = await bench.claim(20)
            await bench.report(claim)
        assert {await bench.state(run) for run in runs} == {RunState.SUCCEEDED}
        await judge(bench.store, TENANT)


def test_a_claim_looks_at_no_more_parked_steps_than_a_key_has_places() -> None:
    rate = LimitRule(rate=2, period=SECOND, burst=3)
    assert [room_of(rule, 1, 100, 9, 50) for rule in (LimitRule(), LimitRule(running=5), LimitRule(running=1))] == [
        9,
        4,
        1,
    ]
    assert [room_of(rate, 0, tat, 9, 10 * SECOND) for tat in (0, 10 * SECOND + 1, 11 * SECOND, 99 * SECOND)] == [
        3,
        2,
        1,
        1,
    ]
    assert room_of(rate, 0, 0, 9, None) == 9


async def test_a_process_looks_again_when_a_rate_has_a_place(database_url: str) -> None:
    async with on(database_url) as bench:
        await begin(bench, limited(Limit(name="mail", rate=4, period=SECOND)), "acme", "acme")
        assert bench.transactor.line_due_in == inf
        [_] = await bench.claim(10)
        due_in = bench.transactor.line_due_in
        assert 0 < due_in <= 0.25
        bench.transactor.monotonic = bench.transactor._monotonic = lambda: time.monotonic() + due_in
        assert await bench.transactor.find_waiting_steps()
        assert bench.transactor.line_due_in == inf


async def test_a_rate_is_charged_once_for_an_attempt_and_by_units(database_url: str) -> None:
    async with on(database_url) as bench:
        rate = Limit(name="mail", rate=1, period=SECOND, units="${{ size(input.customer) }}", burst=4)
        [run] = await begin(bench, limited(rate), "abcd")
        [claim] = await bench.claim(10)
        await bench.report(claim, Released())
        [claim] = await bench.claim(10)
        await bench.report(claim, Failed(category=Category.TRANSIENT, error="later", delay=0))
        assert await bench.claim(10) == []
        bench.store.clock_offset += 5 * SECOND
        [claim] = await bench.claim(10)
        await bench.report(claim)
        told = await grants(bench, run)
        assert [one.get("units") for one in told] == [4, None, 4]
        await judge(bench.store, TENANT)


async def test_a_waiting_step_says_who_holds_its_key(database_url: str) -> None:
    async with on(database_url) as bench:
        first, second = await begin(bench, limited(per_customer()), "acme", "acme")
        await bench.claim(10)
        [cause] = (await explain(bench.transactor, second, None, tenant=TENANT)).causes
        assert cause.code.value == "limit"
        assert f"s0 waits for a place under limit api for acme: at most 1 at once; held by step s0 of run {first}" in (
            cause.sentence
        )
        assert cause.command == ("limits", "show", "api")
        assert await bench.store.stuck_runs(10) == []


@pytest.mark.parametrize("given", [b'{"customer": null}', b'{"customer": {"a": 1}}', b'{"customer": ""}', b"{}"])
async def test_a_step_without_a_key_fails(database_url: str, given: bytes) -> None:
    async with on(database_url) as bench:
        plan = await bench.publish(limited(per_customer()))
        run = (await bench.begin(plan, input=given)).run_id
        assert await bench.state(run) is RunState.FAILED
        assert await bench.claim(10) == []


async def test_two_workflows_that_share_a_limit_say_the_same(database_url: str) -> None:
    async with on(database_url) as bench:
        await bench.publish(limited(per_customer(2), name="one"))
        await bench.publish(limited(per_customer(2), name="two"))
        await bench.publish(limited(Limit(name="api"), name="three"))
        with pytest.raises(InvalidInput, match="shared with workflow one, which gives it other numbers"):
            await bench.publish(limited(per_customer(3), name="four"))
        assert await bench.store.read_definition(TENANT, "four", None) is None


async def test_workers_that_claim_at_once_exceed_nothing(database_url: str) -> None:
    async with benches(database_url, 3) as opened:
        runs = await begin(opened[0], limited(per_customer(2), length=2), *["a", "b", "c"] * 6)

        async def work(bench: Bench) -> None:
            while not all([await opened[0].state(run) is RunState.SUCCEEDED for run in runs]):
                for claim in await bench.claim(4):
                    await bench.report(claim)

        async with asyncio.timeout(120):
            await asyncio.gather(*map(work, opened))
        assert await use(opened[0]) == (0, 0)
        assert await judge(opened[0].store, TENANT) == 36


async def test_keys_without_use_are_forgotten(database_url: str) -> None:
    async with on(database_url) as bench:
        await begin(bench, limited(per_customer()), "acme", "beta")
        [one, _] = await bench.claim(10)
        await bench.report(one)
        assert await bench.store.limits.forget_keys(60 * SECOND, 10) == 0
        bench.store.clock_offset += 120 * SECOND
        assert await bench.store.limits.forget_keys(60 * SECOND, 10) == 1
