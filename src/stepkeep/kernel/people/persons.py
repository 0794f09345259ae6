"""Which persons did what on a step and everything below it: the one answer that gates, duties and adoption share.

Below a step are its elements, the calls of a flow, steps that a handler added, and child runs at any depth. Rows of
this run are read; what another run did is on a row already, carried by the end of a child or by adoption. Pure: it
reads no store. `eligibility.py`, `adoption.py` and `operations/children/children.py` call it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal, NotRequired, TypedDict

import msgspec
from msgspec.structs import replace

from stepkeep.kernel.machine.rows import Note, Persons, Step
from stepkeep.kernel.plan import Plan

MOST_NAMES = 100
"""How many names of a kind are carried to another run. Of a record with more, any person may be a part."""

UNKNOWN = Persons(many=True)
"""The persons of a step about which nothing is on record."""

COMPLETED_BY_PEOPLE = frozenset({"Succeeded", "Failed", "Cancelled"})
DECIDED_BY_PEOPLE = frozenset({"approved", "rejected", "retried", "skipped", "failed"})

Executors = Mapping[int, Collection[str]]
"""The owners of the workers that executed a step of the run, by its number."""

_decode = msgspec.json.decode


def numbers_below(plan: Plan, no: int) -> range:
    """The numbers that the elements of a main step may have; none for a step that owns none."""
    segment = plan.steps[no].segment if no < plan.size else None
    return range(0) if segment is None else range(segment.first, segment.first + segment.width)


def persons_of(plan: Plan, rows: Mapping[int, Step], no: int, executors: Executors) -> Persons:
    """The persons of a step and of everything below it. `rows` must have every element of the step."""
    return joined(_own(row, executors.get(row.no, ())) for row in (rows[no], *rows_below(plan, rows, no)))


def rows_below(plan: Plan, rows: Mapping[int, Step], no: int) -> list[Step]:
    """The elements, calls and added steps of a step."""
    below = numbers_below(plan, no)
    return [row for row in rows.values() if row.no in below] if below else []


def persons_in(rows: Iterable[Step], executors: Executors) -> Persons:
    """The persons of a whole run, as the run above it is told."""
    return carried(joined(_own(row, executors.get(row.no, ())) for row in rows))


def joined(parts: Iterable[Persons]) -> Persons:
    """The persons of several steps together."""
    known = list(parts)
    return Persons(
        executed=_union(one.executed for one in known),
        completed=_union(one.completed for one in known),
        decided=_union(one.decided for one in known),
        lent=tuple(sorted({pair for one in known for pair in one.lent})),
        shown=_union(one.shown for one in known),
        many=any(one.many for one in known),
    )


def carried(persons: Persons) -> Persons:
    """These persons as another run keeps them: at most so many of each kind, and on record that there are more."""
    cut = {name: getattr(persons, name)[:MOST_NAMES] for name in KINDS}
    return replace(persons, **cut, many=persons.many or any(len(getattr(persons, n)) > MOST_NAMES for n in KINDS))


def persons_detail(persons: Persons | None) -> Mapping[str, object]:
    """These persons by kind, for the detail of a cause; empty if there are none."""
    return msgspec.to_builtins(persons) or {}


KINDS = ("executed", "completed", "decided", "lent", "shown")


BallotRecord = TypedDict(
    "BallotRecord", {"by": str, "decision": Literal["approved", "rejected"], "at": int, "for": NotRequired[str]}
)
"""One decision of several about a gate."""

StepRecord = TypedDict(
    "StepRecord",
    {
        "decision": str,
        "outcome": str,
        "by": str,
        "at": int,
        "for": str,
        "comment": str,
        "reason": str,
        "by_right_of": Sequence[str],
        "delegation": str,
        "key": str,
        "service": bool,
        "level": int,
        "evidence": str | Sequence[str],
        "votes": list[BallotRecord],
        "notes": str,
        "claim": object,
    },
    total=False,
)
"""How a step was settled: `decision` of a gate or a stuck step, `outcome` of a manual one."""


def record_of(step: Step) -> StepRecord:
    """How a step was settled, and by whom."""
    if step.note is None or step.note.record is None:
        return {}
    record: StepRecord = _decode(step.note.record)
    return record


def _own(row: Step, executors: Collection[str]) -> Persons:
    """The persons of one row, and those that it carries."""
    note, record = row.note or Note(), record_of(row)
    names = {name for name in (record.get("by"), record.get("for")) if isinstance(name, str)}
    is_decided = record.get("decision") in DECIDED_BY_PEOPLE
    earlier = () if note.adopted is None else note.adopted.executors
    own = Persons(
        executed=tuple(sorted({*executors, *earlier})),
        completed=tuple(sorted(names)) if record.get("outcome") in COMPLETED_BY_PEOPLE else (),
        decided=tuple(sorted({*note.deciders, *(names if is_decided else ())})),
        lent=note.lent,
        shown=() if note.shown is None else (note.shown,),
    )
    return own if note.persons is None else joined((own, note.persons))


def _union(names: Iterable[Iterable[str]]) -> tuple[str, ...]:
    return tuple(sorted({name for some in names for name in some}))
