"""Which run a run repeats or continues, how, and which runs continue it, as `show` and `explain` tell it. Reads only.

Nothing more is read for a run that repeats none and has not ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import msgspec

from stepkeep.kernel.composition.continuation import ContinuationKind
from stepkeep.kernel.machine.journal import SealedEntry, open_entry
from stepkeep.kernel.machine.rows import Note, Run
from stepkeep.kernel.machine.states import RUN_TERMINAL
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.operations.runs.causes import listed
from stepkeep.operations.runs.run_answers import Adopted, Continues
from stepkeep.store.records import RunRecord

PLACE = {"rerun": "from", "fork": "at"}
"""How the step is introduced from which a run goes on."""


class Course(TypedDict):
    """The run that a run repeats or continues, and the runs that do so with this one."""

    continues: Continues | None
    continued_by: list[str]


async def course(transactor: Transactor, record: RunRecord, entries: Sequence[SealedEntry] | None = None) -> Course:
    """What this run continues, and what continues it.

    `entries` is the journal of the run, if it was read already.
    """
    run, earlier = record.run, record.details.rerun_of
    if earlier is not None and entries is None:
        entries = await transactor.store.read_journal(run.tenant, run.id, limit=1)
    return {
        "continues": None if earlier is None else continues_of(earlier, entries or ()),
        "continued_by": await _continued_by(transactor, run),
    }


async def _continued_by(transactor: Transactor, run: Run) -> list[str]:
    if run.state not in RUN_TERMINAL:
        return []
    return await transactor.store.find_reruns(run.tenant, run.id)


def continues_of(earlier: str, entries: Sequence[SealedEntry]) -> Continues:
    """As the first entry of the journal says it; one that says nothing is of a run that repeats everything."""
    said = _continuation_of(entries[0].body) if entries else _Continuation()
    return Continues(run=earlier, as_=said.how, from_=said.start, adopted=[one.step for one in said.adopted])


class _Taken(msgspec.Struct):
    step: str


class _Continuation(msgspec.Struct, rename={"how": "as", "start": "from"}):
    """What the journal says about a run that another one continues, as far as it is shown."""

    how: ContinuationKind = ContinuationKind.RERUN
    start: str | None = None
    adopted: list[_Taken] = []


def _continuation_of(body: bytes) -> _Continuation:
    try:
        details = (cause.detail or {} for cause in open_entry(body).causes)
        return next(
            (msgspec.convert(one["continues"], _Continuation) for one in details if "continues" in one), _Continuation()
        )
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return _Continuation()  # a damaged or altered journal, which is for `certify` to tell


def adopted_view(note: Note | None, *, has_undo: bool) -> Adopted | None:
    """Where the result of an adopted step comes from; `undo`: a rollback of this run undoes it."""
    if note is None or (adopted := note.adopted) is None:
        return None
    return Adopted(run=adopted.run, step=adopted.step, undo=adopted.owned and has_undo)


def course_lines(told: Mapping[str, Any]) -> list[str]:
    """The same in words, one line for each.

    >>> course_lines({"continues": {"run": "R", "as": "fork", "from": "pay", "adopted": ["book"]}, "continued_by": []})
    ['fork of run R at pay; adopted: book']
    >>> course_lines({"continues": None, "continued_by": ["S", "T"]})
    ['repeated or continued by run S, T']
    """
    lines = []
    if (one := told.get("continues")) is not None:
        place = f" {PLACE.get(one['as'], 'from')} {one['from']}" if one["from"] else ""
        adopted = f"; adopted: {listed(one['adopted'])}" if one["adopted"] else ""
        lines.append(f"{one['as']} of run {one['run']}{place}{adopted}")
    if told.get("continued_by"):
        lines.append(f"repeated or continued by run {listed(told['continued_by'])}")
    return lines
