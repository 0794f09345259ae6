"""Planted defects: each takes one rule out of the kernel, and names the case and the property that must notice.

A model checker that finds nothing proves nothing until it has been shown to find something.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from stepkeep.kernel.composition import added, child_runs, children, elements, resuming
from stepkeep.kernel.decide import (
    checkpoints,
    compensation,
    decide,
    execution,
    failure,
    progress,
    rollup,
    stopping,
    stuck,
    timers,
)
from stepkeep.kernel.decide.checkpoints import checkpoint
from stepkeep.kernel.decide.decision import Accepted, Reply
from stepkeep.kernel.decide.draft import Draft
from stepkeep.kernel.errors import Conflict
from stepkeep.kernel.machine.events import (
    ChildEnded,
    GateDecided,
    MessageArrived,
    StepCheckpointed,
    StepReported,
    TimeCame,
)
from stepkeep.kernel.machine.outcomes import Completed, Released
from stepkeep.kernel.machine.rows import Step
from stepkeep.kernel.machine.states import AttemptState, StepState
from stepkeep.kernel.machine.tables import StepTrigger
from stepkeep.kernel.people import votes
from stepkeep_lab.modelcheck.world import FAR

Patch = pytest.MonkeyPatch
HANDLERS: Any = decide.HANDLERS
REPORTS: Any = execution.REPORTS


class Mutant(NamedTuple):
    name: str
    case: str
    caught_by: str
    plant: Callable[[Patch], None]


def _no_fence(patch: Patch) -> None:
    def report(draft: Draft, event: StepReported) -> Reply:
        return execution.report(draft, replace(event, fence=draft.named(event.no).fence))

    patch.setitem(HANDLERS, StepReported, report)


def _expired_leases_are_believed(patch: Patch) -> None:
    def report(draft: Draft, event: StepReported) -> Reply:
        now, draft.now = draft.now, 0
        step = draft.named(event.no)
        if step.worker is not None and step.due_at is not None and step.due_at < now:
            return execution.report(draft, event)
        draft.now = now
        return execution.report(draft, event)

    patch.setitem(HANDLERS, StepReported, report)


def _sweeps_believe_what_they_found(patch: Patch) -> None:
    def time_came(draft: Draft, event: TimeCame) -> Reply:
        draft.now = FAR
        return timers.time_came(draft, event)

    patch.setitem(HANDLERS, TimeCame, time_came)


def _parking_does_not_look_into_the_inbox(patch: Patch) -> None:
    patch.setattr(Draft, "take_message", lambda self, name, no, verdict=None: None)


def _messages_wake_nobody(patch: Patch) -> None:
    patch.setattr(decide, "_listens", lambda draft: False)


def _messages_are_not_deduplicated(patch: Patch) -> None:
    def message(draft: Draft, event: MessageArrived) -> Reply:
        return decide.message(draft, replace(event, id=event.id + "'"))

    patch.setitem(HANDLERS, MessageArrived, message)


def _the_last_completed_is_not_undone(patch: Patch) -> None:
    to_undo = compensation._to_undo
    patch.setattr(compensation, "_to_undo", lambda draft: to_undo(draft)[1:])


def _hooks_run_in_order_of_completion(patch: Patch) -> None:
    to_undo = compensation._to_undo
    patch.setattr(compensation, "_to_undo", lambda draft: to_undo(draft)[::-1])


def _losses_of_undos_are_attempts(patch: Patch) -> None:
    def lose(draft: Draft, step: Step) -> object:
        is_undo = draft.plan.is_undo(step.no)
        return execution.lose(draft, replace(step, attempts=step.attempts + 1) if is_undo else step)

    patch.setattr(timers, "lose", lose)


def _lost_leases_have_no_cap(patch: Patch) -> None:
    patch.setattr(execution, "may_retry_lost", lambda retry, counted, losses: True)


def _attempts_have_no_cap(patch: Patch) -> None:
    patch.setattr(execution, "may_retry", lambda *_: True)


def _cancelled_claims_leave_no_attempt(patch: Patch) -> None:
    def cancel_step(draft: Draft, step: Step, of: int | None = None) -> Step:
        return draft.move(step, StepTrigger.CANCELLED, of=of)

    patch.setattr(stopping, "cancel_step", cancel_step)


def _joins_open_at_the_first_arrival(patch: Patch) -> None:
    tell = progress._update_dependent

    def first(draft: Draft, step: Step, *news: Any) -> Any:
        return tell(draft, replace(step, unmet=1), *news)

    patch.setattr(progress, "_update_dependent", first)


def _gates_are_decided_again(patch: Patch) -> None:
    def again(draft: Draft, step: Step, actor: str, decision: str) -> Reply:
        draft.caused_by("gate_decided", actor)
        return Accepted({"decision": decision})

    patch.setattr(votes, "decided_before", again)


def _held_steps_are_decided_again(patch: Patch) -> None:
    def again(draft: Draft, step: Step, actor: str, decision: str) -> Reply:
        draft.caused_by("hold_decided", actor)
        return Accepted({"decision": decision})

    patch.setattr(stuck, "_decided_before", again)


def _held_steps_are_nobodys(patch: Patch) -> None:
    patch.setattr(stuck, "is_exhausted", lambda step: False)


def _nobody_may_decide(patch: Patch) -> None:
    def refuse(draft: Draft, event: GateDecided) -> Reply:
        raise Conflict("no")

    patch.setitem(HANDLERS, GateDecided, refuse)


def _stopping_has_no_grace_period(patch: Patch) -> None:
    stop = stopping.stop

    def endless(draft: Draft, *given: Any, **more: Any) -> None:
        stop(draft, *given, **more)
        draft.due_at = None

    for module in (decide, failure, timers):
        patch.setattr(module, "stop", endless)


def _retries_are_granted_while_stopping(patch: Patch) -> None:
    def released(draft: Draft, step: Step, outcome: Any) -> None:
        draft.close_attempt(step, AttemptState.RELEASED, outcome)
        draft.move(step, StepTrigger.RELEASED, ready_at=draft.now)

    patch.setitem(REPORTS, Released, released)


def _refused_gates_let_pass(patch: Patch) -> None:
    settle = progress.settle

    def lenient(draft: Draft, settled: Any) -> None:
        settle(draft, None if settled is None else replace(settled, hard=False, state=StepState.SUCCEEDED))

    patch.setattr(votes, "settle", lenient)
    patch.setattr(timers, "settle", lenient)


def _hooks_are_not_counted_out(patch: Patch) -> None:
    def count_out(draft: Draft, no: int) -> None:
        draft.open -= no < draft.plan.size

    patch.setattr(Draft, "_count_out", count_out)


ELEMENTS = "I17 elements are bounded"


def _all_elements_begin_at_once(patch: Patch) -> None:
    add = elements._add

    def begin(draft: Draft, owner: Any, index: int) -> None:
        last = owner.definition.growth.max if index == 0 else index + 1
        for place in range(index, last):
            if owner.segment.element(place) not in draft.snapshot.steps:
                add(draft, owner, place)

    patch.setattr(elements, "_add", begin)


def _a_failed_element_is_not_counted(patch: Patch) -> None:
    keep = elements._keep

    def forgetful(draft: Draft, owner: Step, grown: Any) -> Step:
        return keep(draft, owner, replace(grown, failed=0, stops=False))

    patch.setattr(elements, "_keep", forgetful)


def _elements_are_not_undone(patch: Patch) -> None:
    has_effect = compensation.has_effect
    patch.setattr(compensation, "has_effect", lambda plan, no: no < plan.size and has_effect(plan, no))


def _nothing_ever_finishes(patch: Patch) -> None:
    """Whatever is reported, the step is offered again: always something to do, never an end."""

    def offer_again(draft: Draft, step: Step, outcome: object = None) -> None:
        execution._released(draft, step, Released())

    for outcome in REPORTS:
        patch.setitem(REPORTS, outcome, offer_again)

    patch.setitem(timers.STEP_DUE, StepState.RUNNING, offer_again)


STALE, TIMERS, WOKEN = "I3 stale reports are refused", "timers fire when they are due", "I6 no lost wake-up"
UNDO, LIMITS, OWN = "I7 completed steps are undone, last first", "I10 limits", "InvariantBroken"


def _late_claims_are_granted(patch: Patch) -> None:
    patch.setattr(decide, "MEETS_DEADLINE", frozenset())


def _cancelled_in_flight_without_a_trace(patch: Patch) -> None:
    patch.setattr(stopping, "_may_have_effect", lambda draft, step: False)


def _effects_of_lost_leases_are_forgotten(patch: Patch) -> None:
    patch.setattr(compensation, "is_effect_unknown", stopping.is_in_doubt)


def _work_before_failed_rules_is_forgotten(patch: Patch) -> None:
    patch.setattr(compensation, "is_completed", lambda step: False)


def _steps_that_never_ran_are_undone(patch: Patch) -> None:
    patch.setattr(compensation, "may_have_run", lambda step: step.fence > 0)


def _news_of_any_child_counts(patch: Patch) -> None:
    def child_ended(draft: Draft, event: ChildEnded) -> Reply:
        note = draft.named(event.no).note
        return children.child_ended(draft, replace(event, activation=0 if note is None else note.activation or 0))

    patch.setitem(HANDLERS, ChildEnded, child_ended)


def _a_stopping_run_forgets_its_children(patch: Patch) -> None:
    patch.setattr(rollup, "has_children_out", lambda draft: False)


def _a_child_is_not_called_back(patch: Patch) -> None:
    patch.setattr(stopping, "recall", lambda draft, step: None)


def _a_partial_rollback_of_a_child_counts_as_whole(patch: Patch) -> None:
    real = children._end_hook
    patch.setattr(children, "_end_hook", lambda draft, step, event: real(draft, step, replace(event, partial=False)))


def _a_hook_does_not_wait_for_the_rollback(patch: Patch) -> None:
    real = child_runs.begin_hook

    def begin(draft: Draft, hook: Step, of: int | None = None) -> None:
        real(draft, hook, of)
        if draft.planned(hook).kind.undoes_child:
            waiting = draft.move(draft.step(hook.no), StepTrigger.CHILDREN_SUCCEEDED)
            draft.move(waiting, StepTrigger.RULES_PASSED)
            note = hook.note
            if note is not None and note.next is not None:
                begin(draft, draft.step(note.next), hook.no)

    patch.setattr(compensation, "begin_hook", begin)
    patch.setattr(progress, "begin_hook", begin)


def _a_call_that_settles_wakes_nobody(patch: Patch) -> None:
    patch.setattr(elements, "call_settled", lambda draft, owner: draft.put(replace(owner, unmet=owner.unmet - 1)))


def _a_flow_may_return_before_its_calls(patch: Patch) -> None:
    real = REPORTS[Completed]
    patch.setitem(REPORTS, Completed, lambda draft, step, outcome: real(draft, replace(step, unmet=0), outcome))


def _a_flow_goes_on_from_anything(patch: Patch) -> None:
    patch.setattr(resuming, "_misfit", lambda draft, step, event: None)


def _a_flow_continues_as_nothing(patch: Patch) -> None:
    patch.setattr(rollup, "ask_for_successor", lambda draft: None)


def _checkpoints_need_no_fence(patch: Patch) -> None:
    def record(draft: Draft, event: StepCheckpointed) -> Reply:
        return checkpoint(draft, replace(event, fence=draft.named(event.no).fence))

    patch.setitem(HANDLERS, StepCheckpointed, record)


def _a_name_is_recorded_again(patch: Patch) -> None:
    patch.setattr(checkpoints, "_recorded", lambda draft, event: None)


def _added_steps_begin_at_once(patch: Patch) -> None:
    def open_all(draft: Draft, owner: int, numbers: Sequence[int]) -> None:
        for no in numbers:
            progress.settle(draft, progress.open_step(draft, replace(draft.step(no), unmet=0), of=owner))

    patch.setattr(added, "open_added", open_all)


def _added_failures_are_borne(patch: Patch) -> None:
    patch.setattr(elements, "_is_tolerated", lambda draft, element: True)


ADDED = "I19 added steps are counted"

MUTANTS = (
    Mutant("added steps begin at once", "then", ADDED, _added_steps_begin_at_once),
    Mutant("failures of added steps are borne", "then", ADDED, _added_failures_are_borne),
    Mutant("checkpoints need no fence", "checkpoints", "what is out of place is refused", _checkpoints_need_no_fence),
    Mutant(
        "a name is recorded again",
        "checkpoints",
        "what is out of place is refused",
        _a_name_is_recorded_again,
    ),
    Mutant("a call that settles wakes nobody", "flow", "I18 calls are counted", _a_call_that_settles_wakes_nobody),
    Mutant("a flow may return before its calls", "flow", "I18 calls are counted", _a_flow_may_return_before_its_calls),
    Mutant(
        "a flow goes on from anything", "flow", "a flow goes on from what is recorded", _a_flow_goes_on_from_anything
    ),
    Mutant(
        "a flow continues as nothing", "flow continues", "a flow continues as one run", _a_flow_continues_as_nothing
    ),
    Mutant("steps that never ran are undone", "rules first", UNDO, _steps_that_never_ran_are_undone),
    Mutant("late claims are granted", "diamond", "a late claim meets the run's deadline", _late_claims_are_granted),
    Mutant("doubt is not told", "crowd", "no effect without a trace", _cancelled_in_flight_without_a_trace),
    Mutant("effects of lost leases are forgotten", "diamond", UNDO, _effects_of_lost_leases_are_forgotten),
    Mutant("work before failed rules is forgotten", "gates", UNDO, _work_before_failed_rules_is_forgotten),
    Mutant("no fence", "crowd", STALE, _no_fence),
    Mutant("expired leases are believed", "crowd", STALE, _expired_leases_are_believed),
    Mutant("sweeps believe what they found", "gates", TIMERS, _sweeps_believe_what_they_found),
    Mutant("parking does not look into the inbox", "waits", WOKEN, _parking_does_not_look_into_the_inbox),
    Mutant("messages wake nobody", "waits", WOKEN, _messages_wake_nobody),
    Mutant("messages are not deduplicated", "waits", "I6 no message twice", _messages_are_not_deduplicated),
    Mutant("the last completed is not undone", "diamond", UNDO, _the_last_completed_is_not_undone),
    Mutant("hooks run in order of completion", "undo stops", UNDO, _hooks_run_in_order_of_completion),
    Mutant("losses of undos are attempts", "held undos", LIMITS, _losses_of_undos_are_attempts),
    Mutant("lost leases have no cap", "crowd", LIMITS, _lost_leases_have_no_cap),
    Mutant("attempts have no cap", "diamond", LIMITS, _attempts_have_no_cap),
    Mutant(
        "cancelled claims leave no attempt", "crowd", "I2 one outcome per claim", _cancelled_claims_leave_no_attempt
    ),
    Mutant("joins open at the first arrival", "diamond", "I4 dependencies first", _joins_open_at_the_first_arrival),
    Mutant("gates are decided again", "gates", "I11 one decision per gate", _gates_are_decided_again),
    Mutant("held steps are decided again", "holds", "what is out of place is refused", _held_steps_are_decided_again),
    Mutant("held steps are nobody's", "holds", "no dead end", _held_steps_are_nobodys),
    Mutant("nobody may decide", "gates", "no dead end", _nobody_may_decide),
    Mutant("stopping has no grace period", "crowd", OWN, _stopping_has_no_grace_period),
    Mutant("claims are handed back while stopping", "crowd", OWN, _retries_are_granted_while_stopping),
    Mutant("refused gates let pass", "skips", "I4 dependencies first", _refused_gates_let_pass),
    Mutant("hooks are not counted out", "diamond", OWN, _hooks_are_not_counted_out),
    Mutant("news of any child counts", "children", "what is out of place is refused", _news_of_any_child_counts),
    Mutant("a stopping run forgets its children", "children", OWN, _a_stopping_run_forgets_its_children),
    Mutant("a child is not called back", "children", "no child is forgotten", _a_child_is_not_called_back),
    Mutant(
        "a partial rollback of a child counts as whole",
        "undone children",
        "a rollback is what its children say",
        _a_partial_rollback_of_a_child_counts_as_whole,
    ),
    Mutant(
        "a hook does not wait for the rollback",
        "undone children",
        "a rollback is what its children say",
        _a_hook_does_not_wait_for_the_rollback,
    ),
    Mutant("all elements begin at once", "elements", ELEMENTS, _all_elements_begin_at_once),
    Mutant("a failed element is not counted", "elements", ELEMENTS, _a_failed_element_is_not_counted),
    Mutant("elements are not undone", "elements", UNDO, _elements_are_not_undone),
    Mutant("nothing ever finishes", "rules", "an end is reachable from everywhere", _nothing_ever_finishes),
)
