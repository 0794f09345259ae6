"""A run that waits for an execution slot, in every dialect: true logs pass, and forged ones do not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.conformance.tellings import CANONICAL, found_in, log_in
from tests.conformance.test_adopted_words import log_of as told
from tests.kernel.driver import World, gate, sequence, wait, work

from stepkeep.dialects.registry import names
from stepkeep.kernel.composition.continuation import Continuation, ContinuationKind
from stepkeep.kernel.definition import SECOND
from stepkeep.kernel.machine.rows import Adopted, Note

DONE = Note(output="1", adopted=Adopted(run="old", step="a", place=0))
GOING_ON = Continuation(how=ContinuationKind.RETRY, run_id="old", notes={0: DONE})

WORLDS: dict[str, Callable[..., World]] = {
    "two roots": lambda **given: World(work("a"), work("b"), work("c", "a", "b"), **given),
    "a gate": lambda **given: World(*sequence(gate("a"), work("b")), **given),
    "a wait": lambda **given: World(*sequence(wait("a", "paid"), work("b")), **given),
    "an adopted root": lambda **given: World(*sequence(work("a"), work("b")), continuation=GOING_ON, **given),
    "idle first": lambda **given: World(work("a"), start=False, **given),
}


def ready(kind: str) -> World:
    world = WORLDS[kind](awaits_slot=True, slots=3, timeout=100 * SECOND)
    if kind == "idle first":
        world.start()
    return world


def check(words: str, world: World) -> None:
    assert found_in(words, log_in(words, world)) == ()


@pytest.mark.parametrize("kind", WORLDS)
@pytest.mark.parametrize("words", [CANONICAL, *names()])
def test_a_run_waits_for_its_slot_and_goes_on(words: str, kind: str) -> None:
    world = ready(kind)
    check(words, world)
    world.pause()
    check(words, world)
    world.resume()
    world.grant(held=2)
    check(words, world)
    if kind == "a gate":
        world.approve("a")
    elif kind == "a wait":
        world.tell("paid")
    for name in world.plan.numbers:
        if world.state(name) != "succeeded":
            world.finish(name)
    assert world.over
    check(words, world)


@pytest.mark.parametrize("kind", WORLDS)
@pytest.mark.parametrize("words", [CANONICAL, *names()])
@pytest.mark.parametrize("end", ["cancelled", "undone", "timed out"])
def test_a_run_ends_while_it_waits_for_its_slot(words: str, kind: str, end: str) -> None:
    world = ready(kind)
    if end == "timed out":
        world.later(200 * SECOND)
    else:
        world.cancel(compensate=end == "undone")
    assert world.over
    check(words, world)


@pytest.mark.parametrize("words", [CANONICAL, *names()])
def test_a_full_limit_grants_no_slot(words: str) -> None:
    world = ready("two roots")
    world.grant(held=3, most=3)
    lines = log_in(words, world)
    shows = any("scopes" in (line["metadata"].get("detail") or {}) for line in lines)
    assert shows == bool(found_in(words, lines))


@pytest.mark.parametrize("words", [CANONICAL, *names()])
def test_a_run_of_a_limited_workflow_is_created_to_wait(words: str) -> None:
    world = World(work("a"), slots=3)
    world.finish("a")
    assert any("awaits_slot" in said for said in found_in(words, log_in(words, world)))


def test_the_first_step_of_a_linear_instance_waits_for_the_slot_that_its_creation_names() -> None:
    world = World(*sequence(work("a"), work("b")), dialect="linear", awaits_slot=True)
    lines = told("linear", world)
    assert found_in("linear", lines) == ()
    for line in lines:
        (line["metadata"].get("detail") or {}).pop("awaits_slot", None)
    assert any("is still PENDING" in said for said in found_in("linear", lines))
