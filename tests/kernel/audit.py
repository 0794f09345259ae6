"""What must be true of a run after every decision, worked out from its rows and its journal and from nothing else.

The kernel keeps counters, timers and states as it goes; here each is counted again from scratch. `before` looks at a
decision against the rows it replaces, `fold` replays its journal entry, `everything` looks at the whole run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from stepkeep.kernel.decision import Accepted, Decision
from stepkeep.kernel.definition import CompensateWhen, Effect
from stepkeep.kernel.events import Event, StepClaimed, StepReported
from stepkeep.kernel.journal import RUN_ENTITY, Entry, Hop
from stepkeep.kernel.rows import HOT_OF_RUN, HOT_OF_STEP, Run, Step
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
from stepkeep.kernel.tables import RUN, STEP, RunTrigger, StepTrigger

if TYPE_CHECKING:
    from tests.kernel.driver import World

produced: set[tuple[str, str | None, str]] = set()
"""Every (machine, state, trigger) that was ever folded in this process."""

BEFORE_STOPPING = frozenset({RunState.QUEUED, RunState.RUNNING, RunState.BLOCKED, RunState.VALIDATING})


def _only_moves(world: World, decision: Decision) -> None:
    """A store that is promised that rows only move writes no other column."""
    assert not decision.added
    rest_of_run = [name for name in Run.__struct_fields__ if name not in HOT_OF_RUN]
    rest_of_step = [name for name in Step.__struct_fields__ if name not in HOT_OF_STEP]
    assert [name for name in rest_of_run if getattr(decision.run, name) != getattr(world.run, name)] == []
    for row in decision.changed:
        old = world.rows[row.no]
        assert [name for name in rest_of_step if getattr(row, name) != getattr(old, name)] == []
    assert all(attempt.category is None and attempt.error is None for attempt in decision.attempts)


def before(world: World, decision: Decision) -> None:
    """Promises 2, 3 and 7: what a decision may do to the rows it was read from."""
    known = world.run
    assert decision.was == known.seq
    if decision.entry is None:
        assert decision == Decision(was=known.seq, run=known, replies=decision.replies), "changed without a record"
        return
    assert known.state not in RUN_TERMINAL, "a run that had ended was changed"
    entry = decision.entry
    assert (entry.seq, entry.at) == (known.seq + 1, world.now)
    assert decision.run.seq == entry.seq
    assert decision.run.head == entry.hash == hashlib.sha256(known.head + entry.body).digest()
    for row in decision.added:
        assert row.no not in world.rows, "a row was added twice"
    for row in decision.changed:
        old = world.rows[row.no]
        assert old.state not in STEP_TERMINAL, "a step that had ended was changed"
        assert row.fence >= old.fence
    if decision.only_moves:
        _only_moves(world, decision)
    for attempt in decision.attempts:
        assert (attempt.no, attempt.fence) not in world.attempts, "two outcomes were accepted for one claim"
    for message in decision.messages:
        assert message.id not in world.messages, "a message was kept twice"
    own = {message.id for message in decision.messages}
    for message in decision.consumed:
        kept = world.messages.get(message.id)
        assert message.consumed_by is not None
        assert message.id in own if kept is None else kept.consumed_by is None, "a message was consumed twice"
    for row in decision.claimed:
        assert row.worker is not None, "a worker was told that it holds what it does not hold"
    assert len({row.no for row in decision.claimed}) == len(decision.claimed)


def believed(world: World, events: Sequence[Event], decision: Decision) -> None:
    """I3: a report that was accepted came from the holder of the latest claim, before its lease ran out."""
    claimed_now = {event.no for event in events if isinstance(event, StepClaimed)}
    for event, reply in zip(events, decision.replies, strict=True):
        if isinstance(event, StepReported) and isinstance(reply, Accepted) and event.no not in claimed_now:
            row = world.rows[event.no]
            assert (row.worker, row.fence) == (event.worker, event.fence), "a stranger was believed"
            assert row.due_at is not None
            assert row.due_at >= world.now, "a worker was believed after its lease"


def fold(world: World, entry: Entry) -> None:
    """Replay one entry hop by hop: every hop is a row of its table and starts where the last one ended."""
    assert entry.seq == len(world.bodies)
    for hop in entry.hops:
        is_run = hop.no == RUN_ENTITY
        source = world.folded.get(hop.no)
        assert hop.source == source, f"{hop} does not start where the step is ({source})"
        if is_run:
            assert RUN.target(_run_state(source), RunTrigger(hop.trigger)) == hop.target
        else:
            assert STEP.target(_step_state(source), StepTrigger(hop.trigger)) == hop.target
        assert 0 <= hop.by < len(entry.causes)
        produced.add(("run" if is_run else "step", hop.source, hop.trigger))
        if not is_run:
            _fold_step(world, hop)
        world.folded[hop.no] = hop.target
        world.hops.append(hop)


def _run_state(text: str | None) -> RunState | None:
    return None if text is None else RunState(text)


def _step_state(text: str | None) -> StepState | None:
    return None if text is None else StepState(text)


def _fold_step(world: World, hop: Hop) -> None:
    planned = world.plan.at(hop.no)
    if hop.trigger == StepTrigger.CLAIMED:
        fence = world.fences[hop.no] = world.fences.get(hop.no, 0) + 1
        assert hop.fence == fence, "fences grow by one with every claim"
        world.claims.append((hop.no, fence))
        assert planned.executor is not None, "workers never claim gates and waits"
        if planned.phase is Phase.MAIN:
            _dependencies_settled(world, hop.no)
    if hop.source == StepState.AWAITING_APPROVAL and hop.target in (StepState.FAILED, StepState.SKIPPED):
        world.refused.add(hop.no)
    if hop.target == StepState.FAILED and planned.phase is Phase.MAIN and planned.on_failure is OnFailure.CONTINUE:
        world.failed_on += world.folded[RUN_ENTITY] in BEFORE_STOPPING


def _dependencies_settled(world: World, no: int) -> None:
    """I4: what is claimed has every dependency settled in a way that its edge allows, and no gate refused."""
    for edge in world.plan.steps[no].definition.depends_on:
        other = world.no(edge.step)
        assert world.folded[other] in edge.allow, f"{edge.step} is {world.folded[other]}, which {no} does not allow"
        assert other not in world.refused, f"{edge.step} was refused by its approvers, and yet {no} is claimed"


def everything(world: World) -> None:
    """All that can be said about a run at rest."""
    rows_are_folds(world)
    counters_are_counts(world)
    there_is_a_cause_to_move(world)
    limits_hold(world)
    claims_are_accounted_for(world)
    messages_are_delivered(world)
    rollback_is_right(world)


def rows_are_folds(world: World) -> None:
    states = {no: str(row.state) for no, row in world.rows.items()}
    assert states | {RUN_ENTITY: str(world.run.state)} == world.folded
    settled = [row.settled for row in world.rows.values() if row.settled is not None]
    assert len(set(settled)) == len(settled), "two steps settled at one place"


def counters_are_counts(world: World) -> None:
    rows, size, run = world.rows.values(), world.plan.size, world.run
    assert run.open == sum(row.no < size and row.state not in STEP_TERMINAL for row in rows)
    assert run.moving == sum(row.state in STEP_MOVING for row in rows)
    assert run.leased == sum(row.worker is not None for row in rows)
    assert run.undoing == sum(size <= row.no < 2 * size and row.state not in STEP_TERMINAL for row in rows)
    assert run.inbox == sum(message.consumed_by is None for message in world.messages.values())
    assert run.failed == world.failed_on


def there_is_a_cause_to_move(world: World) -> None:
    """Promise 6: a ready step, a live lease, a timer, or a declared wait; and the run's state says which."""
    run, rows = world.run, world.rows.values()
    if run.state in RUN_TERMINAL:
        assert all(row.state in STEP_TERMINAL for row in rows)
        assert run.due_at is None
        assert run.ended_at is not None
        return
    assert run.ended_at is None
    moving = [row for row in rows if row.state in STEP_MOVING]
    if run.state is RunState.IDLE:
        assert all(row.state is StepState.PENDING for row in rows)
    elif run.state is RunState.BLOCKED:
        assert not moving
        assert any(row.state in STEP_WAITING for row in rows)
    elif run.state is RunState.STOPPING:
        assert any(row.worker is not None for row in rows), "a stopping run with nothing in flight"
        assert run.due_at is not None
        assert all(row.state in STEP_TERMINAL or row.worker is not None for row in rows)
    else:
        assert moving, f"nothing moves in a run that is {run.state}"
    for row in moving:
        assert row.ready_at is not None or row.due_at is not None, f"nothing ever moves {row}"
    for row in rows:
        if row.state is StepState.PENDING and run.state is not RunState.IDLE and row.no < world.plan.size:
            assert row.unmet > 0, "a step with nothing left to wait for was not opened"


