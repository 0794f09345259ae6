"""Steps that wait for elements or a child run, where a dialect hides that: true logs pass, and forged ones do not."""

from __future__ import annotations

from typing import Any

import pytest
from tests.conformance.test_texts import found_in, log_in
from tests.kernel.driver import World, work
from tests.kernel.test_elements import mapped

from stepkeep.dialects import registry
from stepkeep.kernel.definition import SECOND, Approval, Map
from stepkeep.kernel.states import OnFailure
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
