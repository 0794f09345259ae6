"""Plain decisions are made without a draft, and are what `decide` decides; what is not plain is left to it.

That both say the same, to the byte, is asserted for every event of every kernel test (`driver.World.send`).
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace
from tests.kernel.driver import World, claimer, gate, work

from stepkeep.kernel import plain
from stepkeep.kernel.decide import decide
from stepkeep.kernel.decision import Claimer
from stepkeep.kernel.definition import Rule
from stepkeep.kernel.events import Event
from stepkeep.kernel.forms import CLAIMS, ENDS, HANDS_OVER, LEAVES, OPENS, Form
from stepkeep.kernel.outcomes import Completed, Emitted, Failed
from stepkeep.kernel.states import Category, RunState

DONE = Completed(output=b'{"n":1}', cost=b'{"eur":2}')


def two() -> World:
    return World(work("a"), work("b", "a"))


def side_by_side(*held: str, join: bool = False) -> World:
    """Two that may run at the same time, these of them held; perhaps one that follows both."""
    world = World(work("a"), work("b"), *((work("c", "a", "b"),) if join else ()))
    world.claim(*held)
    return world


def at(world: World, *names: str) -> World:
    """The world once these are done and the last of them is held."""
    *done, held = names
    world.finish(*done)
    world.claim(held)
    return world


PLAIN: dict[str, tuple[Form, Callable[[], tuple[World, Event, Claimer | None]]]] = {
    "the first claim": (CLAIMS[RunState.QUEUED], lambda: (world := two(), world.claiming("a"), None)),
    "a later claim": (
        CLAIMS[RunState.RUNNING],
        lambda: (world := side_by_side("a"), world.claiming("b"), None),
    ),
    "the next is claimed": (
        HANDS_OVER,
        lambda: (world := at(two(), "a"), world.reporting("a", DONE), claimer(3)),
    ),
    "the next is ready": (OPENS, lambda: (world := at(two(), "a"), world.reporting("a", DONE), None)),
    "the next is for others": (
        OPENS,
        lambda: (world := at(two(), "a"), world.reporting("a", DONE), claimer(3, queues=())),
    ),
    "a join waits on": (
        LEAVES,
        lambda: (world := side_by_side("a", "b", join=True), world.reporting("a", DONE), claimer(3)),
    ),
    "one of two leaves": (
        LEAVES,
        lambda: (world := side_by_side("a", "b"), world.reporting("b", DONE), None),
    ),
    "the last one": (ENDS, lambda: (world := at(two(), "a", "b"), world.reporting("b", DONE), claimer(3))),
}


@pytest.mark.parametrize("name", PLAIN)
def test_a_plain_decision_is_what_decide_decides_though_decide_is_not_asked(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    form, scene = PLAIN[name]
    world, event, worker = scene()
    snapshot = world.snapshot((event,))
    expected = decide(snapshot, (event,), world.now + 7, worker)
    filled: list[Form] = []
    fill = plain._fill
    monkeypatch.setattr(plain, "_fill", lambda form, *about: (filled.append(form), fill(form, *about))[1])
    monkeypatch.setattr(plain, "decide", None)
    made = plain.decide_quickly(snapshot, (event,), world.now + 7, worker)
    assert filled == [form]
    assert made == expected


def test_a_clock_that_was_set_back_stands_still_for_the_run() -> None:
    world = at(two(), "a")
    event = world.reporting("a", DONE)
    for worker in (claimer(1), None):
        snapshot, earlier = world.snapshot((event,)), world.run.moved_at - 5_000_000
        quick = plain.decide_quickly(snapshot, (event,), earlier, worker)
        assert quick == decide(snapshot, (event,), earlier, worker)


def test_names_that_json_has_to_escape_are_escaped() -> None:
    world = at(two(), "a")
    event = world.reporting("a", DONE)
    worker = claimer(1)
    awkward = type(worker)(actor='w"%d"\n%', worker=1, lease=None, room=1, queues=worker.queues)
    snapshot = world.snapshot((event,))
    quick = plain.decide_quickly(snapshot, (event,), world.now, awkward)
    assert quick == decide(snapshot, (event,), world.now, awkward)


NOT_PLAIN: dict[str, Callable[[], tuple[World, Event]]] = {
    "a failure": lambda: (
        world := at(two(), "a"),
        world.reporting("a", Failed(category=Category.VALIDATION, error="no")),
    ),
    "something to tell": lambda: (
        world := at(two(), "a"),
        world.reporting("a", Completed(emit=(Emitted("paid", b"{}"),))),
    ),
    "a gate follows": lambda: (world := at(World(work("a"), gate("b", "a")), "a"), world.reporting("a", DONE)),
    "two follow": lambda: (
        world := at(World(work("a"), work("b", "a"), work("c", "a")), "a"),
        world.reporting("a", DONE),
    ),
    "the run has rules": lambda: (
        world := at(World(work("a"), rules=(Rule(expression="true"),)), "a"),
        world.reporting("a", DONE),
    ),
}


@pytest.mark.parametrize("name", NOT_PLAIN)
def test_what_is_not_plain_is_left_to_decide(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world, event = NOT_PLAIN[name]()
    snapshot = world.snapshot((event,))
    asked: list[tuple[object, ...]] = []
    monkeypatch.setattr(plain, "decide", lambda *question: asked.append(question))
    plain.decide_quickly(snapshot, (event,), world.now, claimer(3))
    assert asked == [(snapshot, (event,), world.now, claimer(3))]


DAMAGED: dict[str, tuple[int, dict[str, int], dict[str, int]]] = {
    "a follower that waits for nothing": (1, {"unmet": 0}, {}),
    "a follower that was claimed before it began": (1, {"fence": 2}, {}),
    "a follower that was tried before it began": (1, {"attempts": 1}, {}),
    "a run that counts too few open steps": (0, {}, {"open": 1}),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_rows_that_cannot_be_are_left_to_decide(name: str) -> None:
    no, of_step, of_run = DAMAGED[name]
    world = at(two(), "a")
    event = world.reporting("a", DONE)
    whole = world.snapshot((event,))
    steps = {**whole.steps, no: replace(whole.steps[no], **of_step)}
    damaged = replace(whole, steps=steps, run=replace(whole.run, **of_run))
    assert plain.decide_plainly(whole, event, world.now, claimer(3)) is not None
    assert plain.decide_plainly(damaged, event, world.now, claimer(3)) is None
