"""Why a live run cannot go on under another version of its workflow, from its rows and the two plans.

A migration ends the run and continues it as a new one, in one transaction. Every step that has settled must be adopted
by the new run with the same meaning, and nothing that has begun may be lost or done twice. Pure: it reads no store and
decides about no row. `operations/continuation/migrating.py` calls it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from stepkeep.kernel.composition.adoption import Choice, Why
from stepkeep.kernel.composition.versions import obstacles
from stepkeep.kernel.machine.rows import Run, Step, is_exhausted
from stepkeep.kernel.machine.states import STEP_TERMINAL, RunState, StepState
from stepkeep.kernel.plan import Plan

MIGRATABLE = (RunState.QUEUED, RunState.RUNNING, RunState.BLOCKED, RunState.PAUSED)

WHY_NOT = {
    RunState.IDLE: "it has not been started: start it first, or cancel it and start a run of the other version",
    RunState.VALIDATING: "all its steps have settled, and only its rules are left",
    RunState.STOPPING: "it is about to end",
    RunState.COMPENSATING: "a rollback is not interrupted",
}
"""Why a run in this state is not migrated; one that has ended is retried or rerun."""


def refusals(run: Run, old: Plan, rows: Mapping[int, Step], new: Plan, choices: Sequence[Choice]) -> Iterator[str]:
    """Every reason why this run stays with its version; nothing if it can be migrated.

    `choices` say what becomes of each step of the new plan.
    """
    if run.state not in MIGRATABLE:
        why = WHY_NOT.get(run.state, "it has ended: retry or rerun it under the other version")
        yield f"the run is {run.state}: {why}"
        return
    if run.inbox:
        yield f"{run.inbox} of its messages have not been taken by a step, and would be lost"
    for row in rows.values():
        if (said := _in_flight(old.at(row.no).name, row)) is not None:
            yield said
    settled = [planned.name for planned in old.steps if rows[planned.no].state in STEP_TERMINAL]
    yield from obstacles(old.definition, new.definition, settled)
    becomes = {choice.name: choice for choice in choices}
    for name in settled:
        choice = becomes.get(name)
        if choice is not None and not choice.adopted and not reopens(choice, new):
            yield f"step {name} has {rows[old.numbers[name]].state}, and would not be taken over: {_says(choice)}"
    yield from _repeated(old, rows, becomes)


def reopens(choice: Choice, new: Plan) -> bool:
    """Whether a gate that was decided asks people anew, and nothing else is done twice."""
    return choice.why is Why.PLAN_DIFFERS and new.steps[new.numbers[choice.name]].definition.approval is not None


def _in_flight(name: str, row: Step) -> str | None:
    """What would be lost of an open step, if anything."""
    note = row.note
    if row.worker is not None:
        return f"a worker holds step {name}: pause the run, and migrate it when the step has settled"
    if row.state is StepState.AWAITING_CHILDREN:
        return f"step {name} waits for what it has started"
    if row.state is StepState.AWAITING_COMPLETION:
        return f"step {name} waits to be completed by a token that people hold"
    if is_exhausted(row):
        return f"step {name} holds without an attempt left: decide about it first"
    if row.state is StepState.AWAITING_APPROVAL and note is not None and note.opening and note.opening.ballots:
        return f"people have decided about step {name}, and its gate is still open"
    if row.state is StepState.AWAITING_APPROVAL and note is not None and note.opening:
        if note.opening.level:
            return f"the gate of step {name} has escalated, and would ask the first people again"
        if note.opening.named:
            return f"an operator named approvers for step {name}, and that would be forgotten"
        if note.opening.changes is not None:
            return f"people have asked for changes at step {name}, and that would be forgotten"
    if row.state is StepState.AWAITING_EVENT and note is not None and note.gathered:
        return f"step {name} has taken messages, and waits for more"
    return None


def deadlines(old: Plan, rows: Mapping[int, Step], new: Plan) -> dict[int, int]:
    """When the open waits and gates of a run end, by the numbers of the new plan: those whose terms are the same."""
    found = {}
    for planned in new.steps:
        no = old.numbers.get(planned.name)
        row = None if no is None else rows[no]
        if row is None or no is None or row.fence:
            continue
        was, now = old.steps[no].definition, planned.definition
        moment = row.due_at if row.state is StepState.AWAITING_EVENT and was.wait == now.wait else None
        same = (was.approval, was.hold) == (now.approval, now.hold)
        if row.state is StepState.AWAITING_APPROVAL and same and row.note is not None and row.note.terms is None:
            moment = None if row.note.opening is None else row.note.opening.deadline
        if moment is not None:
            found[planned.no] = moment
    return found


def late(began_at: int | None, new: Plan, now: int) -> str | None:
    """Why a run would time out at once under the new version, if it would."""
    timeout = new.definition.timeout
    if timeout is None or began_at is None or began_at + timeout > now:
        return None
    return "its timeout under the new version has passed: it counts from the start of the run"


def _repeated(old: Plan, rows: Mapping[int, Step], becomes: Mapping[str, Choice]) -> Iterator[str]:
    """Steps that began without an end, and would be forgotten or begin again."""
    for planned in old.steps:
        row, choice = rows[planned.no], becomes.get(planned.name)
        if row.state in STEP_TERMINAL or not row.fence or row.worker is not None:
            continue
        if choice is None:
            yield f"step {planned.name} began, and the new version does not have it"
        elif choice.may_repeat:
            yield f"step {planned.name} may have had its effect, and would run again"


def _says(choice: Choice) -> str:
    said = {
        Why.NOT_FINISHED: "only what succeeded or was skipped is",
        Why.FOLLOWS: "a step that it depends on runs again",
        Why.UNDONE: "it was undone, or its undo began",
        Why.OWN_DECISION: "you decided about it, and would now ask for the run",
        Why.PLAN_DIFFERS: "its approval covers the steps behind it, which differ",
        Why.ELEMENTS: "its elements had effects, which only their own run can undo",
        Why.IN_DOUBT: "it may have had its effect all the same",
    }
    return said.get(choice.why, str(choice.why)) + (f" ({choice.of})" if choice.of else "")
