"""Invariants of the rows of one run between two transactions.

The kernel keeps counters, timers and states as it goes; here each is counted again from the rows. Must not use the
kernel's decisions or its own checks. The kernel tests, the model checker, the simulator and torture call `check_rows`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from stepkeep.kernel.composition.segments import Segment
from stepkeep.kernel.definition import CompensateWhen, Effect, Incompatible, Map, Then
from stepkeep.kernel.machine.rows import Run, Step, is_exhausted
from stepkeep.kernel.machine.states import (
    RUN_TERMINAL,
    STEP_MOVING,
    STEP_TERMINAL,
    STEP_WAITING,
    Category,
    OnFailure,
    Phase,
    Rollback,
    RunState,
    StepState,
)
from stepkeep.kernel.plan import Plan, template_of
from stepkeep_lab.invariants.violation import must

BEFORE_STOPPING = frozenset({RunState.QUEUED, RunState.RUNNING, RunState.BLOCKED, RunState.PAUSED, RunState.VALIDATING})
AWAITS_RESOURCES = 100_000_000_000_000_000
FAR = 253_402_300_799_999_999
"""From when the claimable steps of a paused run may be claimed."""

TO_BE_TRIED = frozenset({StepState.READY, StepState.RUNNING, StepState.RETRYING})
Rows = Mapping[int, Step]


def check_rows(plan: Plan, run: Run, rows: Rows, inbox: Collection[str], sound: set[Step] | None = None) -> None:
    """Raise if the rows contradict the plan or each other. `inbox` has the names of the unconsumed messages.

    `sound` remembers rows that passed, so that the model checker checks each distinct row once.
    """
    _counters_are_counts(plan, run, rows, inbox)
    _cause_to_progress(plan, run, rows)
    for row in rows.values():
        if sound is None or row not in sound:
            _row_is_sound(plan, row)
            if sound is not None:
                sound.add(row)
    _messages_are_delivered(plan, run, rows, inbox)
    _rollback_is_right(plan, run, rows)
    for segment in plan.segments:
        if plan.steps[segment.owner].kind.is_flow:
            _calls_are_counted(segment, run, rows)
        elif isinstance(plan.steps[segment.owner].kind.growth, Then):
            _added_are_counted(segment, run, rows)
        else:
            _elements_are_bounded(plan, segment, rows)


def _elements_are_bounded(plan: Plan, segment: Segment, rows: Rows) -> None:
    """I17: an owner awaits exactly its unsettled elements, at most as many as may be in flight, and none after it."""
    owner, growth, name = rows[segment.owner], plan.steps[segment.owner].kind.growth, "I17 elements are bounded"
    elements = [row for no, row in rows.items() if segment.first <= no < segment.first + segment.width]
    unsettled = [row for row in elements if row.state not in STEP_TERMINAL]
    if owner.state is not StepState.AWAITING_CHILDREN:
        must(not unsettled or owner.state is StepState.CANCELLED, name, "{} ended before {}", owner.no, unsettled)
        return
    grown = None if owner.note is None else owner.note.grown
    assert grown is not None
    settled = len(elements) - len(unsettled)
    if grown.stops:
        right = len(unsettled) == owner.unmet > 0 and owner.due_at is not None
        must(right, name, "{} stops and awaits {} of {}", owner.no, owner.unmet, len(unsettled))
    elif isinstance(growth, Map):
        wanted = min(growth.in_flight, grown.count - settled)
        right = len(unsettled) == wanted > 0 and owner.unmet == grown.count - settled
        must(right, name, "{} has {} unsettled and awaits {}", owner.no, len(unsettled), owner.unmet)
    else:
        right = len(unsettled) == owner.unmet <= 1 and (owner.unmet == 1 or owner.due_at is not None)
        must(right and len(elements) == grown.count, name, "{} has begun {}", owner.no, len(elements))
    failed = sum(row.state is not StepState.SUCCEEDED for row in elements if row.state in STEP_TERMINAL)
    must(failed == grown.failed or grown.stops, name, "{} of {} failed, not {}", failed, owner.no, grown.failed)


def _calls_are_counted(segment: Segment, run: Run, rows: Rows) -> None:
    """I18: a flow counts its unsettled calls, and awaits one while it is suspended. A stop cancels calls uncounted."""
    owner, name = rows[segment.owner], "I18 calls are counted"
    grown = None if owner.note is None else owner.note.grown
    made = 0 if grown is None else grown.count - len(grown.free)
    calls = [row for no, row in rows.items() if segment.first <= no < segment.first + segment.width]
    unsettled = sum(row.state not in STEP_TERMINAL for row in calls)
    if owner.state in STEP_TERMINAL:
        must(unsettled == 0 or run.state is RunState.STOPPING, name, "{} ended before {} calls", owner.no, unsettled)
    elif owner.state is StepState.PENDING:
        must(len(calls) == made, name, "{} has {} calls before it began", owner.no, len(calls))
    elif run.state is not RunState.STOPPING:
        must(len(calls) == made, name, "{} has {} calls", owner.no, len(calls))
        must(owner.unmet == unsettled, name, "{} awaits {} of {}", owner.no, owner.unmet, unsettled)
        must(unsettled > 0 or owner.state is not StepState.AWAITING_CHILDREN, name, "{} awaits nothing", owner.no)


def was_skipped_by_person(row: Step) -> bool:
    """Whether the last decision on record about a step skips it."""
    return _decision_on(row) == "skipped"


def _decision_on(row: Step) -> str | None:
    record = None if row.note is None or row.note.record is None else msgspec.json.decode(row.note.record)
    return record.get("decision") if isinstance(record, dict) else None


def _added_are_counted(segment: Segment, run: Run, rows: Rows) -> None:
    """I19: a step awaits the unsettled steps that its handler added, and each of these waits for those before it."""
    owner, name = rows[segment.owner], "I19 added steps are counted"
    added = [row for no, row in sorted(rows.items()) if segment.first <= no < segment.first + segment.width]
    unsettled = sum(row.state not in STEP_TERMINAL for row in added)
    if owner.state is not StepState.AWAITING_CHILDREN:
        must(unsettled == 0 or run.state is RunState.STOPPING, name, "{} ended before {} steps", owner.no, unsettled)
    else:
        grown = None if owner.note is None else owner.note.grown
        must(grown is not None and len(added) == grown.count, name, "{} has {} steps", owner.no, len(added))
        must(owner.unmet == unsettled > 0, name, "{} awaits {} of {}", owner.no, owner.unmet, unsettled)
    for row in added if owner.state is StepState.SUCCEEDED else ():
        call = None if row.note is None else row.note.call
        may_skip = call is None or row.category is None or template_of(call.step).on_failure is OnFailure.SKIP
        may_skip |= was_skipped_by_person(row)
        borne = row.state is StepState.SUCCEEDED or (row.state is StepState.SKIPPED and may_skip)
        must(borne, name, "{} succeeded, and {} is {}", owner.no, row.no, row.state)
    unmet = dict.fromkeys([row.no for row in added], 0)
    for row in added:
        if row.note is None or row.note.call is None:
            continue
        for edge in row.note.call.followers:
            follower = rows.get(segment.element(edge.place))
            if follower is None:
                # The rollback run of a child adopts only the steps that left something.
                must(row.note.adopted is not None, name, "{} has no row of a step after it", row.no)
                continue
            unmet[follower.no] += row.state not in edge.allow
            began = follower.state not in (StepState.PENDING, StepState.SKIPPED, StepState.CANCELLED)
            must(row.state in edge.allow or not began, name, "{} began before {} ended", follower.no, row.no)
    for row in added:
        waits = row.state is not StepState.PENDING or row.unmet == unmet[row.no] > 0
        must(waits, name, "{} waits for {} steps, not {}", row.no, unmet[row.no], row.unmet)


def is_open(row: Step) -> bool:
    """Whether a worker holds the step and its handler has not answered yet."""
    return row.worker is not None and not (row.note is not None and row.note.checked == row.fence)


def hooked(plan: Plan, rows: Rows) -> list[Step]:
    """The main steps that a rollback has to undo, the one that settled last first."""
    found = [row for row in done(plan, rows) if plan.undo_for(row) is not None]
    return sorted(found, key=lambda row: row.settled or 0, reverse=True)


def done(plan: Plan, rows: Rows) -> list[Step]:
    """The main steps whose effect happened, or may have happened where the definition says that this counts."""
    return [row for row in rows.values() if _may_act(plan, row) and _is_done(plan, row) and not _is_anothers(row)]


def _is_anothers(row: Step) -> bool:
    """Whether an earlier run did what this step stands for, and this run does not own the undo of it."""
    adopted = None if row.note is None else row.note.adopted
    return adopted is not None and not adopted.owned


def _may_act(plan: Plan, row: Step) -> bool:
    """Whether a step can have an effect: a main step, or an element. The owner of elements does nothing itself."""
    planned = plan.of(row)
    return planned.phase is Phase.MAIN and planned.segment is None


def _is_done(plan: Plan, row: Step) -> bool:
    attempted = plan.of(row).definition.compensate_when is CompensateWhen.ATTEMPTED
    unrun = row.fence == 1 and (row.error or "").startswith("NOT_RUN")
    is_owned = row.note is not None and row.note.adopted is not None and row.note.adopted.owned
    return row.state is StepState.SUCCEEDED or is_owned or (attempted and row.fence > 0 and not unrun)


def _is_unknown(plan: Plan, row: Step) -> bool:
    """Whether a main step may have had an effect that the rollback does not undo.

    Its handler completed and its rules did not pass. Or its attempt was closed in flight or lost its lease, and no
    later attempt failed by a report.
    """
    definition = plan.of(row).definition
    harmless = definition.effect is Effect.READ and definition.undo is None
    checked = row.note is not None and row.note.checked is not None
    unknown = checked or (row.error or "").startswith(("IN_DOUBT", "LEASE_EXPIRED", "EFFECTS_LEFT"))
    if row.note is not None and row.note.adopted is not None and row.note.adopted.remains is not None:
        return True
    return not harmless and not _is_done(plan, row) and unknown


def _counters_are_counts(plan: Plan, run: Run, rows: Rows, inbox: Collection[str]) -> None:
    found, size, name = rows.values(), plan.size, "I9 counters are counts"
    counted = (
        sum(row.no < size and row.state not in STEP_TERMINAL for row in found),
        sum(row.state in STEP_MOVING for row in found),
        sum(row.worker is not None for row in found),
        sum(plan.of(row).phase is Phase.UNDO and row.state not in STEP_TERMINAL for row in found),
        len(inbox),
    )
    kept = (run.open, run.moving, run.leased, run.undoing, run.inbox)
    must(counted == kept, name, "open, moving, leased, undoing, inbox of {} are {}, not {}", run.id, counted, kept)
    failed = sum(
        row.no < size and row.state is StepState.FAILED and plan.of(row).on_failure is OnFailure.CONTINUE
        for row in found
    )
    right = run.failed == failed if run.state in BEFORE_STOPPING else run.failed <= failed
    must(right, name, "{} steps of {} failed and let it continue, not {}", failed, run.id, run.failed)


def _cause_to_progress(plan: Plan, run: Run, rows: Rows) -> None:
    """Promise 6: a ready step, a live lease, a timer, or a declared wait; and the run's state says which."""
    found, name = rows.values(), "I12 a cause to progress"
    if run.state in RUN_TERMINAL:
        must(all(row.state in STEP_TERMINAL for row in found), name, "run {} has ended, a step has not", run.id)
        must(run.due_at is None and run.ended_at is not None, name, "run {} has ended and has a timer", run.id)
        return
    must(run.ended_at is None, name, "run {} has an end and is {}", run.id, run.state)
    runnable = [row for row in found if row.state in STEP_MOVING]
    if run.state is RunState.IDLE:
        must(all(row.state is StepState.PENDING for row in found), name, "run {} is idle, yet steps changed", run.id)
        return
    if run.state is RunState.BLOCKED:
        waits = any(row.state in STEP_WAITING for row in found)
        must(not runnable and waits, name, "run {} is blocked by nothing", run.id)
    elif run.state is RunState.STOPPING:
        in_flight = [row for row in found if row.worker is not None or row.state is StepState.AWAITING_CHILDREN]
        right = bool(in_flight) and run.due_at is not None
        must(right, name, "run {} is stopping with no attempt or no grace period", run.id)
        left = [row.no for row in found if row.state not in STEP_TERMINAL and row not in in_flight]
        must(not left, name, "run {} is stopping, yet {} are left to be run", run.id, left)
    elif run.state is RunState.QUEUED and not runnable:
        must(awaits_slot(plan, rows), name, "run {} is queued, no step is runnable, and it awaits no slot", run.id)
    elif run.state is not RunState.PAUSED:
        rolls_back = run.state is RunState.COMPENSATING and any(
            (row.state is StepState.AWAITING_CHILDREN or is_exhausted(row)) and plan.at(row.no).phase is Phase.UNDO
            for row in found
        )
        must(bool(runnable) or rolls_back, name, "run {} is {}, and no step is runnable", run.id, run.state)
    for row in runnable:
        must(row.ready_at is not None or row.due_at is not None, name, "nothing ever changes step {}", row.no)
    held = [
        row.no for row in found if row.ready_at is not None and (row.ready_at == FAR) != (run.state is RunState.PAUSED)
    ]
    for row in found:
        if row.ready_at is not None and row.ready_at != FAR:
            needs = plan.of(row).phase is Phase.MAIN and (
                bool(plan.of(row).definition.resources or plan.of(row).definition.limits) or _has_duties(plan, row)
            )
            right = (row.ready_at >= AWAITS_RESOURCES) == needs
            must(right, name, "step {} is set aside without need, or is claimed like any other", row.no)
    must(not held, name, "run {} is {}, and {} can be claimed when they must not, or never", run.id, run.state, held)
    forgotten = [row.no for row in found if row.state is StepState.PENDING and row.no < plan.size and row.unmet <= 0]
    must(not forgotten, name, "{} of run {} wait for nothing and were not opened", forgotten, run.id)
    timed = plan.definition.timeout is None or run.due_at is not None or run.state is RunState.COMPENSATING
    must(timed, name, "run {} is {} and has lost its timeout", run.id, run.state)