def limits_hold(world: World) -> None:
    """I10, and the shape of a lease."""
    for row in world.rows.values():
        planned = world.plan.at(row.no)
        assert row.attempts <= planned.retry.max_attempts
        assert row.losses <= planned.retry.max_losses
        leased = row.worker is not None
        assert leased == (row.claimed_at is not None)
        assert leased <= (row.due_at is not None and row.state in (StepState.RUNNING, StepState.VALIDATING))
        assert (row.ready_at is not None) <= (row.state in (StepState.READY, StepState.VALIDATING) and not leased)
        assert (row.settled is not None) == (row.state in STEP_TERMINAL)
        if row.state is StepState.AWAITING_COMPLETION:
            assert row.note is not None
            assert row.note.token


def claims_are_accounted_for(world: World) -> None:
    """Promise 3: every claim ends in exactly one attempt, or is held this moment."""
    held = {(row.no, row.fence) for row in world.rows.values() if row.worker is not None and not _checked(row)}
    assert len(set(world.claims)) == len(world.claims)
    assert set(world.claims) == set(world.attempts) | held
    assert not set(world.attempts) & held


def _checked(row: Step) -> bool:
    return row.note is not None and row.note.checked == row.fence


def messages_are_delivered(world: World) -> None:
    """I6: nobody waits for a message that lies in the inbox."""
    if world.run.state in (RunState.RUNNING, RunState.BLOCKED):
        kept = {message.name for message in world.inbox()}
        for row in world.rows.values():
            if row.state is StepState.AWAITING_EVENT:
                assert row.note is not None
                assert row.note.event not in kept


