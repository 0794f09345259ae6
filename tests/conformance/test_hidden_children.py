"""Steps that wait for elements or a child run, where a dialect hides that: true logs pass, and forged ones do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import UNSET
from tests.conformance.tellings import found_in, log_in, refused
from tests.kernel.driver import World, edges, work
from tests.kernel.test_elements import mapped
from tests.kernel.test_flow_calls import called, flow, suspend

from stepkeep.conformance.schema import timestamp_of
from stepkeep.dialects import registry
from stepkeep.kernel.decide import stopping
from stepkeep.kernel.definition import SECOND, Approval, Map, StepDefinition, SubWorkflow
from stepkeep.kernel.machine.events import ChildEnded, TimeCame
from stepkeep.kernel.machine.outcomes import Suspended
from stepkeep.kernel.machine.states import OnFailure, RunState
from stepkeep_lab.forgeries.material import CANONICAL

Line = dict[str, Any]
EVERY = pytest.mark.parametrize("words", [CANONICAL, *registry.names()])


# -- a held owner of elements ------------------------------------------------------------------------------------------
def held_map(**growth: Any) -> World:
    tolerant = {"on_failure": OnFailure.SKIP} if growth.pop("tolerant", False) else {}
    world = mapped(2, settings={"hold": Approval(), **tolerant}, **growth)
    world.approve("each")
    return world


def held_and_done() -> World:
    world = held_map()
    world.finish("each[0]", "each[1]", "after")
    return world


def held_and_failed() -> World:
    world = held_map()
    world.fail("each[0]")
    return world


def held_and_tolerated() -> World:
    world = held_map(tolerant=True)
    world.fail("each[0]")
    return world


def held_and_late() -> World:
    world = held_map(deadline=SECOND)
    world.later(2 * SECOND, "each")
    return world


HELD = {
    "rules_passed": held_and_done,
    "children_failed": held_and_failed,
    "children_failed_tolerated": held_and_tolerated,
    "deadline_passed": held_and_late,
}


@EVERY
@pytest.mark.parametrize("trigger", HELD)
def test_the_elements_of_an_approved_hold_began_after_its_approval(trigger: str, words: str) -> None:
    world = HELD[trigger]()
    assert world.trail("each")[-1] == trigger
    assert found_in(words, log_in(words, world)) == ()


# -- an element that ends after its owner ------------------------------------------------------------------------------
def failed_after_its_owner(**settings: Any) -> World:
    """The run stops while a worker holds an element; its owner is cancelled, and the element fails later."""
    each = work("each", growth=Map(over="${{ input }}", max=3, tolerate=settings.pop("tolerate", 0)), **settings)
    world = World(each, work("beside"), given=b"[1, 2]", grace=10 * SECOND)
    world.claim("each[0]")
    world.fail("beside")
    world.fail("each[0]")
    return world


@EVERY
@pytest.mark.parametrize("settings", [{"on_failure": OnFailure.SKIP}, {"tolerate": 2}], ids=["skip", "tolerate"])
def test_an_owner_that_was_cancelled_tolerates_no_failure(settings: dict[str, Any], words: str) -> None:
    world = failed_after_its_owner(**settings)
    assert (world.trail("each")[-1], world.trail("each[0]")[-1]) == ("cancelled", "failed")
    lines = log_in(words, world)
    assert found_in(words, lines) == ()


# -- a child that is in flight when its run stops ----------------------------------------------------------------------
def call(name: str, *after: str, **settings: Any) -> StepDefinition:
    """A step that starts a run of another workflow."""
    child = SubWorkflow(workflow="leaf", version=1, detached=settings.pop("detached", UNSET))
    return StepDefinition(name=name, order=0, child=child, depends_on=edges(after), **settings)


Act = Callable[[World], object]


def news_of(world: World, state: RunState | None) -> ChildEnded:
    row, output = world.row("sub"), b"1" if state is RunState.SUCCEEDED else None
    assert row.note is not None
    assert row.note.activation is not None
    who = {"tenant": "t", "run_id": "r", "actor": "child:c", "child": "c"}
    return ChildEnded(no=row.no, activation=row.note.activation, state=state, output=output, **who)


def ends(state: RunState | None) -> Act:
    return lambda world: world.one(news_of(world, state))


STOPS: dict[str, Act] = {
    "a failure": lambda world: world.fail("beside"),
    "a cancel": lambda world: world.cancel(compensate=True),
    "a timeout": lambda world: world.later(5 * SECOND),
    "no stop": lambda world: None,
}
ENDS: dict[str, Act] = {
    "succeeded": ends(RunState.SUCCEEDED),
    "failed": ends(RunState.FAILED),
    "cancelled": ends(RunState.CANCELLED),
    "rolled back": ends(RunState.ROLLED_BACK),
    "not started": ends(None),
    "grace": lambda world: world.later(20 * SECOND),
    "cancel": lambda world: world.cancel(),
}
TREES = [(stop, end) for stop in STOPS for end in ENDS if (stop, end) != ("no stop", "grace")]


def played(stop: str, end: str, *, first: bool = True, **settings: Any) -> World:
    """A step waits for its child, the run stops, and the child or the patience of its run ends."""
    before = (work("first", undo=True),) if first else ()
    sub = call("sub", *(step.name for step in before), **settings)
    # A run that undoes nothing waits for nothing after its timeout.
    policy = {"on_failure": OnFailure.COMPENSATE} if stop == "a timeout" else {}
    world = World(*before, work("beside"), sub, work("after", "sub"), timeout=4 * SECOND, grace=10 * SECOND, **policy)
    if first:
        world.finish("first")
    STOPS[stop](world)
    ENDS[end](world)
    return world


UNDONE_IN_TIME: dict[str, Any] = {"timeout": 4 * SECOND, "grace": 10 * SECOND, "on_failure": OnFailure.COMPENSATE}


def ended_in_the_entry_of_the_stop() -> World:
    """The timeout is noticed when news of the child comes: one entry has both causes."""
    world = World(call("sub"), **UNDONE_IN_TIME)
    world.pass_time(5 * SECOND)
    world.send(TimeCame(tenant="t", run_id="r", actor="sweep"), news_of(world, RunState.CANCELLED))
    return world


def failed_after_a_hidden_timeout() -> World:
    """The only other step is in flight too, so that no line shows the stop."""
    world = World(work("beside"), call("sub"), **UNDONE_IN_TIME)
    world.claim("beside")
    world.later(5 * SECOND)
    world.fail("beside")
    ends(RunState.SUCCEEDED)(world)
    return world


def ended_at_its_timeout() -> World:
    """A run that undoes nothing waits neither for its child nor for its worker."""
    world = World(work("first"), work("beside"), call("sub", "first"), timeout=4 * SECOND, grace=10 * SECOND)
    world.finish("first")
    world.claim("beside")
    world.later(5 * SECOND)
    return world


def called_back_after_a_hidden_timeout() -> World:
    """The run waits for its child after its timeout, and a cancel that asks for a rollback ends that wait."""
    world = World(call("sub"), **UNDONE_IN_TIME)
    world.later(5 * SECOND)
    world.cancel(compensate=True)
    return world


def detached_after_work() -> World:
    world = World(work("first"), call("sub", "first", detached=True))
    world.finish("first")
    return world


STORIES = (
    ended_in_the_entry_of_the_stop,
    failed_after_a_hidden_timeout,
    ended_at_its_timeout,
    called_back_after_a_hidden_timeout,
    detached_after_work,
)


@EVERY
@pytest.mark.parametrize("tell", STORIES, ids=lambda tell: tell.__name__)
def test_true_stories_of_children_pass(tell: Callable[[], World], words: str) -> None:
    world = tell()
    assert world.over
    assert found_in(words, log_in(words, world)) == ()


def cancels_of(lines: list[Line], step: str) -> list[dict[str, Any]]:
    return [
        line["metadata"]
        for line in lines
        if line["metadata"].get("because", line["trigger"]) == "cancelled" and line["metadata"].get("step") == step
    ]


@EVERY
@pytest.mark.parametrize(("stop", "end"), TREES)
def test_a_child_in_flight_ends_like_any_other_where_its_beginning_is_hidden(stop: str, end: str, words: str) -> None:
    for settings in ({}, {"first": False}, {"on_failure": OnFailure.SKIP}):
        assert found_in(words, log_in(words, played(stop, end, **settings))) == ()


@EVERY
@pytest.mark.parametrize("end", ["grace", "cancel"])
@pytest.mark.parametrize("stop", ["a failure", "a cancel", "a timeout"])
def test_a_child_that_was_left_is_in_doubt_and_its_step_must_say_so(stop: str, end: str, words: str) -> None:
    world = played(stop, end)
    lines = log_in(words, world)
    [said] = cancels_of(lines, "sub")
    assert said.pop("error") == stopping.CHILD_IN_DOUBT
    assert refused(words, lines, world)


@EVERY
@pytest.mark.parametrize(
    ("stop", "end"), [("no stop", "cancel"), ("a failure", "cancelled"), ("a cancel", "not started")]
)
def test_a_child_that_was_called_back_is_not_in_doubt(stop: str, end: str, words: str) -> None:
    world = played(stop, end)
    lines = log_in(words, world)
    [said] = cancels_of(lines, "sub")
    assert said.setdefault("error", stopping.CHILD_IN_DOUBT) == stopping.CHILD_IN_DOUBT
    assert refused(words, lines, world)


@EVERY
def test_a_step_whose_dependencies_never_ended_had_no_child(words: str) -> None:
    world = World(work("first"), work("beside"), call("sub", "first"), grace=SECOND)
    world.claim("first")
    world.fail("beside")
    world.later(2 * SECOND)
    lines = log_in(words, world)
    assert found_in(words, lines) == ()
    [said] = cancels_of(lines, "sub")
    said["error"] = stopping.CHILD_IN_DOUBT
    assert refused(words, lines, world)


@EVERY
def test_a_cancelled_step_has_no_attempt_before_its_dependencies_ended(words: str) -> None:
    """Only a child may have begun unseen when its run stops: a worker's step shows its claim."""
    world = World(work("first"), work("beside"), work("last", "first"), grace=SECOND)
    world.claim("first")
    world.fail("beside")
    world.later(2 * SECOND)
    lines = log_in(words, world)
    [said] = cancels_of(lines, "last")
    said |= {"fence": 1, "attempt": 1, "error": stopping.IN_DOUBT, "duration_seconds": 1.0}
    assert found_in(words, lines)


