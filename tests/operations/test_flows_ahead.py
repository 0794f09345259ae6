"""Flows that go on before the end of a call is recorded: one transaction for each call, and the same record."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import stepkeep as sk
from stepkeep.conformance.certificate import Certificate
from stepkeep.worker.flows import ahead
from tests.operations.test_flows import told

CALLS = 8
made: list[str] = []


@sk.step("ahead.async")
async def in_the_loop(n: int) -> int:
    return n + 1


@sk.step("ahead.sync")
def in_a_thread(n: int) -> int:
    return n + 1


@sk.step("ahead.refuse")
async def refuse(n: int) -> None:
    raise sk.fail("no", category="conflict")


def played(database_url: str, flow: sk.Workflow, given: Any = None) -> tuple[sk.Result, Certificate]:
    with sk.Engine(database_url) as engine:
        result = engine.run(flow, {} if given is None else given, check=False)
        certificate = engine.certify(result.id)
        assert certificate.ok, [certificate.canonical, *((one.dialect, one.findings) for one in certificate.dialects)]
        return result, certificate


def counting(handler: Any) -> sk.Workflow:
    @sk.flow("ahead.count", version=1)
    async def count(ctx: sk.FlowContext) -> int:
        total = 0
        for _ in range(CALLS):
            total = await ctx.step(handler, total)
        return total

    return count


@pytest.mark.parametrize("handler", [in_the_loop, in_a_thread], ids=["coroutine", "thread"])
def test_a_call_and_what_its_flow_makes_of_it_are_one_transaction(database_url: str, handler: Any) -> None:
    result, certificate = played(database_url, counting(handler))
    assert result.output == CALLS
    assert certificate.entries <= CALLS + 4


def test_a_flow_that_was_slow_once_goes_on_after_the_commit(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until then, the result of a call would exist in the process of the worker alone."""
    monkeypatch.setattr(ahead, "SLOW_SECONDS", -1.0)
    result, certificate = played(database_url, counting(in_the_loop))
    assert result.output == CALLS
    assert certificate.entries >= 2 * CALLS


def test_a_checkpoint_between_two_calls_is_recorded_under_a_claim(database_url: str) -> None:
    made.clear()

    @sk.flow("ahead.once", version=1)
    async def once(ctx: sk.FlowContext) -> list[int]:
        first = await ctx.step(in_the_loop, 1)
        drawn = await ctx.once("draw", lambda: made.append("drawn") or first * 10)
        return [drawn, await ctx.step(in_a_thread, drawn)]

    result, _ = played(database_url, once)
    assert (result.output, made) == ([20, 21], ["drawn"])


def test_calls_that_are_made_together_come_to_the_same(database_url: str) -> None:
    @sk.flow("ahead.together", version=1)
    async def together(ctx: sk.FlowContext) -> list[Any]:
        both = await asyncio.gather(*(ctx.step(handler, 1) for handler in (in_the_loop, in_a_thread) * 5))
        return [*both, *await ctx.map(in_a_thread, range(20), in_flight=4), await ctx.map(in_the_loop, range(20))]

    result, _ = played(database_url, together)
    assert result.output == [2] * 10 + list(range(1, 21)) + [list(range(1, 21))]


def test_events_and_costs_are_recorded_once_whether_or_not_a_claim_comes_between(database_url: str) -> None:
    """A checkpoint needs a claim: what the flow collected before it went on ahead must not be dropped then."""

    @sk.flow("ahead.costs", version=1)
    async def costs(ctx: sk.FlowContext) -> None:
        for turn in range(4):
            await ctx.step(in_the_loop, turn)
            ctx.cost(tokens=1)
            ctx.emit("ahead.turn", turn)
            if turn % 2:
                await ctx.once(f"turn {turn}", lambda: None)

    with sk.Engine(database_url) as engine:
        result = engine.run(costs, {})
        assert engine.certify(result.id).ok
        assert engine.show(result.id)["run"]["cost"] == {"tokens": 4}
    assert told(database_url, result.id) == [("ahead.turn", b"%d" % turn) for turn in range(4)]


def test_an_error_of_the_flow_after_a_call_is_that_of_the_flow(database_url: str) -> None:
    @sk.flow("ahead.wrong", version=1, retry=sk.Retry(max_attempts=1), on_exhausted="fail")
    async def wrong(ctx: sk.FlowContext) -> None:
        await ctx.step(in_the_loop, 1)
        raise KeyError("email")

    result, _ = played(database_url, wrong)
    assert result.state == "failed"
    assert "KeyError" in str(result.error)
    steps = {step["name"]: step["state"] for step in result.view["steps"]}
    assert steps == {"ahead.wrong": "failed", "ahead.wrong[0]": "succeeded"}


def test_a_failed_call_is_recorded_before_its_flow_goes_on(database_url: str) -> None:
    @sk.flow("ahead.caught", version=1)
    async def caught(ctx: sk.FlowContext) -> str:
        await ctx.step(in_the_loop, 1)
        try:
            await ctx.step(refuse, 2)
        except sk.CallFailed as problem:
            return problem.error
        return "nothing failed"

    assert played(database_url, caught)[0].output == "no"


def test_a_flow_continues_as_new_with_its_last_call(database_url: str) -> None:
    @sk.flow("ahead.again", version=1)
    async def again(ctx: sk.FlowContext, left: int = 2) -> str:
        await ctx.step(in_the_loop, left)
        if left:
            ctx.continue_as_new({"left": left - 1})
        return "over"

    assert played(database_url, again)[0].output == "over"
