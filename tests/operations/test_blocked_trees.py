"""A tree that only people or messages can move is blocked, whichever of its runs waits for them, on both stores."""

from __future__ import annotations

import pytest

import stepkeep as sk
from stepkeep.kernel.machine.states import RunState


@sk.step("blocked.act")
def act() -> str:
    return "done"


@sk.step("blocked.plan")
def plan() -> object:
    return sk.then({"name": "nap", "sleep": "300ms"}, {"name": "act", "uses": act})


@sk.flow
async def calling(ctx: sk.Context) -> object:
    return await ctx.child("asked", None)  # type: ignore[attr-defined]


def workflows() -> dict[str, sk.Workflow]:
    """Two generations above a run that waits for a message, and one that only sleeps."""
    asked = sk.Workflow("asked", timeout="1h")
    asked.wait("go", "go")
    middle = sk.Workflow("middle", timeout="1h")
    middle.workflow("below", "asked")
    each = sk.Workflow("each", timeout="1h")
    each.workflow("below", "asked", map={"over": each.input.items, "in_flight": 2})
    again = sk.Workflow("again", timeout="1h")
    again.workflow("below", "asked", repeat={"until": again.last == "x", "max": 2})
    napping = sk.Workflow("napping", timeout="1h")
    napping.sleep("nap", "300ms")
    over = sk.Workflow("over", timeout="1h")
    over.workflow("below", "napping")
    return {one.name: one for one in (asked, middle, each, again, napping, over)}


@pytest.mark.parametrize("name", ["middle", "each", "again", "calling"])
def test_a_parent_is_blocked_where_its_child_waits_for_a_message(database_url: str, name: str) -> None:
    with sk.open(database_url) as engine:
        known = workflows() | {"calling": calling}
        for one in known.values():
            engine.publish(one)
        result = engine.run(known[name], {"items": [1, 2]} if name == "each" else {})
        assert result.state is RunState.BLOCKED
        assert engine.wait(result.id, seconds=30, until_blocked=True).state is RunState.BLOCKED
        below = engine.show(result.id)["run"]["children"]
        waits = [one["run_id"] for one in engine.show(result.id)["run"]["waiting_for"] if "run_id" in one]
        assert sorted(waits) == sorted(one["run_id"] for one in below)
        for child in waits:
            engine.send(child, "go", "x")
        assert engine.work_on(result.id).state is RunState.SUCCEEDED


def test_a_parent_is_awaited_while_its_child_only_sleeps(database_url: str) -> None:
    with sk.open(database_url) as engine:
        known = workflows()
        for one in known.values():
            engine.publish(one)
        assert engine.run(known["over"]).state is RunState.SUCCEEDED


def test_a_parent_is_blocked_where_its_child_is_paused(database_url: str) -> None:
    with sk.open(database_url) as engine:
        known = workflows()
        for one in known.values():
            engine.publish(one)
        engine.pauses.pause_workflow("napping")
        result = engine.run(known["over"])
        assert result.state is RunState.BLOCKED
        [wait] = engine.show(result.id)["run"]["waiting_for"]
        assert engine.explain(result.id)["causes"][0]["command"].endswith(f"explain {wait['run_id']}")
        engine.resume(wait["run_id"])
        assert engine.work_on(result.id).state is RunState.SUCCEEDED


def test_a_parent_that_calls_its_child_back_is_not_blocked_by_it(database_url: str) -> None:
    """One element fails, and the map stops: a worker cancels the other child, although it waits for a message."""
    with sk.open(database_url) as engine:
        known = workflows()
        for one in known.values():
            engine.publish(one)
        result = engine.run(known["each"], {"items": [1, 2]})
        first, _ = (one["run_id"] for one in engine.show(result.id)["run"]["children"])
        owner = next(cause for cause in engine.explain(result.id)["causes"] if cause["subject"] == "below")
        assert "waits for its elements: 0 of 2 have settled" in owner["sentence"]
        engine.cancel(first)
        assert engine.work_on(result.id).state is RunState.FAILED
        looked = engine.continuations.preview(first, "retry")
        assert looked["child_of"] == result.id


def test_a_run_in_which_only_an_added_step_sleeps_is_awaited(database_url: str) -> None:
    with sk.open(database_url) as engine:
        agent = sk.Workflow("agent", timeout="1h")
        agent.step("think", plan, then={"max_steps": 5})
        assert engine.run(agent).state is RunState.SUCCEEDED
