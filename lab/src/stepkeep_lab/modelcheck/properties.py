"""Properties of every transition of the model checker, beside the invariants of rows and journal.

`between` checks one decision against the state it was made in. Each violation has a name (I1 to I12 as in the
documentation), so that a planted defect can be shown to be caught by the right property.
"""

from __future__ import annotations

import hashlib

from stepkeep.kernel.decide.decision import Accepted, Decision
from stepkeep.kernel.errors import NotAllowed
from stepkeep.kernel.machine.events import (
    ChildEnded,
    CompletionSignalled,
    FlowResumed,
    GateDecided,
    HoldDecided,
    PauseRequested,
    StepCheckpointed,
    StepClaimed,
    StepReported,
    UnpauseRequested,
)
from stepkeep.kernel.machine.journal import open_entry
from stepkeep.kernel.machine.rows import Checkpoint, Child, Recall, is_exhausted
from stepkeep.kernel.machine.states import STEP_TERMINAL, AttemptState, Phase, RunState, StepState
from stepkeep.kernel.machine.tables import RunTrigger
from stepkeep.kernel.plan import Plan
from stepkeep_lab.invariants.journal import Arrow, JournalFold
from stepkeep_lab.invariants.violation import must
from stepkeep_lab.modelcheck.actions import Action, is_stuck, past_deadline
from stepkeep_lab.modelcheck.world import State, holds


def between(plan: Plan, state: State, action: Action, decision: Decision) -> list[Arrow]:
    """Check one decision; returns the arrows of the tables that it took."""
    _accepted(state, action, decision)
    entry = decision.entry
    if entry is None:
        return []
    must(not state.ended, "I1 terminal is final", "a run that had ended was changed")
    must(decision.was == state.run.seq, "I9 gapless journal", "the decision was read at another sequence")
    for row in decision.changed:
        ended = state.rows[row.no].state in STEP_TERMINAL
        must(not ended, "I1 terminal is final", "step {} had ended and was changed", row.no)
    must(entry.hash == hashlib.sha256(state.run.head + entry.body).digest(), "I9 chain", "the hash does not fit")
    _checkpoints_stay(state, decision)
    _effects_leave_a_trace(plan, state, action, decision)
    _no_child_is_forgotten(plan, state, action, decision)
    _hooks_end_as_their_rollbacks(plan, action, decision)
    _successors_begin_with_the_end(state, decision)
    fold = JournalFold.at(plan, state.run, state.rows)
    arrows = fold.take(open_entry(entry.body))
    rows = {**state.rows, **{row.no: row for row in (*decision.changed, *decision.added)}}
    fold.check(decision.run, rows, {(attempt.no, attempt.fence) for attempt in decision.attempts})
    return arrows


def _accepted(state: State, action: Action, decision: Decision) -> None:
    """I3 and I11: an accepted report came from the holder of the lease, and what is decided was open."""
    reply, event = decision.replies[0], action.event
    if action.resumes is not None:
        _resumed(state, action.resumes, decision)
    if isinstance(event, StepClaimed | PauseRequested | UnpauseRequested) and past_deadline(state, action.now):
        first = () if decision.entry is None else open_entry(decision.entry.body).hops[:1]
        met = [hop.trigger for hop in first] == [RunTrigger.TIMED_OUT] and not decision.claimed
        must(met, "a late claim meets the run's deadline", action.label)
        return
    if not isinstance(reply, Accepted):
        _refused(decision, reply, action)
        return
    if isinstance(event, StepReported | StepCheckpointed):
        row = state.rows[event.no]
        mine = holds(row, event.fence) and row.worker == event.worker
        must(mine, "I3 stale reports are refused", "{} was accepted", action.label)
    if isinstance(event, StepCheckpointed) and decision.entry is not None:
        must(not open_entry(decision.entry.body).hops, "a checkpoint moves nothing", action.label)
    if reply.repeated:
        must(decision.entry is None, "a repetition leaves no trace", action.label)
    elif isinstance(event, GateDecided) and event.no is not None:
        must(state.rows[event.no].state is StepState.AWAITING_APPROVAL, "I11 one decision per gate", action.label)
    elif isinstance(event, HoldDecided):
        row = state.rows[event.no]
        must(is_exhausted(row) or is_stuck(row), "I11 one decision per gate", action.label)
    elif isinstance(event, CompletionSignalled):
        must(state.rows[event.no].state is StepState.AWAITING_COMPLETION, "I11 one decision per gate", action.label)


