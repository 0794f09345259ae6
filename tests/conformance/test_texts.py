"""The judge checks error texts that the engine words itself, whole, in canonical names and in every dialect."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import pytest
from tests.conformance.logs import CORRELATION, entries_of, log_of
from tests.conformance.tellings import told_entries
from tests.kernel.driver import LEASE, TOKEN, World, gate, wait, work

from stepkeep.conformance import texts
from stepkeep.conformance.encoding import compact
from stepkeep.dialects import registry
from stepkeep.kernel import stopping
from stepkeep.kernel.definition import SECOND, Completion, OnExhausted, Retry
from stepkeep.kernel.events import HoldChoice, ManualOutcome
from stepkeep.kernel.journal import Entry
from stepkeep.kernel.outcomes import Completed, Waiting
from stepkeep.kernel.states import Category
from stepkeep.operations.dialect_lines import DialectScribe, subject_of_run
from stepkeep_lab.forgeries.campaign import findings_in
from stepkeep_lab.forgeries.material import CANONICAL
from stepkeep_lab.forgeries.seals import resealed

Line = dict[str, Any]


def lost() -> World:
    world = World(work("a"))
    world.lose("a")
    return world


def lost_for_good() -> World:
    world = World(work("a", retry=Retry(max_attempts=1)))
    world.lose("a")
    return world


def lost_while_stopping() -> World:
    world = World(work("a"), work("b"), grace=10 * LEASE)
    world.claim("a", "b")
    world.fail("a")
    world.lose("b")
    return world


def fenced_off() -> World:
    world = World(work("a"), work("b"), grace=SECOND)
    world.claim("a", "b")
    world.fail("a")
    world.later(2 * SECOND)
    return world


def rejected() -> World:
    world = World(gate("g"))
    world.reject("g", comment="too dear")
    return world


def undecided() -> World:
    world = World(gate("g", deadline=SECOND))
    world.later(2 * SECOND, "g")
    return world


def unheard() -> World:
    world = World(wait("w", "paid", deadline=SECOND))
    world.later(2 * SECOND, "w")
    return world


def unheard_by_a_handler() -> World:
    world = World(work("a"))
    world.claim("a")
    world.report("a", Waiting(event="paid", timeout=SECOND, takes_timeouts=False))
    world.later(2 * SECOND, "a")
    return world


def uncompleted() -> World:
    world = World(work("m", completion=Completion.MANUAL, completion_deadline=SECOND))
    world.claim("m")
    world.report("m", Completed(token=TOKEN))
    world.later(2 * SECOND, "m")
    return world


def completed_as_failed() -> World:
    world = World(work("m", completion=Completion.MANUAL))
    world.claim("m")
    world.report("m", Completed(token=TOKEN))
    world.complete("m", ManualOutcome.FAILED)
    return world


def failed_by_an_operator() -> World:
    world = World(work("a", on_exhausted=OnExhausted.HOLD, retry=Retry(max_attempts=1)))
    world.fail("a", Category.TRANSIENT)
    world.decide_hold("a", HoldChoice.FAIL, reason="give up")
    return world


def timed_out() -> World:
    world = World(work("a"), timeout=SECOND)
    world.later(2 * SECOND)
    return world


def cancelled() -> World:
    world = World(work("a"))
    world.cancel(reason="not needed")
    return world


def cancelled_with_compensation() -> World:
    world = World(work("a"), work("b", "a"))
    world.finish("a")
    world.cancel(compensate=True, reason="not needed")
    return world


STORIES: dict[str, tuple[Callable[[], World], str]] = {
    "a lost lease": (lost, "lease_lost"),
    "the last lost lease": (lost_for_good, "failed"),
    "a lease lost while the run stops": (lost_while_stopping, "cancelled"),
    "an attempt in doubt": (fenced_off, "cancelled"),
    "a rejection": (rejected, "rejected"),
    "a gate without a decision": (undecided, "deadline_passed"),
    "a wait without a message": (unheard, "deadline_passed"),
    "a handler's wait without a message": (unheard_by_a_handler, "deadline_passed"),
    "a manual step that was not completed": (uncompleted, "deadline_passed"),
    "a manual step completed as failed": (completed_as_failed, "completion_failed"),
    "a held step failed by an operator": (failed_by_an_operator, "operator_failed"),
    "a run that timed out": (timed_out, "stopped_failed"),
    "a cancelled run": (cancelled, "cancelled"),
    "a run cancelled with compensation": (cancelled_with_compensation, "stopped_cancelled"),
}


def log_in(words: str, world: World, told: Sequence[Entry] = ()) -> list[Line]:
    """The log of a run with its definition, in canonical names or in a dialect's words; of other entries if given."""
    if words == CANONICAL:
        return [json.loads(line) for line in log_of(world)]
    entries, judged = told or entries_of(world), registry.judged(words)
    opening = DialectScribe(judged, subject_of_run("r", world.plan, CORRELATION)).opening(
        "t", world.plan, entries[0].at
    )
    return resealed(json.loads(compact([opening, *told_entries(entries, world, judged)])), canonical=False)


def found_in(words: str, lines: list[Line]) -> tuple[str, ...]:
    return findings_in(words, [compact(line) for line in resealed(lines, canonical=words == CANONICAL)])


@pytest.mark.parametrize("words", [CANONICAL, *registry.names()])
@pytest.mark.parametrize("story", STORIES)
def test_another_text_where_the_engine_words_it_is_found(story: str, words: str) -> None:
    tell, trigger = STORIES[story]
    lines = log_in(words, tell())
    assert found_in(words, lines) == ()
    said = next(
        (
            line["metadata"]["error"]
            for line in lines
            if line["metadata"].get("because", line["trigger"]) == trigger and "error" in line["metadata"]
        ),
        None,
    )
    assert said is not None or words != CANONICAL
    for other in () if said is None else (f"{said}x", said[:-1], "made up"):
        for line in (forged := deepcopy(lines)):
            if line["metadata"].get("error") == said:
                line["metadata"]["error"] = other
        assert found_in(words, forged), other


def test_the_texts_of_the_judge_are_those_of_the_kernel() -> None:
    ours = (stopping.LEASE_EXPIRED, stopping.IN_DOUBT, stopping.NOT_RUN)
    assert ours == (texts.LOST, texts.IN_DOUBT, texts.NOT_RUN)
