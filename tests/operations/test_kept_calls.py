"""A retry, rerun or fork of a flow takes a prefix of its calls by reference, and says what it does again and how."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import stepkeep as sk
from stepkeep.conformance.adoption import check_calls, continuation_in
from stepkeep.kernel.errors import InvalidInput, NotFound


class Shop:
    """The code of one deployment, and what it did: each call with its idempotency key."""

    def __init__(self) -> None:
        self.done: list[tuple[int, str]] = []
        self.undone: list[tuple[int, str]] = []
        self.broken: set[int] = set()
        self.registry = sk.Registry()

        @sk.step("pay", effect="write", undo="refund", registry=self.registry)
        async def pay(ctx: sk.Context, n: int) -> int:
            self.done.append((n, ctx.idempotency_key))
            if n in self.broken:
                raise sk.fail(f"{n} is broken", category="conflict")
            return n * n

        @sk.step("refund", registry=self.registry)
        async def refund(ctx: sk.Context, n: int) -> None:
            self.undone.append((n, ctx.idempotency_key))

        @sk.step("look", effect="read", registry=self.registry)
        async def look(ctx: sk.Context, n: int) -> int:
            self.done.append((n, ctx.idempotency_key))
            if n in self.broken:
                raise sk.fail(f"{n} is broken", category="conflict")
            return n

    def flow(self, body: Callable[..., Awaitable[Any]], **options: Any) -> sk.Workflow:
        made: sk.Workflow = sk.flow("shop", registry=self.registry, **options)(body)
        return made


async def many(ctx: Any, count: int = 50) -> int:
    return sum([await ctx.step("pay", n) for n in range(count)])


async def certified(engine: sk.AsyncEngine, run_id: str) -> None:
    certificate = await engine.certify(run_id)
    dialects = [finding for one in certificate.dialects for finding in one.findings]
    others = [one.findings for one in (certificate.adopted, certificate.payloads) if one is not None]
    assert certificate.ok, [*certificate.canonical[:3], *dialects[:3], *others]


async def test_a_flow_of_fifty_calls_goes_on_with_the_one_that_failed(database_url: str) -> None:
    shop = Shop()
    flow = shop.flow(many, on_failure="abort")
    shop.broken = {49}
    async with sk.AsyncEngine(database_url, registry=shop.registry) as engine:
        first = await engine.start(flow, {})
        failed = await engine.work_on(first.run_id)
        assert failed.state == "failed"
        preview = await engine.continuations.preview(first.run_id, "retry")
        (calls,) = preview.calls
        assert (calls.flow, calls.adopted, [one.step for one in calls.again]) == ("shop", 49, ["shop[49]"])
        assert calls.again[0].key == f"{first.run_id}:shop[49]"
        shop.broken.clear()
        shop.done.clear()
        second = await engine.continuations.retry(first.run_id)
        ended = await engine.work_on(second.run_id)
        assert ended.state == "succeeded"
        assert shop.done == [(49, f"{first.run_id}:shop[49]")]
        assert ended.output == sum(n * n for n in range(50))
        await certified(engine, second.run_id)


async def ran(engine: sk.AsyncEngine, flow: sk.Workflow, given: Any = None) -> Any:
    return await engine.work_on((await engine.start(flow, given or {})).run_id)


async def retried(engine: sk.AsyncEngine, run_id: str) -> Any:
    ended = await engine.work_on((await engine.continuations.retry(run_id)).run_id)
    await certified(engine, ended.id)
    return ended


async def test_after_a_rollback_what_was_undone_runs_again_under_new_keys(database_url: str) -> None:
    async def body(ctx: Any) -> list[int]:
        return [await ctx.step("look", 0), *[await ctx.step("pay", n) for n in range(1, 5)]]

    shop = Shop()
    flow = shop.flow(body, on_failure="compensate")
    shop.broken = {4}
    async with sk.AsyncEngine(database_url, registry=shop.registry) as engine:
        failed = await ran(engine, flow)
        assert (failed.state, [n for n, _ in shop.undone]) == ("rolled_back", [9, 4, 1])
        preview = await engine.continuations.preview(failed.id, "retry")
        (calls,) = preview.calls
        assert calls.adopted == 1
        assert [one.reason for one in calls.again] == ["undone", "follows", "follows", "follows"]
        assert preview.may_repeat == ["shop[4]"], "its failure does not tell that nothing happened"
        shop.broken, shop.done, first = set(), [], failed.id
        ended = await retried(engine, first)
        keys = [(n, f"{ended.id}:shop[{n}]") for n in range(1, 4)]
        assert shop.done == [*keys, (4, f"{first}:shop[4]")]


async def test_a_failure_that_the_flow_caught_is_adopted_and_the_one_it_failed_for_is_not(database_url: str) -> None:
    async def body(ctx: Any) -> list[Any]:
        found: list[Any] = []
        for n in range(6):
            try:
                found.append(await ctx.step("look", n))
            except sk.CallFailed as problem:
                if n == 4:
                    raise RuntimeError("it cannot go on") from problem
                found.append(problem.error)
        return found

    shop = Shop()
    flow = shop.flow(body, on_exhausted="fail", retry=sk.Retry(max_attempts=1))
    shop.broken = {1, 4}
    async with sk.AsyncEngine(database_url, registry=shop.registry) as engine:
        failed = await ran(engine, flow)
        assert failed.state == "failed"
        shop.broken, shop.done = set(), []
        ended = await retried(engine, failed.id)
        assert ended.output == [0, "1 is broken", 2, 3, 4, 5]
        assert [n for n, _ in shop.done] == [4, 5]


async def test_of_calls_made_at_once_those_that_ended_before_the_failure_are_adopted(database_url: str) -> None:
    async def body(ctx: Any) -> list[int]:
        await ctx.step("pay", 100)
        return list(await asyncio.gather(*(ctx.step("pay", n) for n in range(6))))

    shop = Shop()
    flow = shop.flow(body, on_failure="abort")
    shop.broken = {3}
    async with sk.AsyncEngine(database_url, registry=shop.registry) as engine:
        failed = await ran(engine, flow)
        (calls,) = (await engine.continuations.preview(failed.id, "retry")).calls
        again = {one.step: one.reason for one in calls.again}
        assert again.pop("shop[4]") == "not_finished"
        assert set(again.values()) <= {"follows"}
        shop.broken, shop.done = {3}, []
        second = await retried(engine, failed.id)
        assert second.state == "failed"
        shop.broken = set()
        ended = await retried(engine, second.id)
        assert ended.output == [n * n for n in range(6)]
        assert (3, f"{failed.id}:shop[4]") in shop.done, "the key of a call goes on through retries"
        assert {key.split(":")[0] for _, key in shop.done} == {failed.id}


async def test_a_call_with_other_arguments_has_a_new_key(database_url: str) -> None:
    amount = 7

    async def body(ctx: Any) -> int:
        await ctx.step("look", 1)
        return int(await ctx.step("pay", amount))

    shop = Shop()
    flow = shop.flow(body)
    shop.broken = {7}
    async with sk.AsyncEngine(database_url, registry=shop.registry) as engine:
        failed = await ran(engine, flow)
        amount, shop.done = 8, []
        ended = await retried(engine, failed.id)
        assert shop.done == [(8, f"{ended.id}:shop[1]")]


async def test_what_a_flow_recorded_by_itself_goes_with_its_calls(database_url: str) -> None:
    asked: list[int] = []

    def draw() -> int:
        asked.append(10 * len(asked) + 10)
        return asked[-1]

    async def body(ctx: Any) -> int:
        found = await ctx.once("seed", draw)
        await ctx.step("look", 1)
        if await ctx.patched("more"):
            await ctx.step("look", 2)
        return int(await ctx.step("pay", found))

    shop = Shop()
    flow = shop.flow(body)
    shop.broken = {10}
    async with sk.AsyncEngine(database_url, registry=shop.registry) as engine:
        failed = await ran(engine, flow)
        shop.broken, shop.done = set(), []
        ended = await retried(engine, failed.id)
        assert shop.done == [(10, f"{failed.id}:shop[2]")]
        assert (ended.output, asked) == (100, [10])


async def test_a_rerun_and_a_fork_go_on_from_a_call(database_url: str) -> None:
    async def body(ctx: Any) -> list[int]:
        return [await ctx.step("pay", n) for n in range(5)]

    shop = Shop()
    flow = shop.flow(body)
    async with sk.AsyncEngine(database_url, registry=shop.registry) as engine:
        done = await ran(engine, flow)
        shop.done = []
        again = await engine.work_on((await engine.continuations.rerun(done.id, "shop[3]")).run_id)
        assert shop.done == [(n, f"{again.id}:shop[{n}]") for n in (3, 4)]
        forked = await engine.work_on((await engine.continuations.fork(done.id, "shop[4]")).run_id)
        assert shop.done[2:] == [(4, f"{forked.id}:shop[4]")]
        for ended in (again, forked):
            assert ended.output == [0, 1, 4, 9, 16]
            await certified(engine, ended.id)
        with pytest.raises(NotFound, match=r"made no call shop\[7\]"):
            await engine.continuations.rerun(done.id, "shop[7]")
        with pytest.raises(InvalidInput, match="repeated as a whole"):
            await engine.continuations.rerun(done.id, "undo:shop[1]")


async def test_a_gate_of_a_flow_is_adopted_unless_its_decider_asks_or_the_input_differs(database_url: str) -> None:
    async def body(ctx: Any, n: int = 1) -> int:
        await ctx.gate("Pay?")
        await ctx.step("look", 0)
        return int(await ctx.step("pay", n))

    shop = Shop()
    flow = shop.flow(body)
    shop.broken = {1}
    async with sk.AsyncEngine(database_url, registry=shop.registry) as engine:
        run = (await engine.start(flow, {}, by="ann")).run_id
        await engine.work_on(run)
        await engine.approve(run, "shop[0]", by="bea")
        assert (await engine.work_on(run)).state == "failed"
        of_another = await engine.continuations.preview(run, "retry", by="ann")
        assert of_another.calls[0].adopted == 2
        of_the_decider = await engine.continuations.preview(run, "retry", by="bea")
        assert (of_the_decider.calls[0].adopted, of_the_decider.calls[0].again[0].reason) == (0, "own_decision")
        other = await engine.continuations.preview(run, "fork", start="shop[2]", input={"n": 2}, by="ann")
        assert (other.calls[0].adopted, other.calls[0].again[0].reason) == (0, "input_differs")


async def test_the_judge_finds_a_key_that_is_not_kept_rightly_and_a_call_beyond_the_prefix(database_url: str) -> None:
    async def body(ctx: Any) -> list[int]:
        return [await ctx.step("pay", n) for n in range(3)]

    async def log(run_id: str) -> list[Any]:
        return [json.loads(line) for line in await engine.log(run_id)]

    shop = Shop()
    flow = shop.flow(body, on_failure="abort")
    shop.broken = {2}
    async with sk.AsyncEngine(database_url, registry=shop.registry) as engine:
        failed = await ran(engine, flow)
        await retried(engine, failed.id)
        shop.broken = set()
        (later,) = (await engine.show(failed.id)).run.continued_by
        told, before = continuation_in(await log(later)), await log(failed.id)
        assert told is not None
        first, second = told["adopted"]
        [key] = told["flows"]["shop"]["keys"]

        def found(**changes: Any) -> list[str]:
            return [said for _, said in check_calls({**told, **changes}, {failed.id: before})]

        def keeps(**changes: Any) -> dict[str, Any]:
            return {"flows": {"shop": {"keys": [{**key, **changes}]}}}

        assert found() == []
        assert "'shop[0]', which ended before it, is not" in found(adopted=[second])[0]
        assert "did not make this call" in found(**keeps(arguments="0" * 32))[0]
        undo = {"trigger": "claimed", "to_state": "running", "metadata": {"step": "undo:shop[2]"}}
        assert found(adopted=[first]) == []
        before.append(undo)
        assert found() == ["it keeps its key, and its undo was begun"]


async def test_a_call_is_found_by_its_own_name_where_that_is_the_only_one(database_url: str) -> None:
    async def body(ctx: Any) -> int:
        await ctx.step("look", 1)
        await ctx.gate("Pay?")
        await ctx.step("pay", 2)
        return int(await ctx.step("pay", 3))

    shop = Shop()
    flow = shop.flow(body)
    async with sk.AsyncEngine(database_url, registry=shop.registry) as engine:
        run = (await engine.start(flow, {}, by="ann")).run_id
        await engine.work_on(run)
        gate = next(one for one in (await engine.show(run)).steps if one.state == "awaiting_approval")
        assert gate.call is not None
        assert (await engine.explain(run, gate.call)).subject == (await engine.explain(run, gate.name)).subject
        await engine.approve(run, gate.call, by="bea")
        assert (await engine.work_on(run)).state == "succeeded"
        again = await engine.continuations.preview(run, "rerun", start="look")
        assert (again.calls[0].adopted, again.calls[0].again[0].step) == (0, "shop[0]")
        for named in (engine.explain(run, "pay"), engine.continuations.rerun(run, "pay")):
            with pytest.raises(InvalidInput, match=r"several calls pay: shop\[2\], shop\[3\]. Name one of these"):
                await named
        with pytest.raises(NotFound, match=r"no step paid\. Its steps: shop, look, .*pay"):
            await engine.approve(run, "paid", by="bea")
