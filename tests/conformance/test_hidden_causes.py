"""Where a dialect hides a cause, the judge still checks what is determined: presence, wording, ground and bounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.conformance.tellings import found_in, log_in, refused
from tests.kernel.driver import TOKEN, World, gate, wait, work

from stepkeep.conformance.schema import timestamp_of
from stepkeep.dialects import registry
from stepkeep.kernel.definition import (
    SECOND,
    Budget,
    Completion,
    OnExceeded,
    PolicyEffect,
    PolicyRule,
    Retry,
    Rule,
)
from stepkeep.kernel.machine.events import TimeCame
from stepkeep.kernel.machine.outcomes import Completed, RulesFailed
from stepkeep.kernel.machine.states import Category, OnFailure
from stepkeep_lab.forgeries.material import CANONICAL

Line = dict[str, Any]
RULES = (Rule(expression="true"),)
EVERY = pytest.mark.parametrize("words", registry.names())


def cancelled_in_flight() -> World:
    """A cancel with compensation while the only step is held by a worker: no dialect shows the stop."""
    world = World(work("a", rules=RULES))
    world.claim("a")
    world.report("a", Completed())
    world.cancel(compensate=True, reason="not needed")
    world.report("a", RulesFailed(error="too dear"))
    return world


def timed_out_in_flight() -> World:
    world = World(work("a"), timeout=SECOND, grace=10 * SECOND, on_failure=OnFailure.COMPENSATE)
    world.claim("a")
    world.later(2 * SECOND)
    world.report("a", Completed())
    return world


def cancelled_after_a_tolerated_failure() -> World:
    world = World(work("a", on_failure=OnFailure.CONTINUE), work("b"))
    world.fail("a", error="no such account")
    world.claim("b")
    world.cancel(compensate=True)
    world.report("b", Completed())
    return world


STOPS = {
    "a hidden cancel": cancelled_in_flight,
    "a hidden timeout": timed_out_in_flight,
    "a hidden cancel after a tolerated failure": cancelled_after_a_tolerated_failure,
}


def end_of(lines: list[Line]) -> Line:
    return next(line for line in reversed(lines[:-1]) if "step" not in line["metadata"])


@EVERY
@pytest.mark.parametrize("story", STOPS)
def test_the_end_of_a_run_tells_why_it_stopped_where_the_stop_is_hidden(story: str, words: str) -> None:
    lines = log_in(words, STOPS[story]())
    assert found_in(words, lines) == ()
    said = end_of(lines)["metadata"]
    assert "error" in said
    for name, other in (("error", None), ("error", "made up"), ("category", "external"), ("category", None)):
        if said.get(name) == other:
            continue
        world = STOPS[story]()
        forged = log_in(words, world)
        told = end_of(forged)["metadata"]
        told.pop(name, None)
        told |= {} if other is None else {name: other}
        assert refused(words, forged, world), (name, other)


@EVERY
def test_a_ground_is_the_one_that_the_steps_and_the_definition_lead_to(words: str) -> None:
    for tell in (cancelled_in_flight, timed_out_in_flight, cancelled_after_a_tolerated_failure):
        true = log_in(words, tell())
        for place, line in enumerate(true):
            if "because" not in line["metadata"]:
                continue
            for other in {None, "made_up", "run_failed", "timed_out"} - {line["metadata"].get("ground")}:
                world = tell()
                forged = log_in(words, world)
                forged[place]["metadata"].pop("ground", None)
                forged[place]["metadata"] |= {} if other is None else {"ground": other}
                assert refused(words, forged, world), (line, other)


def undecided() -> World:
    world = World(gate("s", deadline=SECOND))
    world.later(2 * SECOND, "s")
    return world


def unheard() -> World:
    world = World(work("a"), wait("s", "paid", "a", deadline=SECOND))
    world.pass_time(5 * SECOND)
    world.finish("a")
    world.later(2 * SECOND, "s")
    return world


def uncompleted() -> World:
    world = World(work("s", completion=Completion.MANUAL, completion_deadline=SECOND))
    world.claim("s")
    world.report("s", Completed(token=TOKEN))
    world.later(2 * SECOND, "s")
    return world


@pytest.mark.parametrize("words", [CANONICAL, *registry.names()])
@pytest.mark.parametrize("tell", [undecided, unheard, uncompleted], ids=lambda tell: tell.__name__)
def test_a_deadline_of_the_definition_does_not_pass_early_where_its_beginning_is_hidden(
    tell: Callable[[], World], words: str
) -> None:
    world = tell()
    lines = log_in(words, world)
    assert found_in(words, lines) == ()
    passed = next(line for line in lines if line["metadata"].get("because", line["trigger"]) == "deadline_passed")
    seq = passed["metadata"]["seq"]
    for line in lines:
        if line["metadata"].get("seq") == seq:
            line["metadata"]["at"] -= 3 * SECOND // 2
            line["timestamp"] = timestamp_of(line["metadata"]["at"])
    assert refused(words, lines, world)


DETAILS: dict[str, tuple[str, dict[str, Any]]] = {
    "a name that no event brings": ("step_reported", {"invented": 1}),
    "a wish for compensation in a report": ("step_reported", {"compensate": True}),
    "a pause of a step that ended well": ("step_reported", {"retry_in_us": 5}),
    "a detail of a claim": ("step_claimed", {"reason": "mine"}),
    "a number as the reason of a cancel": ("cancel_requested", {"compensate": True, "reason": 5}),
}


@pytest.mark.parametrize("words", [CANONICAL, *registry.names()])
@pytest.mark.parametrize("lie", DETAILS)
def test_a_detail_has_only_what_its_event_brings(lie: str, words: str) -> None:
    event, detail = DETAILS[lie]
    world = World(work("a"), work("b", "a"))
    world.finish("a")
    world.cancel(compensate=True, reason="not needed")
    lines = log_in(words, world)
    line = next((line for line in lines if line["metadata"].get("event") == event and "step" in line["metadata"]), None)
    assert line is not None or words in ("ioa", "action")
    if line is not None:
        line["metadata"]["detail"] = detail
        assert any("metadata.detail" in found for found in found_in(words, lines))


# -- verdicts about another attempt -----------------------------------------------------------------------------------
def spent(answer: OnExceeded) -> World:
    """Two steps that may not fail the run, whose attempts are all that the budget allows."""
    spare = {"retry": Retry(max_attempts=9), "on_failure": OnFailure.CONTINUE}
    world = World(work("a", **spare), work("b", **spare), budget=Budget(limits={"attempts": 2.0}, on_exceeded=answer))
    world.claim("a", "b")
    return world


def times_of(*names: str, world: World) -> World:
    """One entry in which a sweep notices the time of several steps: each has a cause of its own."""
    world.pass_time(40 * SECOND)
    world.send(*(TimeCame(tenant="t", run_id="r", actor="sweep", no=world.no(name)) for name in names))
    return world


def retried_together(answer: OnExceeded) -> World:
    world = spent(answer)
    for name in "ab":
        world.fail(name, Category.TRANSIENT)
    return times_of("a", "b", world=world)


def lost_and_retried(answer: OnExceeded) -> World:
    world = spent(answer)
    world.fail("b", Category.TRANSIENT)
    return times_of("a", "b", world=world)


def judged_in_the_last_entry(lines: list[Line]) -> list[Line]:
    last = max(line["metadata"].get("seq", 0) for line in lines)
    triggers = ("held", "denied_tolerated")
    return [
        line
        for line in lines
        if line["metadata"].get("seq") == last and line["metadata"].get("because", line["trigger"]) in triggers
    ]


@pytest.mark.parametrize("words", [CANONICAL, *registry.names()])
@pytest.mark.parametrize("answer", [OnExceeded.HOLD, OnExceeded.STOP])
@pytest.mark.parametrize("tell", [retried_together, lost_and_retried], ids=lambda tell: tell.__name__)
def test_each_retry_that_policy_judges_in_one_entry_has_its_own_detail(
    tell: Callable[[OnExceeded], World], answer: OnExceeded, words: str
) -> None:
    assert found_in(words, log_in(words, tell(answer))) == ()


def test_a_step_that_was_lost_is_held_by_the_same_cause() -> None:
    world = lost_and_retried(OnExceeded.HOLD)
    lines = log_in("linear", world)
    held, other = judged_in_the_last_entry(lines)
    assert (held["metadata"]["step"], "detail" in held["metadata"], "detail" in other["metadata"]) == ("a", False, True)
    held["metadata"]["detail"] = {"policy": {"a": other["metadata"]["detail"]["policy"]["b"]}}
    assert refused("linear", lines, world)


def test_steps_that_are_held_at_the_start_have_one_cause() -> None:
    hold = PolicyRule(name="r", then=PolicyEffect.HOLD)
    world = World(work("a"), work("b"), work("c"), policy=(hold,))
    lines = log_in("linear", world)
    assert found_in("linear", lines) == ()
    *_, last = judged_in_the_last_entry(lines)
    started = next(line for line in lines if line["metadata"].get("because") == "started")
    last["metadata"]["detail"] = {"policy": {"c": started["metadata"]["detail"]["policy"]["c"]}}
    assert refused("linear", lines, world)
