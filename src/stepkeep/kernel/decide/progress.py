"""Progress of a run: a step settles, and its dependents open or are skipped.

It is iterative: steps that settle in turn are appended to a queue, so that a skip can cascade over ten thousand steps.
Every function that settles a step calls it; the state of the run is left to `rollup`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from stepkeep.kernel.composition.adoption import adopted_steps, is_adopted
from stepkeep.kernel.composition.child_runs import begin_hook, open_child
from stepkeep.kernel.composition.elements import element_settled, grow
from stepkeep.kernel.decide.draft import Draft
from stepkeep.kernel.decide.failure import CONDITION, Settled, fail_for_good
from stepkeep.kernel.decide.judging import Judged, judged, record_verdict
from stepkeep.kernel.decide.reading import require_read, view_of
from stepkeep.kernel.decide.stopping import stop
from stepkeep.kernel.decide.waits import accepts, take
from stepkeep.kernel.definition import Approval, PolicyEffect, shown_terms
from stepkeep.kernel.errors import ExpressionError
from stepkeep.kernel.kinds import (
    ChildStep,
    ChoiceStep,
    FlowStep,
    GateStep,
    LoopStep,
    MapStep,
    SleepStep,
    StepKind,
    UnreadStep,
    WaitStep,
    WorkStep,
)
from stepkeep.kernel.machine.rows import Message, Note, Step
from stepkeep.kernel.machine.states import Category, OnFailure, Phase, RunState, StepState, StopCause
from stepkeep.kernel.machine.tables import RunTrigger, StepTrigger
from stepkeep.kernel.people.gates import (
    BY_AGENT,
    ESCALATED,
    REPORTED,
    emit_gate_event,
    kept_deadline,
    open_gate,
    opening_of,
)
from stepkeep.kernel.plan import PlannedStep


def begin(draft: Draft, began_at: int | None = None) -> None:
    """Start the run: its timeout begins, and its roots open unless they wait for an execution slot.

    `began_at` is when the work of a migrated run began: its timeout counts from there.
    """
    timeout = draft.plan.definition.timeout
    draft.started_at = draft.now
    began = draft.now if began_at is None else min(began_at, draft.now)
    draft.due_at = None if timeout is None else began + timeout
    draft.move_run(RunTrigger.STARTED)
    if not slot_waiters(draft):
        open_first_steps(draft)


def slot_waiters(draft: Draft) -> list[Step]:
    """The steps that wait for the execution slot of their run: each counts it as one more unmet dependency."""
    first = [step for step in map(draft.step, draft.plan.roots) if step.state is StepState.PENDING]
    if not first:
        first = [step for step in draft.every_step() if step.state is StepState.PENDING][:1]
    return [step for step in first if step.unmet > draft.planned(step).unmet]


def open_first_steps(draft: Draft) -> None:
    """Open the roots, and what follows the steps that the run adopted."""
    for no in draft.plan.roots:
        step = draft.step(no)
        if step.state is StepState.PENDING:
            settle(draft, open_step(draft, step))
    if any(is_adopted(draft.step(no)) for no in draft.plan.roots):
        _begin_after(draft)


def _begin_after(draft: Draft) -> None:
    """Open what follows the adopted steps. A run that adopted all its steps has nothing left but its end."""
    for settled in adopted_steps(draft):
        settle(draft, settled)
    if draft.open == 0 and draft.state is RunState.QUEUED:
        draft.move_run(RunTrigger.PROGRESSED)


def begin_rollback(draft: Draft, actor: str, child: str) -> None:
    """Start the rollback of a finished child: nothing in it runs but the undo steps of what it adopted."""
    draft.started_at = draft.now
    draft.move_run(RunTrigger.STARTED)
    reason = f"the parent undoes run {child}"
    draft.caused_by("cancel_requested", actor, {"compensate": True, "reason": reason})
    stop(
        draft,
        RunTrigger.UNDO_REQUESTED,
        cause=StopCause.CANCEL,
        policy=OnFailure.COMPENSATE,
        error=f"cancelled by {actor}: {reason}",
    )


def settle(draft: Draft, settled: Settled | None) -> None:
    """Process the dependents of a settled step, and theirs, until no more settle."""
    if settled is None:
        return
    plan = draft.plan
    if settled.no >= len(plan.steps) and plan.at(settled.no).phase is Phase.UNDO:
        _next_hook(draft, settled.no)
        return
    queue = [settled]
    for news in queue:  # grows during the loop
        planned = plan.at(news.no)
        if planned.owner is not None:
            planned = draft.planned(draft.step(news.no))
            follow = None if draft.state is RunState.STOPPING else element_settled(draft, planned, news)
            queue += () if follow is None else (follow,)
        dependents = planned.dependents
        if not dependents or draft.state is RunState.STOPPING:
            continue
        draft.require([no for no, _ in dependents])
        if plan.evaluates:
            require_read(draft, [no for no, allow in dependents if news.state in allow and not news.hard])
        for no, allow in dependents:
            follow = _update_dependent(draft, draft.step(no), news, news.state in allow and not news.hard)
            if follow is not None:
                queue.append(follow)


def _update_dependent(draft: Draft, step: Step, news: Settled, acceptable: bool) -> Settled | None:
    if step.state is not StepState.PENDING or draft.stopping:
        return None
    if not acceptable:
        draft.move(step, StepTrigger.DEPENDENCY_UNMET, of=news.no)
        return Settled(step.no, StepState.SKIPPED, news.hard)
    step = replace(step, unmet=step.unmet - 1)
    if step.unmet:
        draft.put(step)
        return None
    return open_step(draft, step, of=news.no)


def _next_hook(draft: Draft, no: int) -> None:
    note = draft.step(no).note
    if note is not None and note.next is not None:
        begin_hook(draft, draft.step(note.next), of=no)


def open_step(draft: Draft, step: Step, of: int | None = None) -> Settled | None:
    """Open a pending step: ready for a worker, waiting for people or messages, or settled at once."""
    planned = draft.planned(step)
    if planned.condition is not None:
        try:
            holds = planned.condition.holds(view_of(draft, planned.condition))
        except ExpressionError as error:
            said = f"its condition cannot be evaluated: {error}"
            return fail_for_good(draft, step, CONDITION, Category.VALIDATION, said, of=of)
        if not holds:
            draft.move(step, StepTrigger.CONDITION_FALSE, of=of)
            return Settled(step.no, StepState.SKIPPED)
    if planned.keys is not None:
        try:
            limited = planned.keys.of(view_of(draft, planned.keys))
        except ExpressionError as error:
            said = f"the key of a limit cannot be evaluated: {error}"
            return fail_for_good(draft, step, CONDITION, Category.VALIDATION, said, of=of)
        step = draft.noted(step, limited=limited)
    if (stopped := judged(draft, step, of)) is not None:
        return _stop_or_hold(draft, step, stopped, of)
    if planned.hold is not None:
        return _open_gate(draft, step, planned, planned.hold, of)
    return OPENINGS[type(planned.kind)](draft, step, planned, of)


def retry_now(draft: Draft, step: Step) -> Settled | None:
    """The pause of a retry is over: the step is ready again, unless a policy denies or holds it."""
    if (stopped := judged(draft, step)) is not None:
        return _stop_or_hold(draft, step, stopped, None)
    draft.make_ready(step, StepTrigger.RETRY_DUE)
    return None


def _stop_or_hold(draft: Draft, step: Step, stopped: Judged, of: int | None) -> Settled | None:
    """A denied step has settled; a held one waits for people, on terms that stay with it."""
    if stopped.terms is None:
        return stopped.settled
    held = replace(step, note=replace(step.note or Note(), terms=stopped.terms, permit=stopped.permit))
    return _open_gate(draft, held, draft.planned(step), stopped.terms, of)


def hold_reported(draft: Draft, step: Step, reason: str) -> None:
    """An agent reports that governance blocks its action: the step waits for people, and they are told at once.

    Its report is no attempt: an approval lets the same attempt begin again.
    """
    terms = Approval(prompt=reason)
    record = {"effect": PolicyEffect.HOLD.value, "rule": REPORTED, "by": BY_AGENT, "reason": reason}
    record_verdict(draft, draft.planned(step).name, {**record, "terms": shown_terms(terms)})
    note = replace(step.note or Note(), terms=terms, permit=f"{REPORTED}@{BY_AGENT}")
    open_gate(draft, replace(step, note=note), terms, None, None)
    held = draft.step(step.no)
    emit_gate_event(draft, held, ESCALATED, opening_of(draft, held))


def _open_gate(draft: Draft, step: Step, planned: PlannedStep, gate: Approval, of: int | None) -> Settled | None:
    try:
        facts = facts_of(draft, planned, gate)
    except ExpressionError as error:
        said = f"its facts cannot be evaluated: {error}"
        return fail_for_good(draft, step, CONDITION, Category.VALIDATION, said, of=of)
    open_gate(draft, step, gate, facts, of)
    return None


def facts_of(draft: Draft, planned: PlannedStep, gate: Approval) -> Mapping[str, Any] | None:
    """The facts that a gate shows, from values of the run that never change; None if it shows none."""
    if planned.facts is None or gate.facts is msgspec.UNSET:
        return None
    return planned.facts.render(view_of(draft, planned.facts))


def _decided(draft: Draft, step: Step, planned: PlannedStep, of: int | None) -> Settled | None:
    assert planned.kind.terms is not None
    return _open_gate(draft, step, planned, planned.kind.terms, of)


def _worked(draft: Draft, step: Step, planned: PlannedStep, of: int | None) -> None:
    draft.make_ready(step, StepTrigger.DEPENDENCIES_MET, of=of)


def _child_run(draft: Draft, step: Step, planned: PlannedStep, of: int | None) -> Settled | None:
    return Settled(step.no, StepState.SUCCEEDED) if open_child(draft, step, of) else None


def _grown(draft: Draft, step: Step, planned: PlannedStep, of: int | None) -> Settled | None:
    return grow(draft, step, of)


def _asleep(draft: Draft, step: Step, planned: PlannedStep, of: int | None) -> Settled | None:
    kind = planned.kind
    assert isinstance(kind, SleepStep)
    wait, length = kind.wait, kind.length
    due_at = _in(draft, wait.deadline) if wait.until is msgspec.UNSET else max(wait.until, draft.now)
    if length is not None:
        try:
            due_at = draft.now + length.microseconds(view_of(draft, length))
        except ExpressionError as error:
            said = f"its sleep has no length: {error}"
            return fail_for_good(draft, step, CONDITION, Category.VALIDATION, said, of=of)
    due_at = kept_deadline(draft, step, due_at)
    note = replace(step.note or Note(), event=wait.event)
    asleep = draft.move(step, StepTrigger.WAIT_OPENED, of=of, due_at=due_at, note=note)
    return wake_up(draft, asleep) if due_at is not None and due_at <= draft.now else None


def _waiting(draft: Draft, step: Step, planned: PlannedStep, of: int | None) -> Settled | None:
    wait = planned.kind.wait
    assert wait is not None
    opened = draft.move(
        step,
        StepTrigger.WAIT_OPENED,
        of=of,
        due_at=kept_deadline(draft, step, _in(draft, wait.deadline)),
        note=replace(step.note or Note(), event=wait.event),
    )
    settled = None
    while settled is None and (message := next_message(draft, wait.event, opened.no)) is not None:
        settled = take(draft, draft.step(opened.no), message)
    return settled


def next_message(draft: Draft, event: str, no: int) -> Message | None:
    """Take the oldest message from the inbox that this waiting step accepts, if any."""
    return draft.take_message(event, no, lambda message: accepts(draft, draft.step(no), message))


def wake_up(draft: Draft, step: Step) -> Settled:
    """A sleep is over: the step has succeeded, without an output."""
    draft.move(step, StepTrigger.SLEPT)
    return Settled(step.no, StepState.SUCCEEDED)


OPENINGS: Mapping[type[StepKind], Callable[[Draft, Step, PlannedStep, int | None], Settled | None]] = {
    WorkStep: _worked,
    FlowStep: _worked,
    GateStep: _decided,
    WaitStep: _waiting,
    SleepStep: _asleep,
    ChildStep: _child_run,
    MapStep: _grown,
    LoopStep: _grown,
    ChoiceStep: _grown,
    UnreadStep: _worked,
}
"""How a step of each kind opens. An undo step is begun by `begin_hook`, the final check by `roll_up`."""


def _in(draft: Draft, duration: int | None) -> int | None:
    return None if duration is None else draft.now + duration
