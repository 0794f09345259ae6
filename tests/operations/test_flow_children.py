"""Children of flows: `ctx.child` starts a run of another workflow, with the terms of a step with `workflow`."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import stepkeep as sk
from stepkeep.operations.children.children import ChildSweep
from stepkeep.worker.flows import keeper
from tests.operations.test_flow_lines import shape
from tests.suites import first_on

done: list[tuple[str, Any]] = []


@sk.step("flow_child.ship")
def ship(to: Any) -> dict[str, Any]:
    done.append(("ship", to))
    return {"to": to}


@sk.step("flow_child.unship")
def unship(to: Any) -> None:
    done.append(("unship", to))


@sk.step("flow_child.refuse")
def refuse() -> None:
    raise sk.fail("out of stock", category="conflict")


SHIPPING = sk.Workflow("flow-shipping", on_failure="compensate")
SHIPPING.step("ship", ship, undo=unship, inputs={"to": SHIPPING.input.to})
REFUSING = sk.Workflow("flow-refusing")
REFUSING.step("refuse", refuse)
WAITING = sk.Workflow("flow-waiting")
WAITING.wait("wait", "paid")


def run(engine: sk.Engine, flow: sk.Workflow, given: Any = None) -> sk.Result:
    """The result of a run, whose tree every judge accepts."""
    done.clear()
    for one in (SHIPPING, REFUSING, WAITING):
        engine.publish(one)
    result = engine.run(flow, {} if given is None else given, check=False)
    accepted(engine, result.id)
    return result


def accepted(engine: sk.Engine, run_id: str) -> None:
    certificate = engine.certify(run_id)
    dialects = [(one.dialect, one.findings) for one in certificate.dialects if one.findings]
    assert certificate.ok, [certificate.canonical, certificate.payloads, dialects, certificate.tree]


async def look_after_children(database_url: str) -> None:
    """Do what parents have asked for about their children, until nothing is left."""
    async with sk.AsyncEngine(database_url) as engine:
        sweep = ChildSweep(engine.transactor)
        while await sweep.sweep():
            pass


@pytest.mark.parametrize("kept", [0, 1000])
def test_a_flow_gets_the_outputs_of_its_children_in_order(database_url: str, kept: int) -> None:
    @sk.flow
    async def order(ctx: Any, items: list[Any]) -> list[Any]:
        found = await asyncio.gather(*(ctx.child(SHIPPING, {"to": item}) for item in items))
        detached = await ctx.child("flow-shipping", {"to": "later"}, detached=True)
        return [*(one["to"] for one in found), sorted(detached)]

    before = keeper.MOST_KEPT
    try:
        keeper.FlowKeeper.__init__.__defaults__ = (kept,)
        with sk.Engine(database_url) as engine:
            result = run(engine, order, {"items": [1, "x" * 5000]})
            assert result.output == [1, "x" * 5000, ["run_id"]]
            view = engine.show(result.id)
            assert [(step["kind"], step["call"]) for step in view["steps"]] == [
                ("flow", None), *[("workflow", "flow-shipping")] * 3,
            ]  # fmt: skip
            assert [(one["step"], one["version"], one["detached"]) for one in view["run"]["children"]] == [
                ("order[0]", 1, False), ("order[1]", 1, False), ("order[2]", 1, True),
            ]  # fmt: skip
    finally:
        keeper.FlowKeeper.__init__.__defaults__ = (before,)


def test_a_child_that_fails_or_cannot_start_is_an_exception_of_the_flow(database_url: str) -> None:
    @sk.flow
    async def careful(ctx: Any) -> list[str]:
        said = []
        for name in ("flow-refusing", "flow-nowhere"):
            try:
                await ctx.child(name)
            except sk.CallFailed as problem:
                said.append(f"{problem.call} {problem.category} {problem.error.split(' ', 3)[3]}")
        return said

    with sk.Engine(database_url) as engine:
        first, second = run(engine, careful).output
        assert first == "flow-refusing conflict has ended failed: out of stock"
        assert second.startswith("flow-nowhere validation was not started: there is no published workflow version 1")


def test_a_rollback_rolls_the_children_of_a_flow_back_last_completed_first(database_url: str) -> None:
    @sk.flow(on_failure="compensate")
    async def trip(ctx: Any) -> None:
        await ctx.child(SHIPPING, {"to": 1})
        await ctx.options(undo=unship).child(SHIPPING, {"to": 2})
        await ctx.child(REFUSING)

    with sk.Engine(database_url) as engine:
        result = run(engine, trip)
        assert result.state == "rolled_back"
        assert done == [("ship", 1), ("ship", 2), ("unship", 2), ("unship", 1)]
        undone = [(one["step"], one["state"]) for one in engine.show(result.id)["run"]["children"] if "undoes" in one]
        assert undone == [("undo:trip[0]", "rolled_back")]


async def test_a_deadline_and_a_cancel_call_the_child_of_a_flow_back(database_url: str) -> None:
    """The second child cancels its parent, and is called back before it goes on."""

    def cancel(parent: str) -> None:
        with sk.Engine(database_url) as other:
            other.cancel(parent, by="ann")

    stopping = sk.Workflow("flow-stopping")
    stopped = stopping.step("cancel", cancel, inputs={"parent": stopping.input.parent})
    stopping.wait("wait", "paid", after=stopped)

    @sk.flow("flow-parent")
    async def parent(ctx: Any) -> str:
        try:
            await ctx.child(WAITING, deadline="10ms")
        except sk.CallFailed as problem:
            assert str(problem.category) == "timeout"  # noqa: PT017 - a failed assertion fails the flow
        await ctx.child(stopping, {"parent": ctx.run_id})
        return "not cancelled"

    with sk.Engine(database_url) as engine:
        engine.publish(stopping)
        engine.publish(WAITING)
        # The first child waits for a message, so that `engine.run` would return before its deadline passes.
        engine.start_worker()
        result = engine.wait(engine.start(parent, {}).run_id)
        assert result.state == "cancelled"
        await look_after_children(database_url)
        assert [one["state"] for one in engine.show(result.id)["run"]["children"]] == ["cancelled", "cancelled"]
        accepted(engine, result.id)


@first_on("sqlite")
def test_a_flow_that_calls_itself_ends_at_the_deepest_generation(database_url: str) -> None:
    @sk.flow("flow-endless")
    async def endless(ctx: Any) -> list[str]:
        try:
            return ["deeper", *await ctx.child("flow-endless", {})]
        except sk.CallFailed as problem:
            return [problem.error.rpartition(": ")[2]]

    with sk.Engine(database_url) as engine:
        engine.publish(endless)
        said = "it would be of generation 9 in its tree; at most 8 are allowed"
        assert engine.run(endless, {}).output == [*["deeper"] * 7, said]


@first_on("sqlite")
@pytest.mark.parametrize("dialect", ["ioa", "run", "linear", "action", "workstream"])
def test_a_child_of_a_flow_has_the_step_lines_of_a_child_of_a_plan(database_url: str, dialect: str) -> None:
    @sk.flow("children-as-code", on_failure="compensate")
    async def flow(ctx: Any) -> None:
        await ctx.child(SHIPPING, {"to": 1})

    plan = sk.Workflow("children-as-plan")
    plan.workflow("a", "flow-shipping", inputs={"to": 1}, on_failure="continue")
    with sk.Engine(database_url) as engine:
        engine.publish(SHIPPING)
        logs = [engine.log(engine.run(one, {}).id, as_=dialect) for one in (flow, plan)]
    assert shape(logs[0], {"children-as-code[0]": "a"}) == shape(logs[1], {"a": "a"})
    assert len(shape(logs[1], {"a": "a"})) == 1
