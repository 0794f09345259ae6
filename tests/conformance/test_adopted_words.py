"""What a run adopted, in the words of the dialect that it was written in: true logs pass, and forged ones do not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from tests.conformance.logs import CORRELATION, entries_of
from tests.conformance.tellings import found_in, told_entries
from tests.kernel.driver import World, gate, sequence, work

from stepkeep.conformance.encoding import compact
from stepkeep.dialects import registry
from stepkeep.kernel.composition.continuation import Continuation, ContinuationKind
from stepkeep.kernel.definition import StepDefinition
from stepkeep.kernel.machine.rows import Adopted, Note
from stepkeep.operations.logs.dialect_lines import DialectScribe, subject_of_run
from stepkeep_lab.forgeries.seals import resealed

Line = dict[str, Any]


def continued(words: str, *steps: StepDefinition, adopted: int) -> World:
    """A run in a dialect's format that takes its first steps from an earlier one."""
    taken = {no: Adopted(run="old", step=steps[no].name, place=no) for no in range(adopted)}
    notes: Mapping[int, Note] = {no: Note(output='"done"', adopted=one) for no, one in taken.items()}
    going = Continuation(how=ContinuationKind.RETRY, run_id="old", notes=notes)
    return World(*steps, continuation=going, dialect=words)


def log_of(words: str, world: World) -> list[Line]:
    """Its log in the words of the dialect, whose invariants it must keep."""
    entries, judged = entries_of(world), registry.judged(words)
    scribe = DialectScribe(judged, subject_of_run("r", world.plan, CORRELATION))
    opening = scribe.opening("t", world.plan, entries[0].at)
    return resealed(json.loads(compact([opening, *told_entries(entries, world, judged, words)])), canonical=False)


def line_of(lines: list[Line], step: str) -> Line:
    """The first line of a step."""
    return next(line for line in lines if line["metadata"].get("step") == step)


def gated() -> World:
    world = continued("run", *sequence(gate("ok"), work("a")), adopted=1)
    world.finish("a")
    return world


def test_an_adopted_gate_was_passed_in_the_run_that_it_comes_from() -> None:
    assert found_in("run", log_of("run", gated())) == ()


def test_a_gate_that_the_creation_does_not_name_needs_an_approval() -> None:
    lines = log_of("run", gated())
    created = next(line for line in lines if "detail" in line["metadata"])
    created["metadata"]["detail"]["continues"]["adopted"] = []
    found = found_in("run", lines)
    assert any("the creation of the run does not name it" in said for said in found)
    assert any("the gate ok passed by run_created, not by an approval" in said for said in found)


def test_a_gate_is_not_adopted_after_it_was_created() -> None:
    world = continued("run", *sequence(gate("ok"), work("a")), adopted=0)
    world.approve("ok")
    lines = log_of("run", world)
    assert found_in("run", lines) == ()
    passed = next(line for line in lines if line["metadata"].get("event") == "gate_decided")
    passed["metadata"] |= {"because": "adopted", "event": "run_created"}
    assert any("passed by run_created, not by an approval" in said for said in found_in("run", lines))


@pytest.mark.parametrize("adopted", [1, 2, 3])
@pytest.mark.parametrize("words", registry.names())
def test_what_a_run_adopted_is_no_progress_of_its_own(words: str, adopted: int) -> None:
    steps = sequence(work("a"), work("b"), work("c"))
    world = continued(words, *steps, adopted=adopted)
    assert found_in(words, log_of(words, world)) == ()
    world.finish(*("abc"[adopted:]))
    assert world.over
    assert found_in(words, log_of(words, world)) == ()


def test_a_workstream_with_a_task_of_its_own_is_not_ready() -> None:
    world = continued("workstream", work("a"), work("b"), work("c"), adopted=1)
    world.finish("b")
    lines = log_of("workstream", world)
    assert found_in("workstream", lines) == ()
    kept = [line for line in lines if line["to_state"] != "executing"]
    assert any(
        "the workstream is ready, but its tasks make it executing" in said for said in found_in("workstream", kept)
    )
