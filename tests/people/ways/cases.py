"""The cases: values of the tables that fit together, drawn so that each pair of values of two tables occurs."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

from tests.people.ways.courses import COURSES
from tests.people.ways.places import DEEDS, DUTIES, KINDS, ONLY_LARGE, WITHOUT_TERMS, WRAPPERS
from tests.people.ways.play import OTHER, Case, Play
from tests.people.ways.starts import OWN_DEFINITION, STARTS
from tests.people.ways.tricks import NEEDS_TERMS, TRICKS
from tests.people.world import World

DIMENSIONS: tuple[tuple[str, ...], ...] = (
    tuple(DUTIES),
    tuple(dict.fromkeys(itertools.chain(*DEEDS.values()))),
    tuple(KINDS),
    tuple(WRAPPERS),
    tuple(STARTS),
    tuple(name for name, course in COURSES.items() if not course.innocent),
    tuple(TRICKS),
)


def is_meaningful(case: Case, face: str) -> bool:
    """Whether the parts of a case fit together."""
    duty, course = DUTIES[case.duty], COURSES[case.course]
    return all(
        (
            case.deed in DEEDS[duty.deed],
            case.trick != "session" or face == "http",
            # Terms that flows and handlers give know no steps; their own steps are no part of the definition.
            case.kind not in ("flow", "then") or case.duty in ("requester", "quorum"),
            case.kind not in ("policy", "switch") or case.duty in ("requester", "quorum", "executes", "completes"),
            case.kind not in WITHOUT_TERMS or duty.constraint or (case.duty == "requester" and course.adopts),
            case.kind != "manual" or case.duty in ("executes", "decides", "requester"),
            case.kind not in WITHOUT_TERMS or case.trick not in NEEDS_TERMS,
            case.kind not in WITHOUT_TERMS or case.course not in ("escalated", "changed", "operated"),
            # Pal gets a small amount without a question, and asks for a large one then.
            case.kind not in ONLY_LARGE or (case.course.startswith("other_") and case.duty == "requester"),
            # What an approval covers is said by the terms of a gate.
            case.kind not in WITHOUT_TERMS or not case.course.startswith("plan_"),
            # A token is that of one run.
            case.kind != "manual" or case.wrapper in ("top", "child", "grandchild", "chosen", "called"),
            duty.deed != "hand" or case.wrapper in ("top", "child", "grandchild", "chosen", "called"),
            # Earlier decisions of pal are the duty itself.
            not course.adopts or case.duty == "requester",
            # A run that is responsible for the undo of elements runs them again.
            case.course not in ("kept_retry", "kept_migrate") or case.wrapper in ("top", "child", "grandchild"),
            case.course not in ("kept_retry", "kept_migrate") or case.kind in ("gate", "hold", "policy"),
            not course.adopts or course.innocent or course.pays == OTHER or TRICKS[case.trick].goes_on,
            # A request for changes, and a new run of the gate, void the first vote.
            case.duty != "quorum" or case.course in ("direct", "blind", "escalated", "operated"),
            # A new child does its work anew, by other hands.
            case.wrapper == "top"
            or duty.deed in ("", "vote")
            or not case.course.startswith(("retr", "rer", "fork", "canc")),
            # A retry is responsible for the undo of elements, and runs them again, by other hands.
            case.course not in ("retried", "cancelled") or case.deed in ("none", "plain", "hold"),
            case.trick not in ("dan_first", "dan_then_deb") or duty.deed in ("first", "vote"),
            case.start != "detached" or not course.versions,
            case.start not in ("every", "declared", "backfill", "message", "ended") or not course.versions,
            case.start != "migrated_by" or not course.versions,
            case.start != "migrated_by" or case.wrapper == "top",
        )
    )


def cases(face: str = "engine") -> list[Case]:
    """Cases in which each pair of values of two tables that fit together occurs, and innocent ones; always the same."""
    draw = random.Random(30)
    covered: set[tuple[int, str, int, str]] = set()
    found: list[Case] = []
    for one, other in itertools.combinations(range(len(DIMENSIONS)), 2):
        for first, second in itertools.product(DIMENSIONS[one], DIMENSIONS[other]):
            if (one, first, other, second) in covered:
                continue
            for _ in range(200):
                values = [draw.choice(values) for values in DIMENSIONS]
                values[one], values[other] = first, second
                deed = DEEDS[DUTIES[values[0]].deed]
                values[1] = values[1] if values[1] in deed or 1 in (one, other) else draw.choice(deed)
                case = Case(*values)
                if is_meaningful(case, face):
                    found.append(case)
                    covered |= set(_pairs(case))
                    break
    return [*found, *(case for case in _innocent() if is_meaningful(case, face))]


def few(face: str, part: int, parts: int) -> list[Case]:
    """A part of a few of these cases; in all parts together, each value of each table occurs."""
    made, found = cases(face), list[Case]()
    left = {value for case in made for value in enumerate(case)}
    while left:
        found.append(max(made, key=lambda case: len(left.intersection(enumerate(case)))))
        left -= set(enumerate(found[-1]))
    return found[part::parts]


def _innocent() -> Iterator[Case]:
    """Decisions that count in the run that goes on, for each place of a gate, with the ways to start in turn."""
    starts = itertools.cycle(STARTS)
    for kind, wrapper in itertools.product(KINDS, WRAPPERS):
        yield from (
            Case("requester", "none", kind, wrapper, next(starts), course, "self")
            for course, value in COURSES.items()
            if value.innocent
        )


def _pairs(case: Case) -> Iterator[tuple[int, str, int, str]]:
    for one, other in itertools.combinations(range(len(case)), 2):
        yield one, case[one], other, case[other]


def play_of(world: World, case: Case, number: int) -> Play:
    """A case, ready to be played under this number."""
    own = case.start in OWN_DEFINITION
    return Play(world, case, number, STARTS[case.start], COURSES[case.course], TRICKS[case.trick], own=own)