def _has_duties(plan: Plan, row: Step) -> bool:
    """Whether the definition limits who executes this step, or the one that it stands below."""
    planned, definition = plan.of(row), plan.definition
    name = planned.name if planned.owner is None else plan.steps[planned.owner].name
    gates = [gate for step in definition.steps for gate in (step.approval, step.hold) if gate is not None]
    among = [duty.steps for duty in definition.duties or () if isinstance(duty, Incompatible)]
    return any(name in steps for steps in among) or any(f"executed:{name}" in gate.excluded for gate in gates)


def awaits_slot(plan: Plan, rows: Rows) -> bool:
    """Whether nothing of a run has begun, because its first steps count the slot that it waits for."""
    begun = [row for row in rows.values() if row.state is not StepState.PENDING and not _is_adopted(row)]
    return not begun and any(row.unmet > plan.steps[row.no].unmet for row in rows.values())


def _is_adopted(row: Step) -> bool:
    return row.note is not None and row.note.adopted is not None


def _tries_code(plan: Plan, row: Step) -> bool:
    """Whether the row is a flow that waits for other code."""
    return plan.of(row).kind.is_flow and row.note is not None and bool(row.note.tried)


def _row_is_sound(plan: Plan, row: Step) -> None:
    """I10, and the shape of a lease."""
    retry, leased, limits, shape = plan.of(row).retry, row.worker is not None, "I10 limits", "leases are whole"
    # A retry by a person begins a new budget; what was spent before is no part of it.
    used = row.attempts - (0 if row.note is None else row.note.spent)
    # A step that a person completed when no loss was left may be lost once more, with its rules; that ends it.
    most = retry.max_losses + (row.losses > retry.max_losses and _decision_on(row) == "completed")
    within = 0 <= used <= retry.max_attempts and row.losses <= most
    must(within, limits, "step {}: {} attempts, {} losses", row.no, used, row.losses)
    spent = used == retry.max_attempts or row.losses == retry.max_losses
    must(not (spent and row.state in TO_BE_TRIED), limits, "step {} is {} with nothing left", row.no, row.state)
    is_lost = row.category is Category.POISON and (row.error or "").startswith("LEASE_EXPIRED")
    is_given_up = is_lost and (row.state is StepState.FAILED or is_exhausted(row))
    only_losses_count = retry.counts_losses is False and retry.max_elapsed is msgspec.UNSET
    must(
        not (is_given_up and only_losses_count) or row.losses == retry.max_losses,
        limits,
        "step {} is given up after {} losses, which are no attempts",
        row.no,
        row.losses,
    )
    must(
        not is_exhausted(row) or plan.of(row).stays_exhausted or _tries_code(plan, row),
        limits,
        "step {} holds, and its definition does not say so",
        row.no,
    )
    must(leased == (row.claimed_at is not None), shape, "step {}", row.no)
    runs = row.due_at is not None and row.state in (StepState.RUNNING, StepState.VALIDATING)
    must(not leased or runs, shape, "step {} is leased and does not run", row.no)
    ready = row.state in (StepState.READY, StepState.VALIDATING) and not leased
    must(row.ready_at is None or ready, shape, "step {} can be claimed while it is {}", row.no, row.state)
    must((row.settled is not None) == (row.state in STEP_TERMINAL), shape, "step {} settled and is open", row.no)
    if row.state is StepState.AWAITING_COMPLETION:
        must(row.note is not None and bool(row.note.token), shape, "step {} waits for no token", row.no)


