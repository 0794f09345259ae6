"""Properties of every state and every transition. Shares no code with the kernel's own checks.

`between` checks one decision against the state it was made in, `at` checks a state on its own. Each finding has a name
(I1 to I12 as in the documentation), so that a planted defect can be shown to be caught by the right property.
"""

from __future__ import annotations

import hashlib

from stepkeep.kernel.decision import Accepted, Decision
from stepkeep.kernel.definition import CompensateWhen, Effect
from stepkeep.kernel.events import CompletionSignalled, GateDecided, StepReported
from stepkeep.kernel.journal import RUN_ENTITY, Hop, open_entry
from stepkeep.kernel.plan import Plan
from stepkeep.kernel.rows import Step
from stepkeep.kernel.states import (
    RUN_TERMINAL,
    STEP_MOVING,
    STEP_TERMINAL,
    STEP_WAITING,
    OnFailure,
    Phase,
    Rollback,
    RunState,
    StepState,
)
from stepkeep.kernel.tables import RUN, STEP, StepTrigger
from stepkeep_lab.modelcheck.moves import Move
from stepkeep_lab.modelcheck.world import State, holds

BEFORE_STOPPING = frozenset({RunState.QUEUED, RunState.RUNNING, RunState.BLOCKED, RunState.VALIDATING})
TO_BE_TRIED = frozenset({StepState.READY, StepState.RUNNING, StepState.RETRYING})
OPENING = frozenset(
    {
        StepTrigger.DEPENDENCIES_MET,
        StepTrigger.GATE_OPENED,
        StepTrigger.HELD,
        StepTrigger.WAIT_OPENED,
        StepTrigger.CLAIMED,
    }
)
REFUSED = ('"decision":"rejected"', '"decision":"expired"')
Arrow = tuple[str, str | None, str]

LEGAL: dict[Arrow, str] = {
    **{("run", row.source, row.trigger): row.target for row in RUN.rows},
    **{("step", row.source, row.trigger): row.target for row in STEP.rows},
}


class Violation(Exception):
    """A promise that does not hold; `name` says which."""

    def __init__(self, name: str, what: str) -> None:
        self.name, self.what = name, what
        super().__init__(f"{name}: {what}")


def must(holds_: bool, name: str, what: str, *about: object) -> None:
    """`what` is said of the things `about`, and put into words only if it must be: this is asked millions of times."""
    if not holds_:
        raise Violation(name, what.format(*about))


# -- on the way ------------------------------------------------------------------------------------------------------
def between(plan: Plan, state: State, move: Move, decision: Decision) -> list[Arrow]:
    """Check one decision; returns the arrows of the tables that it took."""
    _believed(state, move, decision)
    if decision.entry is None:
        return []
    must(not state.ended, "I1 terminal is final", "a run that had ended was changed")
    must(decision.was == state.run.seq, "I9 gapless journal", "the decision was read at another sequence")
    for row in decision.changed:
        old = state.rows[row.no]
        must(old.state not in STEP_TERMINAL, "I1 terminal is final", "step {} had ended and was changed", row.no)
        grown = row.fence - old.fence in (0, 1)
        must(grown, "I3 fences grow by one", "step {}: {} to {}", row.no, old.fence, row.fence)
        _within_limits(plan, row)
    _one_outcome_per_claim(state, decision)
    return _fold(plan, state, decision)


def _believed(state: State, move: Move, decision: Decision) -> None:
    """I3 and I11: who is believed held the lease, and what is decided was open."""
    [reply] = decision.replies
    if not isinstance(reply, Accepted):
        must(decision.entry is None, "a refusal leaves no trace", move.label)
        return
    event = move.event
    if isinstance(event, StepReported):
        row = state.rows[event.no]
        mine = holds(row, event.fence) and row.worker == event.worker
        must(mine, "I3 stale reports are refused", f"{move.label} was believed")
    if reply.repeated:
        must(decision.entry is None, "a repetition leaves no trace", move.label)
    elif isinstance(event, GateDecided) and event.no is not None:
        must(state.rows[event.no].state is StepState.AWAITING_APPROVAL, "I11 one decision per gate", move.label)
    elif isinstance(event, CompletionSignalled):
        must(state.rows[event.no].state is StepState.AWAITING_COMPLETION, "I11 one decision per gate", move.label)


def _one_outcome_per_claim(state: State, decision: Decision) -> None:
    """I2: a claim that ends is written down once, and one that goes on is not."""
    ended = sorted((attempt.no, attempt.fence) for attempt in decision.attempts)
    due = sorted(
        (row.no, old.fence)
        for row in decision.changed
        if _open(old := state.rows[row.no]) and not (_open(row) and row.fence == old.fence)
    )
    must(ended == due, "I2 one outcome per claim", "attempts written {}, claims ended {}", ended, due)


def _open(row: Step) -> bool:
    """A worker holds it and its handler has not answered yet."""
    return row.worker is not None and not (row.note is not None and row.note.checked == row.fence)


