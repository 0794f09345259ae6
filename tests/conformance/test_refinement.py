"""Whatever the engine can do, every dialect shows as a legal arrow, a stutter or a listed extension; and the proof
can fail."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from msgspec.structs import replace
from tests.conformance.exploration import MACHINES, explored, refined
from tests.conformance.tellings import dialects, stories, told, walks
from tests.conformance.toy.machine import JUDGED as TOY
from tests.kernel.driver import World
from tests.suites import in_proof, some

from stepkeep.dialects.dialect import JudgedDialect
from stepkeep.dialects.machine import Extension, ForbiddenPair, MachineView
from stepkeep.dialects.projection import Seen, ShownRunView
from stepkeep_lab.modelcheck import refinement
from stepkeep_lab.modelcheck.refinement import Breach, refine

FIELDS = ("run", "step", "worker")


def breaches(judged: JudgedDialect, machines: Any = MACHINES) -> list[Breach]:
    return list(refine(judged, machines).breaches)


@functools.cache
def worlds(walked: int) -> list[World]:
    return [*stories(), *walks(walked, seed=7)]


def views(judged: JudgedDialect) -> dict[str, MachineView]:
    return {name: view for name in FIELDS if (view := getattr(judged, name)) is not None}


def with_arrow(machine: str, source: str, trigger: str, target: str) -> dict[str, Any]:
    """The canonical tables with one more row."""
    arrows, terminal = MACHINES[machine]
    return {**MACHINES, machine: (arrows | {(source, trigger, target)}, terminal)}


@pytest.mark.parametrize("judged", some(dialects(), 3, lambda judged: judged.name))
def test_the_engine_refines_every_dialect(judged: JudgedDialect) -> None:
    """The tests of the seeds refine each dialect of a seed with `make test`."""
    assert refined(judged).breaches == ()


@pytest.mark.parametrize("judged", some(dialects(), 3, lambda judged: judged.name))
def test_an_extension_that_is_taken_off_its_list_is_missed_by_name(judged: JudgedDialect) -> None:
    taken = 0
    for product in explored(judged).values():
        view = product.view
        for extension in view.extensions:
            product.view = replace(view, extensions=tuple(one for one in view.extensions if one != extension))
            found = list(product.breaches())
            assert [(one.kind, one.machine, one.source, one.target) for one in found if one.kind == "unlisted"] == [
                ("unlisted", view.noun, extension.source, extension.target)
            ]
            taken += 1
    assert taken


@pytest.mark.parametrize("judged", some(dialects(), 3, lambda judged: judged.name))
def test_an_extension_that_nothing_produces_is_refused_by_name(judged: JudgedDialect) -> None:
    for product in explored(judged).values():
        view = product.view
        idle = Extension(min(view.terminal), view.states[0], "it sounded useful")
        product.view = replace(view, extensions=(*view.extensions, idle))
        found = list(product.breaches())
        assert [(one.kind, one.source, one.target) for one in found] == [("unproduced", idle.source, idle.target)]


ARROWS = (
    ("step", "succeeded", "reopened", "running"),
    ("run", "failed", "revived", "running"),
    ("run", "idle", "rushed", "succeeded"),
)


def arrows_more() -> list[Any]:
    """Every arrow with every dialect; with `make test` one of each kind."""
    named = [(judged, *arrow) for judged in dialects() for arrow in ARROWS]
    return [
        pytest.param(*values, id=f"{values[0].name}-{values[3]}", marks=() if at % 14 == 0 else pytest.mark.proof)
        for at, values in enumerate(named)
    ]


@pytest.mark.parametrize(("judged", "machine", "source", "trigger", "target"), arrows_more())
def test_an_arrow_more_in_the_canonical_table_is_found(
    judged: JudgedDialect, machine: str, source: str, trigger: str, target: str
) -> None:
    tables = with_arrow(machine, source, trigger, target)
    if machine == "run":  # a state with ways on is not terminal for whoever wrote such a table
        tables[machine] = (tables[machine][0], tables[machine][1] - {source})
    found = breaches(judged, tables)
    view = getattr(judged, machine)
    before, after = view.shows.get(source), view.shows[target]  # an idle run may show nothing yet
    assert any((one.source, one.target) == (before, after) and one.machine == view.noun for one in found), found
    assert all(trigger in " ".join(one.witness) for one in found if one.kind == "unlisted")


def test_a_pair_that_the_specification_rules_out_is_a_breach_even_when_it_is_listed() -> None:
    ruled_out = ForbiddenPair("moving", "returned", "toy §9")
    found = refined(replace(TOY, run=replace(TOY.run, forbidden=(ruled_out,)))).breaches
    assert [(one.kind, one.source, one.target) for one in found] == [("forbidden", "moving", "returned")]
    assert "toy §9" in str(found[0])


def test_an_extension_for_an_arrow_that_the_specification_has_is_needless() -> None:
    needless = Extension("moving", "held", "just in case")
    found = refined(replace(TOY, run=replace(TOY.run, extensions=(*TOY.run.extensions, needless)))).breaches
    assert [one.kind for one in found] == ["needless"]


def test_a_dialect_that_never_shows_the_end_of_a_run_is_found() -> None:
    shows = {state: shown for state, shown in TOY.run.shows.items() if state != "succeeded"}
    found = breaches(replace(TOY, run=replace(TOY.run, shows=shows)))
    assert ("unended", "succeeded", "moving") in {(one.kind, one.source, one.target) for one in found}


@pytest.mark.proof
def test_an_extra_state_that_is_never_shown_and_an_unknown_canonical_one_are_found() -> None:
    step = replace(TOY.step, extra={**TOY.step.extra, "sunk": "why not"}, shows={**TOY.step.shows, "reddy": "planned"})
    found = breaches(replace(TOY, step=step))
    assert sorted((one.kind, one.target) for one in found) == [("unknown", "reddy"), ("unproduced", "sunk")]


class Forgetful(ShownRunView):
    """Counts forever."""

    def __init__(self, view: MachineView) -> None:
        super().__init__(view)
        self.heard = 0

    def feed(self, seen: Seen) -> str | None:
        self.heard += 1
        return super().feed(seen)


def test_a_view_whose_memory_grows_for_ever_does_not_keep_the_judge_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refinement, "MOST_SITUATIONS", 2_000)
    assert "endless" in {one.kind for one in breaches(replace(TOY, run_view=Forgetful))}


@pytest.mark.parametrize("walked", [25, in_proof(150)])
@pytest.mark.parametrize("judged", dialects(), ids=lambda judged: judged.name)
def test_what_real_runs_show_is_among_what_was_explored(judged: JudgedDialect, walked: int) -> None:
    """The model of a run's conduct must allow all that the engine does, or the proof proves nothing."""
    known = refined(judged).told
    nouns = {f"{view.noun}_state_transition": name for name, view in views(judged).items()}
    if judged.undo is not None:
        nouns[f"{judged.undo.noun}_state_transition"] = "undo"
    for world in worlds(walked):
        for line in told(world, judged)[:-1]:
            said = line["metadata"]
            told_so = line["from_state"], line["to_state"], said["because"], said.get("ground", said["because"])
            assert told_so in known[nouns[line["event_type"]]], told_so


@pytest.mark.proof
def test_more_steps_show_nothing_new() -> None:
    for judged in (TOY, *dialects()[:1]):
        assert refine(judged, MACHINES, size=3).shown == refined(judged).shown
