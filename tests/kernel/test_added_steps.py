"""Steps that a handler adds: who may add them, what they wait for, and what their ends mean for their owner."""

from __future__ import annotations

from typing import Any

import pytest
from tests.kernel.driver import World, work

from stepkeep.kernel.definition import SECOND, Approval, Flow, Handler, StepDefinition, Then, Undo
from stepkeep.kernel.machine.events import HoldChoice
from stepkeep.kernel.machine.outcomes import Added, Completed, Failed, NewCall
from stepkeep.kernel.machine.rows import Edge
from stepkeep.kernel.machine.states import AttemptState, Category, OnFailure, RunState, StepState
from stepkeep.kernel.plan import ADDED, written_template

S = StepState
FAILS = Failed(category=Category.CONFLICT, error="no", final=True)


def planner(*, settings: dict[str, Any] | None = None, **growth: Any) -> World:
    """A run of one step that adds steps, and a step after it."""
    return World(work("plan", growth=Then(**{"max": 5, **growth}), **(settings or {})), work("after", "plan"))


def step(name: str, *after: int, undo: bool = False, allow: tuple[S, ...] = (S.SUCCEEDED,), **more: Any) -> NewCall:
    hook = Undo(executor=Handler(name="noop")) if undo else None
    template = StepDefinition(name="plan", order=0, **{"executor": Handler(name="noop"), "undo": hook, **more})
    return NewCall(
        kind=ADDED,
        name=name,
        digest="0",
        arguments=b"{}",
        step=written_template(template),
        queue=1,
        undo_queue=1,
        after=tuple(Edge(place, allow) for place in after),
    )


def add(world: World, *steps: NewCall, by: str = "plan") -> None:
    world.claim(by)
    world.report(by, Added(calls=steps, output=b"7"))


def test_the_owner_awaits_its_steps_and_each_waits_for_those_before_it() -> None:
    world = planner()
    add(world, step("a"), step("b", 0), step("c", 0, 1))
    assert world.states() == {
        "plan": "awaiting_children", "after": "pending", "plan[0]": "ready", "plan[1]": "pending", "plan[2]": "pending",
    }  # fmt: skip
    assert world.attempts_of("plan") == [AttemptState.SUCCEEDED]
    world.finish("plan[0]")
    assert (world.state("plan[1]"), world.state("plan[2]")) == (S.READY, S.PENDING)
    world.finish("plan[1]")
    world.finish("plan[2]")
    assert (world.state("plan"), world.ready()) == (S.SUCCEEDED, ["after"])
    assert world.trail("plan")[-3:] == ["children_started", "children_succeeded", "rules_passed"]


def test_an_empty_list_ends_the_step_at_once() -> None:
    world = planner()
    add(world)
    assert (world.state("plan"), world.ready()) == (S.SUCCEEDED, ["after"])


def test_a_handler_that_adds_nothing_completes_like_any_other() -> None:
    world = planner()
    world.finish("plan")
    assert world.trail("plan")[-2:] == ["completed", "rules_passed"]


def test_an_added_step_adds_steps_to_the_same_owner_and_has_succeeded() -> None:
    world = planner()
    add(world, step("a"), step("b", 0))
    add(world, step("c"), by="plan[0]")
    assert (world.state("plan[0]"), world.state("plan[1]"), world.state("plan[2]")) == (S.SUCCEEDED, S.READY, S.READY)
    world.finish("plan[1]")
    assert world.state("plan") is S.AWAITING_CHILDREN
    world.finish("plan[2]")
    assert world.state("plan") is S.SUCCEEDED


@pytest.mark.parametrize("more", [3, 4])
def test_all_added_steps_together_have_room_or_the_step_that_adds_fails(more: int) -> None:
    world = planner(max=4)
    add(world, step("a"))
    add(world, *(step(f"b{place}") for place in range(more)), by="plan[0]")
    fits = more == 3
    assert world.state("plan[0]") is (S.SUCCEEDED if fits else S.FAILED)
    assert world.state("plan") is (S.AWAITING_CHILDREN if fits else S.FAILED)
    if not fits:
        row = world.row("plan[0]")
        assert (row.category, row.error) == (
            Category.VALIDATION,
            "it adds 4 steps, and its definition leaves room for 3 of 4",
        )