@pytest.mark.parametrize("words", registry.names())
def test_a_child_that_was_called_back_names_the_stop_that_the_end_names(words: str) -> None:
    world = called_back_after_a_hidden_timeout()
    lines = log_in(words, world)
    [said] = cancels_of(lines, "sub")
    assert said["ground"] == "run_timed_out"
    said["ground"] = "run_cancelled"
    assert refused(words, lines, world)


# -- a flow whose calls run out of time --------------------------------------------------------------------------------
def late_flow(ends_by: str) -> World:
    """The first suspension begins the deadline of the calls, and most dialects hide it."""
    world = flow(deadline=10 * SECOND, settings={"on_failure": OnFailure.SKIP})
    suspend(world, called(), called())
    if ends_by == "time":
        world.later(11 * SECOND, "flow")
    else:
        world.finish("flow[0]")
        world.claim("flow")
        world.pass_time(11 * SECOND)
        world.report("flow", Suspended(seen=1))
    return world


@EVERY
@pytest.mark.parametrize("ends_by", ["time", "report"])
def test_a_flow_stops_its_calls_at_their_deadline_and_not_before(ends_by: str, words: str) -> None:
    world = late_flow(ends_by)
    lines = log_in(words, world)
    [stopped] = {line["seq"] for line in cancels_of(lines, "flow[1]")}
    assert found_in(words, lines) == ()
    for line in lines:
        said = line["metadata"]
        if said.get("seq", 0) >= stopped:
            said["at"] -= 2 * SECOND
            line["timestamp"] = timestamp_of(said["at"])
    assert refused(words, lines, world)