def _fold(plan: Plan, state: State, decision: Decision) -> list[Arrow]:
    """I9 and I15: the entry, replayed hop by hop over the old states, gives the new ones, and by the tables alone."""
    entry = decision.entry
    assert entry is not None
    must(entry.hash == hashlib.sha256(state.run.head + entry.body).digest(), "I9 chain", "the hash does not fit")
    must((entry.seq, decision.run.seq) == (state.run.seq + 1,) * 2, "I9 gapless journal", "entry {}", entry.seq)
    folded: dict[int, str | None] = {RUN_ENTITY: state.run.state}
    new = {row.no: row for row in (*decision.changed, *decision.added)}
    arrows: list[Arrow] = []
    for hop in open_entry(entry.body).hops:
        kind = "run" if hop.no == RUN_ENTITY else "step"
        old = state.rows.get(hop.no)
        source = folded.get(hop.no, None if old is None else old.state)
        arrow = (kind, hop.source, hop.trigger)
        must(hop.source == source, "I9 the log folds to the rows", "{} starts elsewhere than {}", hop, source)
        must(LEGAL.get(arrow) == hop.target, "I15 transitions only from the table", "{}", hop)
        if hop.trigger in OPENING and hop.source != StepState.VALIDATING:
            _may_open(plan, state, new, folded, hop)
        folded[hop.no] = hop.target
        arrows.append(arrow)
    for row in new.values():
        old_state = state.rows[row.no].state if row.no in state.rows else None
        must(row.state == folded.get(row.no, old_state), "I9 the log folds to the rows", "step {}", row.no)
    must(decision.run.state == folded[RUN_ENTITY], "I9 the log folds to the rows", "the run")
    return arrows


def _may_open(plan: Plan, state: State, new: dict[int, Step], folded: dict[int, str | None], hop: Hop) -> None:
    """I4: what opens or is claimed has every dependency settled as its edge allows, and none of them refused."""
    planned, claimed = plan.at(hop.no), hop.trigger == StepTrigger.CLAIMED
    must(planned.executor is not None or not claimed, "I4 dependencies first", "a gate or a wait was claimed")
    if planned.phase is not Phase.MAIN:
        return
    for edge in planned.definition.depends_on:
        other = plan.numbers[edge.step]
        row = new.get(other, state.rows[other])
        ended = folded.get(other, row.state)
        may = ended in edge.allow
        must(may, "I4 dependencies first", "{} opens while {} is {}", planned.name, edge.step, ended)
        said = "" if row.note is None or row.note.record is None else row.note.record
        must(not any(word in said for word in REFUSED), "I4 dependencies first", "{} was refused", edge.step)


# -- at rest ---------------------------------------------------------------------------------------------------------
def at(plan: Plan, state: State, sound: set[Step]) -> None:
    """Check one state; `sound` remembers the rows that were found in order, wherever they were met."""
    _counters_are_counts(plan, state)
    _cause_to_move(plan, state)
    for row in state.rows.values():
        if row not in sound:
            _row_is_sound(plan, row)
            sound.add(row)
    _messages_are_delivered(state)
    _rollback_is_right(plan, state)


def _counters_are_counts(plan: Plan, state: State) -> None:
    rows, size, run = list(state.rows.values()), plan.size, state.run
    counted = (
        sum(row.no < size and row.state not in STEP_TERMINAL for row in rows),
        sum(row.state in STEP_MOVING for row in rows),
        sum(row.worker is not None for row in rows),
        sum(size <= row.no < 2 * size and row.state not in STEP_TERMINAL for row in rows),
        len(state.inbox),
    )
    kept = (run.open, run.moving, run.leased, run.undoing, run.inbox)
    must(counted == kept, "counters are counts", "open, moving, leased, undoing, inbox are {}, not {}", counted, kept)
    failed = sum(
        row.no < size and row.state is StepState.FAILED and plan.at(row.no).on_failure is OnFailure.CONTINUE
        for row in rows
    )
    right = run.failed == failed if run.state in BEFORE_STOPPING else run.failed <= failed
    must(right, "counters are counts", "{} failed and let the run go on, not {}", failed, run.failed)


def _cause_to_move(plan: Plan, state: State) -> None:
    """I12: a ready step, a live lease, a timer, or a declared wait; and the run's state says which."""
    run, rows, name = state.run, list(state.rows.values()), "I12 a cause to move"
    if run.state in RUN_TERMINAL:
        must(all(row.state in STEP_TERMINAL for row in rows), name, "the run has ended, a step has not")
        must(run.due_at is None and run.ended_at is not None, name, "an ended run with a timer")
        return
    moving = [row for row in rows if row.state in STEP_MOVING]
    if run.state is RunState.IDLE:
        must(all(row.state is StepState.PENDING for row in rows), name, "an idle run moves")
    elif run.state is RunState.BLOCKED:
        must(not moving and any(row.state in STEP_WAITING for row in rows), name, "blocked by nothing")
    elif run.state is RunState.STOPPING:
        held = any(row.worker is not None for row in rows)
        must(held and run.due_at is not None, name, "stopping with nothing in flight, or with no end of its grace")
        new = [row.no for row in rows if row.state not in STEP_TERMINAL and row.worker is None]
        must(not new, name, "stopping, yet {} are left to be run", new)
    else:
        must(bool(moving), name, "{}, and nothing moves", run.state)
    for row in moving:
        must(row.ready_at is not None or row.due_at is not None, name, "nothing ever moves step {}", row.no)
    if run.state is not RunState.IDLE:
        forgotten = [row.no for row in rows if row.state is StepState.PENDING and row.no < plan.size and not row.unmet]
        must(not forgotten, name, "{} wait for nothing and were not opened", forgotten)