def test_a_name_is_used_once() -> None:
    world = planner()
    add(world, step("a"))
    add(world, step("a"), by="plan[0]")
    assert world.row("plan[0]").error == "it adds 'a', and a step of that name was added before"


def test_a_failure_goes_to_the_owner_which_cancels_the_others_and_waits_for_workers() -> None:
    world = planner(settings={"on_failure": OnFailure.SKIP})
    add(world, step("a"), step("b"), step("c", 0), step("d"))
    world.claim("plan[1]")
    world.claim("plan[0]")
    world.report("plan[0]", FAILS)
    assert (world.state("plan[2]"), world.state("plan[3]")) == (S.CANCELLED, S.CANCELLED)
    assert world.state("plan") is S.AWAITING_CHILDREN
    world.report("plan[1]", Completed())
    assert (world.state("plan"), world.run.state) == (S.SKIPPED, RunState.SUCCEEDED)
    assert world.row("plan").error == "plan[0] failed: no"


def test_a_step_that_may_be_skipped_is_borne_and_its_edges_decide() -> None:
    world = planner()
    borne = {"on_failure": OnFailure.SKIP}
    add(world, step("a", **borne), step("b", 0), step("c", 0, allow=(S.SUCCEEDED, S.SKIPPED)))
    world.claim("plan[0]")
    world.report("plan[0]", FAILS)
    assert (world.state("plan[0]"), world.state("plan[1]"), world.state("plan[2]")) == (S.SKIPPED, S.SKIPPED, S.READY)
    world.finish("plan[2]")
    assert world.state("plan") is S.SUCCEEDED


@pytest.mark.parametrize("has_failed", [False, True])
def test_a_step_that_a_person_skips_is_borne_whether_or_not_it_failed_before(has_failed: bool) -> None:
    world = planner()
    add(world, step("a"))
    if has_failed:
        world.claim("plan[0]")
        world.report("plan[0]", Failed(category=Category.TRANSIENT, error="no"))
        assert world.state("plan[0]") is S.RETRYING
    world.decide_hold("plan[0]", HoldChoice.SKIP, reason="not needed")
    assert (world.state("plan[0]"), world.state("plan")) == (S.SKIPPED, S.SUCCEEDED)


def test_a_rollback_undoes_added_steps_last_completed_first() -> None:
    world = planner(settings={"on_failure": OnFailure.COMPENSATE})
    add(world, step("a", undo=True), step("b", undo=True), step("c", 0, 1))
    world.finish("plan[1]")
    world.finish("plan[0]")
    world.claim("plan[2]")
    world.report("plan[2]", FAILS)
    assert world.run.state is RunState.COMPENSATING
    assert world.ready() == ["undo:plan[0]"]
    world.finish("undo:plan[0]")
    world.finish("undo:plan[1]")
    assert world.run.state is RunState.ROLLED_BACK


def test_the_deadline_of_added_steps_fails_their_owner() -> None:
    world = planner(deadline=5 * SECOND)
    add(world, step("a"))
    world.later(5 * SECOND, "plan")
    assert (world.state("plan[0]"), world.state("plan")) == (S.CANCELLED, S.FAILED)
    assert world.row("plan").category is Category.TIMEOUT


def test_a_gate_can_be_added() -> None:
    world = planner()
    add(world, step("ask", executor=None, approval=Approval(prompt="Go on?")), step("b", 0))
    assert (world.state("plan[0]"), world.state("plan[1]")) == (S.AWAITING_APPROVAL, S.PENDING)


@pytest.mark.parametrize(
    ("growth", "said"),
    [({}, "declare `then: {max_steps: N}`"), ({"growth": Flow(max=2)}, "a flow and its calls add none")],
)
def test_only_a_step_with_then_may_add_steps(growth: dict[str, Any], said: str) -> None:
    world = World(work("plan", **growth))
    add(world, step("a"))
    row = world.row("plan")
    assert (row.state, row.category) == (S.FAILED, Category.VALIDATION)
    assert said in (row.error or "")


def test_nothing_is_added_to_a_run_that_stops() -> None:
    world = planner()
    add(world, step("a"), step("b"))
    world.claim("plan[0]")
    world.cancel(compensate=True)
    world.report("plan[0]", Added(calls=(step("c"),)))
    assert "plan[2]" not in world.states()
