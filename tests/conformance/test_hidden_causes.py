"""Where a dialect hides a cause, the judge still checks what is determined: presence, wording, ground and bounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.conformance.test_texts import found_in, log_in
from tests.kernel.driver import TOKEN, World, gate, wait, work

from stepkeep.conformance.schema import timestamp_of
from stepkeep.dialects import registry
from stepkeep.kernel.definition import SECOND, Completion, Rule
from stepkeep.kernel.outcomes import Completed, RulesFailed
from stepkeep.kernel.states import OnFailure
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
    world = World(work("a"), timeout=SECOND, grace=10 * SECOND)
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
        forged = log_in(words, STOPS[story]())
        told = end_of(forged)["metadata"]
        told.pop(name, None)
        told |= {} if other is None else {name: other}
        assert found_in(words, forged), (name, other)


@EVERY
def test_a_ground_is_the_one_that_the_steps_and_the_definition_lead_to(words: str) -> None:
    for tell in (cancelled_in_flight, timed_out_in_flight, cancelled_after_a_tolerated_failure):
        true = log_in(words, tell())
        for place, line in enumerate(true):
            if "because" not in line["metadata"]:
                continue
            for other in {None, "made_up", "run_failed", "timed_out"} - {line["metadata"].get("ground")}:
                forged = log_in(words, tell())
                forged[place]["metadata"].pop("ground", None)
                forged[place]["metadata"] |= {} if other is None else {"ground": other}
                assert found_in(words, forged), (line, other)


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
    lines = log_in(words, tell())
    assert found_in(words, lines) == ()
    passed = next(line for line in lines if line["metadata"].get("because", line["trigger"]) == "deadline_passed")
    seq = passed["metadata"]["seq"]
    for line in lines:
        if line["metadata"].get("seq") == seq:
            line["metadata"]["at"] -= 3 * SECOND // 2
            line["timestamp"] = timestamp_of(line["metadata"]["at"])
    assert any("due" in found for found in found_in(words, lines))


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