def _messages_are_delivered(plan: Plan, run: Run, rows: Rows, inbox: Collection[str]) -> None:
    """I6: no step waits for a message that is in the inbox."""
    if run.state not in (RunState.RUNNING, RunState.BLOCKED, RunState.PAUSED):
        return
    for row in rows.values():
        if row.state is StepState.AWAITING_EVENT and not plan.of(row).kind.sleeps and not _may_refuse(plan, row):
            event = None if row.note is None else row.note.event
            must(event is not None and event not in inbox, "I6 no lost wake-up", "step {} waits for {}", row.no, event)


def _may_refuse(plan: Plan, row: Step) -> bool:
    """Whether a message of the name that it waits for may stay in the inbox: a filter refused it, or it has many."""
    wait = plan.of(row).definition.wait
    if wait is None and row.note is not None:
        wait = row.note.takes
    many = row.note is not None and len(row.note.gathered) >= 100
    return wait is not None and (isinstance(wait.accepts, str) or many)


def _rollback_is_right(plan: Plan, run: Run, rows: Rows) -> None:
    """I7: undo steps exist for exactly what is to be undone, and run one by one, last completed first."""
    name = "I7 completed steps are undone, last first"
    undo = {no: row for no, row in rows.items() if plan.at(no).phase is Phase.UNDO}
    if not undo:
        must(run.state not in (RunState.COMPENSATING, RunState.ROLLED_BACK), name, "{} undoes nothing", run.id)
        if run.state in (RunState.FAILED, RunState.CANCELLED) and run.policy is OnFailure.COMPENSATE:
            left = [row.no for row in hooked(plan, rows)]
            must(not left, name, "{} of run {} were to be undone", left, run.id)
        return
    allowed = (RunState.COMPENSATING, RunState.ROLLED_BACK, RunState.FAILED)
    must(run.state in allowed, name, "run {} has undo steps and is {}", run.id, run.state)
    order = [plan.undo_no(row.no) for row in hooked(plan, rows)]
    must(sorted(undo) == sorted(order), name, "run {} undoes {}, not {}", run.id, sorted(undo), sorted(order))
    rest = [undo[no] for no in order]
    while rest and rest[0].state in STEP_TERMINAL:
        rest.pop(0)
    pending = [row.state is StepState.PENDING for row in rest]
    must(not rest or (not pending[0] and all(pending[1:])), name, "undo steps are out of order: {}", rest)
    effects = (plan.of(row).definition.effect for row in done(plan, rows) if plan.undo_for(row) is None)
    whole = all(row.state is StepState.SUCCEEDED for row in undo.values()) and all(e is Effect.READ for e in effects)
    whole = whole and not any(_is_unknown(plan, row) for row in rows.values() if _may_act(plan, row))
    if run.state in RUN_TERMINAL:
        ended = run.state is RunState.ROLLED_BACK
        must(ended == whole, name, "run {} ended {}, and the rollback is whole: {}", run.id, run.state, whole)
        expected = Rollback.COMPLETE if whole else Rollback.PARTIAL
        must(run.rollback is expected, name, "run {} calls its rollback {}, not {}", run.id, run.rollback, expected)