def _resumed(state: State, resumed: FlowResumed, decision: Decision) -> None:
    """A flow goes on from ends that the same decision records, that it has seen all of, and that it waited for."""
    first, second = decision.replies
    if not isinstance(second, Accepted):
        return
    rows = {row.no: row for row in (*decision.changed, *decision.added)}
    before, call = state.rows[resumed.no], rows.get(resumed.calls[0].no)
    recorded = isinstance(first, Accepted) and call is not None and call.state is StepState.SUCCEEDED
    must(recorded, "a flow goes on from what is recorded", "the end of call {} is not", resumed.calls[0].no)
    grown = None if before.note is None else before.note.grown
    settled = 0 if grown is None else grown.count - before.unmet + 1
    must(settled == resumed.seen, "a flow goes on from what is recorded", "{} ends are, not {}", settled, resumed.seen)
    must(before.worker is None, "a flow goes on from what is recorded", "another attempt holds it")


def _refused(decision: Decision, reply: object, action: Action) -> None:
    """A refusal leaves no trace. One that rests on separate duties is on record, and moves nothing."""
    if not isinstance(reply, NotAllowed) or reply.step is None:
        must(decision.entry is None, "a refusal leaves no trace", action.label)
        return
    entry = None if decision.entry is None else open_entry(decision.entry.body)
    noted = entry is not None and not entry.hops and [cause.event for cause in entry.causes] == ["duty_violated"]
    must(noted, "a violation of duties is on record and moves nothing", action.label)


def _checkpoints_stay(state: State, decision: Decision) -> None:
    """A step records a name once, under the claim that holds it. Rows of checkpoints are only added."""
    for one in decision.rows.of(Checkpoint):
        row = state.rows[one.no]
        must(holds(row, one.fence), "a checkpoint stays", "step {} recorded under claim {}", one.no, one.fence)
        must(one.no not in dict(state.recorded), "a checkpoint stays", "step {} recorded a name again", one.no)


def _no_child_is_forgotten(plan: Plan, state: State, action: Action, decision: Decision) -> None:
    """A step that ends before its child has called the child back: now, or when its run began to stop."""
    called = {recall.no for recall in decision.rows.of(Recall)}
    told = action.event.no if isinstance(action.event, ChildEnded) else None
    for row in decision.changed:
        if plan.of(row).segment is not None:
            continue  # its children are elements, which end with it
        waited = state.rows[row.no].state is StepState.AWAITING_CHILDREN
        stays = row.state is StepState.AWAITING_CHILDREN
        stops = stays and decision.run.state is RunState.STOPPING
        ends = not stays and row.no != told
        right = row.no in called or state.run.state is RunState.STOPPING
        must(
            not (waited and (ends or stops)) or right,
            "no child is forgotten",
            "step {} did not call its child back",
            row.no,
        )


def _successors_begin_with_the_end(state: State, decision: Decision) -> None:
    """The decision by which a run succeeds asks for the run as which its flow continues, and no other does."""
    rows = {**state.rows, **{row.no: row for row in (*decision.changed, *decision.added)}}
    continuing = {
        row.no
        for row in rows.values()
        if row.note is not None and row.note.call is not None and row.note.call.kind == "continue"
    }
    asked = [child.no for child in decision.rows.of(Child) if child.no in continuing]
    due = [no for no in continuing if rows[no].state is StepState.SUCCEEDED]
    expected = due if decision.run.state is RunState.SUCCEEDED else []
    must(asked == expected, "a flow continues as one run", "{} are asked for, and {} are due", asked, expected)


def _hooks_end_as_their_rollbacks(plan: Plan, action: Action, decision: Decision) -> None:
    """A hook that rolls a child back succeeds only by the news that nothing of the child is left."""
    event = action.event
    for row in (*decision.changed, *decision.added):
        if not plan.of(row).kind.undoes_child or row.state is not StepState.SUCCEEDED:
            continue
        told = event.state if isinstance(event, ChildEnded) and event.no == row.no and not event.partial else None
        right = told in (RunState.ROLLED_BACK, RunState.CANCELLED)
        must(right, "a rollback is what its children say", "hook {} succeeds by {}", row.no, action.label)


def _effects_leave_a_trace(plan: Plan, state: State, action: Action, decision: Decision) -> None:
    """An attempt that is cancelled without a report of its worker is in doubt; rules have no effect."""
    for attempt in decision.attempts:
        rules_only = state.rows[attempt.no].state is StepState.VALIDATING
        harmless = rules_only or plan.at(attempt.no).phase is Phase.CHECK
        if attempt.state is AttemptState.CANCELLED and not isinstance(action.event, StepReported) and not harmless:
            said = attempt.error is not None and attempt.error.startswith("IN_DOUBT")
            must(said, "no effect without a trace", "step {} was cancelled in flight, and nothing says so", attempt.no)
