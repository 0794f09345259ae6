"""The oracle of the seeds' tables agrees, in every dialect, on every ending that people, policies and rules bring.

It can fail: wrong projections are planted, and each is found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import pytest
from msgspec.structs import replace
from tests.conformance.logs import entries_of
from tests.kernel.driver import World
from tests.seeds.endings import ENDINGS
from tests.seeds.oracle import EDGES, Told, wrong

from stepkeep.dialects import registry
from stepkeep.dialects.dialect import JudgedDialect
from stepkeep.dialects.machine import Extension
from stepkeep.dialects.projection import Seen, ShownRunView
from stepkeep.kernel.machine.journal import RUN_ENTITY


@cache
def played(ending: str) -> World:
    return ENDINGS[ending].play()


def told_in(judged: JudgedDialect, world: World) -> Iterator[Told]:
    """A story in the words of a dialect. Internal checks and undo steps are no steps of a seed."""
    projection = judged.projection()
    for entry in entries_of(world):
        for hop in entry.hops:
            planned = None if hop.no == RUN_ENTITY else world.plan.at(hop.no)
            kind, name, phase = ("run", "", "main") if planned is None else ("step", planned.name, str(planned.phase))
            for shown in projection.feed(Seen(kind, name, hop.source, hop.trigger, hop.target, phase)):
                if shown.kind in EDGES[judged.name]:
                    name = "" if shown.kind == "run" else shown.name
                    source, target = shown.source, shown.target
                    yield Told(shown.kind, shown.noun, name, source, target, shown.word, not shown.extension)


@pytest.mark.parametrize("dialect", EDGES)
@pytest.mark.parametrize("ending", ENDINGS)
def test_the_oracle_agrees_on_every_ending_in_every_dialect(ending: str, dialect: str) -> None:
    told = list(told_in(registry.dialect(dialect).judged, played(ending)))
    assert list(wrong(dialect, ENDINGS[ending], told)) == []


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_story_ends_as_it_says(ending: str) -> None:
    world = played(ending)
    assert (world.states()["x"], str(world.run.state)) == (ENDINGS[ending].step, ENDINGS[ending].run)


# -- it can fail -----------------------------------------------------------------------------------------------------
def showing(machine: str, state: str, shown: str) -> Callable[[JudgedDialect], JudgedDialect]:
    """A dialect that shows a canonical state as another one."""

    def plant(judged: JudgedDialect) -> JudgedDialect:
        view = judged.run if machine == "run" else judged.step
        planted = replace(view, shows={**view.shows, state: shown})
        return replace(judged, run=planted) if machine == "run" else replace(judged, step=planted)

    return plant


def wordy(source: str, target: str) -> Callable[[JudgedDialect], JudgedDialect]:
    """A dialect that gives a step's edge the word of its seed whatever the reason."""

    def plant(judged: JudgedDialect) -> JudgedDialect:
        step = judged.step
        arrows = tuple(
            one._replace(when=()) if (one.source, one.target) == (source, target) else one for one in step.arrows
        )
        rest = tuple(one for one in step.extensions if (one.source, one.target) != (source, target))
        return replace(judged, step=replace(step, arrows=arrows, extensions=rest))

    return plant


def unlisted(judged: JudgedDialect) -> JudgedDialect:
    """A dialect that goes where neither its seed nor its page goes."""
    step = judged.step
    more = Extension("pending", "retrying", "never")
    return replace(
        judged, step=replace(step, extensions=(*step.extensions, more), shows=step.shows | {"ready": "retrying"})
    )


def unblocked(judged: JudgedDialect) -> JudgedDialect:
    """A dialect that follows the state of the run alone, and shows a blocked one as executing."""
    return replace(showing("run", "blocked", "executing")(judged), run_view=ShownRunView)


PLANTS: dict[str, tuple[str, Callable[[JudgedDialect], JudgedDialect], str]] = {
    "a failed workflow shown as completed": ("ioa", showing("run", "failed", "completed"), "the run ends completed"),
    "a rejected gate shown as completed": ("ioa", showing("step", "failed", "completed"), "the step ends completed"),
    "a gate that blocks nobody": ("ioa", unblocked, "nothing shows that a person"),
    "a deadline told as an approval": ("run", wordy("WAITING_APPROVAL", "SUCCEEDED"), "that is not why it happened"),
    "a held step that is shown running": ("linear", showing("step", "awaiting_approval", "RUNNING"), "nothing shows"),
    "a dead step shown as done": ("linear", showing("step", "failed", "DONE"), "the step ends DONE"),
    "a signal that nobody waits for": ("action", showing("step", "awaiting_completion", "Running"), "nothing shows"),
    "a failed task shown as cancelled": ("workstream", showing("step", "failed", "cancelled"), "ends cancelled"),
    "an edge that nobody lists": ("workstream", unlisted, "neither the seed nor"),
}


@pytest.mark.parametrize("plant", PLANTS)
def test_a_wrong_projection_is_found(plant: str) -> None:
    dialect, change, said = PLANTS[plant]
    planted = change(registry.dialect(dialect).judged)
    found = [
        problem
        for name, ending in ENDINGS.items()
        for problem in wrong(dialect, ending, told_in(planted, played(name)))
    ]
    assert any(said in problem for problem in found), found