def _row_is_sound(plan: Plan, row: Step) -> None:
    """I10, and the shape of a lease."""
    retry, leased = plan.at(row.no).retry, row.worker is not None
    spent = row.attempts == retry.max_attempts or row.losses == retry.max_losses
    must(not (spent and row.state in TO_BE_TRIED), "I10 limits", f"step {row.no} is {row.state} with nothing left")
    must(leased == (row.claimed_at is not None), "leases are whole", f"step {row.no}")
    runs = row.due_at is not None and row.state in (StepState.RUNNING, StepState.VALIDATING)
    must(not leased or runs, "leases are whole", f"step {row.no} is held and does not run")
    ready = row.state in (StepState.READY, StepState.VALIDATING) and not leased
    must(row.ready_at is None or ready, "leases are whole", f"step {row.no} is offered while it is {row.state}")
    must((row.settled is not None) == (row.state in STEP_TERMINAL), "leases are whole", f"step {row.no} has no place")


def _within_limits(plan: Plan, row: Step) -> None:
    retry = plan.at(row.no).retry
    within = row.attempts <= retry.max_attempts and row.losses <= retry.max_losses
    must(within, "I10 limits", "step {}: {} attempts, {} losses", row.no, row.attempts, row.losses)


def _messages_are_delivered(state: State) -> None:
    """I6: nobody waits for a message that lies in the inbox."""
    if state.run.state not in (RunState.RUNNING, RunState.BLOCKED):
        return
    for row in state.rows.values():
        if row.state is StepState.AWAITING_EVENT:
            name = None if row.note is None else row.note.event
            lost = name is None or name in state.inbox
            must(not lost, "I6 no lost wake-up", "step {} waits for {}", row.no, name)


def _rollback_is_right(plan: Plan, state: State) -> None:
    """I7: hooks exist for exactly what is to be undone, and run one by one, last completed first."""
    size, run, name = plan.size, state.run, "I7 what was done is undone, last first"
    hooks = {no: row for no, row in state.rows.items() if size <= no < 2 * size}
    if not hooks:
        must(run.state not in (RunState.COMPENSATING, RunState.ROLLED_BACK), name, "{} without hooks", run.state)
        _nothing_left_to_undo(plan, state, name)
        return
    allowed = (RunState.COMPENSATING, RunState.ROLLED_BACK, RunState.FAILED)
    must(run.state in allowed, name, "a run with hooks is {}", run.state)
    done = [row for row in state.rows.values() if row.no < size and _is_done(plan, row)]
    hooked = [row for row in done if plan.undo_of(row.no) is not None]
    order = [row.no + size for row in sorted(hooked, key=lambda row: row.settled or 0, reverse=True)]
    must(sorted(hooks) == sorted(order), name, "hooks {}, done {}", hooks, order)
    rest = [hooks[no] for no in order]
    while rest and rest[0].state in STEP_TERMINAL:
        rest.pop(0)
    pending = [row.state is StepState.PENDING for row in rest]
    must(not rest or (not pending[0] and all(pending[1:])), name, "hooks are out of order: {}", rest)
    left = any(plan.steps[row.no].definition.effect is not Effect.READ for row in done if row not in hooked)
    undone = all(row.state is StepState.SUCCEEDED for row in hooks.values())
    if run.state is RunState.ROLLED_BACK:
        must(undone and not left and run.rollback is Rollback.COMPLETE, name, "rolled back, but not all of it")
    if run.state is RunState.FAILED:
        must((left or not undone) and run.rollback is Rollback.PARTIAL, name, "all was undone, and yet it failed")


def _nothing_left_to_undo(plan: Plan, state: State, name: str) -> None:
    if state.run.state in (RunState.FAILED, RunState.CANCELLED) and state.run.policy is OnFailure.COMPENSATE:
        left = [row.no for row in state.rows.values() if _is_done(plan, row) and plan.undo_of(row.no) is not None]
        must(not left, name, f"{left} were to be undone")


def _is_done(plan: Plan, row: Step) -> bool:
    if row.no >= plan.size:
        return False
    attempted = plan.steps[row.no].definition.compensate_when is CompensateWhen.ATTEMPTED
    return row.state is StepState.SUCCEEDED or (attempted and row.fence > 0)