def rollback_is_right(world: World) -> None:
    """I7: hooks exist for exactly what is to be undone, and run one by one, last completed first."""
    size, run = world.plan.size, world.run
    hooks = {no: row for no, row in world.rows.items() if size <= no < 2 * size}
    if not hooks:
        assert run.state not in (RunState.COMPENSATING, RunState.ROLLED_BACK)
        return
    assert run.state in (RunState.COMPENSATING, RunState.ROLLED_BACK, RunState.FAILED)
    done = [world.rows[no] for no in range(size) if _is_done(world, world.rows[no])]
    hooked = [row for row in done if world.plan.undo_of(row.no) is not None]
    order = [row.no + size for row in sorted(hooked, key=lambda row: row.settled or 0, reverse=True)]
    assert sorted(hooks) == sorted(order)
    opened = [hop.no for hop in world.hops if hop.no in hooks and hop.trigger == StepTrigger.DEPENDENCIES_MET]
    assert opened == order[: len(opened)], "hooks run out of order, or twice"
    assert all(hooks[no].state in STEP_TERMINAL for no in opened[:-1]), "two hooks at once"
    left = any(world.plan.steps[row.no].definition.effect is not Effect.READ for row in done if row not in hooked)
    if run.state is RunState.ROLLED_BACK:
        assert all(row.state is StepState.SUCCEEDED for row in hooks.values())
        assert not left
        assert run.rollback is Rollback.COMPLETE
    if run.state is RunState.FAILED:
        assert left or any(row.state is not StepState.SUCCEEDED for row in hooks.values())
        assert run.rollback is Rollback.PARTIAL


def _is_done(world: World, row: Step) -> bool:
    attempted = world.plan.steps[row.no].definition.compensate_when is CompensateWhen.ATTEMPTED
    return row.state is StepState.SUCCEEDED or (attempted and row.fence > 0)
