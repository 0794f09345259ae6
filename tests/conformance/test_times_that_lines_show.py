"""What each specification says of the times and limits on its lines: a log that breaks it alone is found by name."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

import pytest
from tests.conformance.tellings import Line, encoded, resealed, told
from tests.kernel.driver import LEASE, TOKEN, World, gate, sequence, work

from stepkeep.conformance.schema import timestamp_of
from stepkeep.conformance.words.replay import replay_lines
from stepkeep.dialects import registry
from stepkeep.kernel.definition import SECOND, Completion, Retry
from stepkeep.kernel.machine.outcomes import Completed, Waiting
from stepkeep.kernel.machine.states import Category


def approved() -> World:
    world = World(*sequence(gate("g", deadline=9 * SECOND), work("b")))
    world.approve("g")
    world.finish("b")
    return world


def completed_by_hand() -> World:
    world = World(work("m", completion=Completion.MANUAL, completion_deadline=9 * SECOND))
    world.claim("m")
    world.report("m", Completed(token=TOKEN))
    world.complete("m")
    return world


def retried() -> World:
    world = World(work("a", retry=Retry(max_attempts=2)))
    world.fail("a", Category.TRANSIENT)
    world.later(60 * SECOND, "a")
    world.finish("a")
    return world


def lost() -> World:
    world = World(work("a"))
    world.lose("a")
    world.finish("a")
    return world


def out_of_time() -> World:
    world = World(work("a"))
    world.claim("a")
    world.report("a", Waiting(event="paid", timeout=9 * SECOND, takes_timeouts=True))
    world.later(10 * SECOND, "a")
    world.finish("a")
    return world


def beside_a_gate() -> World:
    world = World(gate("g"), work("b"))
    world.claim("b")
    world.approve("g")
    world.finish("b")
    return world


def two() -> World:
    world = World(*sequence(work("a"), work("b")))
    world.finish("a", "b")
    return world


# -- what a forger does ------------------------------------------------------------------------------------------------
def moved(by: int, *signs: str) -> Callable[[list[Line]], None]:
    """Everything from the first line that has one of these signs happens at another time."""

    def forge(lines: list[Line]) -> None:
        told = [(line["metadata"], line["trigger"]) for line in lines[:-1]]
        first = next(said["seq"] for said, word in told if {word, said["event"], said.get("ground")} & {*signs})
        for said in (line["metadata"] for line in lines if line["metadata"]["seq"] >= first):
            said["at"] += by
        for line in lines:
            line["timestamp"] = timestamp_of(line["metadata"]["at"])

    return forge


def counted(lines: list[Line]) -> None:
    last = max(line["metadata"].get("fence", 0) for line in lines)
    for said in (line["metadata"] for line in lines if line["metadata"].get("fence") == last):
        said |= {"attempt": 99, "retry_count": 98}


def unblocked(lines: list[Line]) -> None:
    """The pair of lines around an open gate is cut out."""
    lines[:] = [line for line in lines if "blocked" not in (line["from_state"], line["to_state"])]


def exchanged(lines: list[Line]) -> None:
    """The first action starts in the line before that of its run."""
    at = next(at for at, line in enumerate(lines) if line["metadata"].get("because") == "claimed")
    began = next(at for at, line in enumerate(lines) if line["metadata"].get("because") == "progressed")
    lines[at], lines[began] = lines[began], lines[at]


LATE, EARLY = 20 * SECOND, -8 * SECOND
LIES: dict[str, tuple[Callable[[], World], Callable[[list[Line]], None], dict[str, str]]] = {
    "an approval after its deadline": (
        approved,
        moved(LATE, "gate_decided"),
        {
            "ioa": "decided-in-time",
            "run": "an approval is in time",
            "linear": "what comes after the deadline does not count",
            "action": "signals in time",
        },
    ),
    "a manual completion after its deadline": (
        completed_by_hand,
        moved(LATE, "completion_signalled"),
        {"linear": "what comes after the deadline does not count", "action": "signals in time"},
    ),
    "an attempt beyond the limit": (
        retried,
        counted,
        {
            "ioa": "attempts-are-bounded",
            "run": "attempts stay within max_attempts",
            "action": "bounded attempts",
            "workstream": "retry-limit",
        },
    ),
    "a lease that is lost while it holds": (
        lost,
        moved(5 * SECOND - LEASE, "time_came", "reclaimed"),
        {
            "run": "a step is reclaimed when it is stale",
            "linear": "a lease is recovered when it has expired",
        },
    ),
    "a timeout before the deadline": (out_of_time, moved(EARLY, "WAITING_TIMEOUT"), {"linear": "a wait times out"}),
    "a gate that blocks nothing": (beside_a_gate, unblocked, {"ioa": "blocked-by-an-open-gate"}),
    "an action before its run": (two, exchanged, {"action": "a run starts first"}),
}


def found(lines: list[Line], words: str) -> tuple[str, ...]:
    """What the invariants alone find: no definition is at hand."""
    findings = replay_lines(encoded(resealed(lines)), registry.judged(words)).findings
    return tuple(finding.message for finding in findings if finding.code == "invariant")


@pytest.mark.parametrize(("lie", "words"), [(lie, words) for lie, (_, _, named) in LIES.items() for words in named])
def test_a_line_that_breaks_the_specification_is_found_by_name(lie: str, words: str) -> None:
    tell, forge, named = LIES[lie]
    lines = told(tell(), registry.judged(words), written_in=words)
    assert found(deepcopy(lines), words) == ()
    forge(lines)
    assert any(said.startswith(named[words]) for said in found(lines, words)), (found(lines, words), lines)
