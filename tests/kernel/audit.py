"""What must be true of each decision, beside the invariants of rows and journal that the laboratory has.

`before` checks a decision against the rows it replaces, `fold` replays its journal entry, `everything` checks the whole
run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from stepkeep.kernel.decide.decision import Accepted, Decision
from stepkeep.kernel.machine.events import Event, FlowResumed, StepCheckpointed, StepClaimed, StepReported
from stepkeep.kernel.machine.journal import Entry
from stepkeep.kernel.machine.rows import HOT_OF_RUN, HOT_OF_STEP, Consumed, Message, Run, Step
from stepkeep.kernel.machine.states import RUN_TERMINAL, STEP_TERMINAL
from stepkeep_lab.invariants.journal import Arrow
from stepkeep_lab.invariants.rows import check_rows

if TYPE_CHECKING:
    from tests.kernel.driver import World

produced: set[Arrow] = set()
"""Every (machine, state, trigger) that was ever folded in this process."""


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
    if decision.only_hot:
        _only_moves(world, decision)
    for attempt in decision.attempts:
        assert (attempt.no, attempt.fence) not in world.attempts, "two outcomes were accepted for one claim"
    for message in decision.rows.of(Message):
        assert message.id not in world.messages, "a message was kept twice"
    own = {message.id for message in decision.rows.of(Message)}
    for taken in decision.rows.of(Consumed):
        kept = world.messages.get(taken.id)
        assert taken.id in own if kept is None else kept.consumed_by is None, "a message was consumed twice"
    for row in decision.claimed:
        assert row.worker is not None, "a worker was told that it holds what it does not hold"
    assert len({row.no for row in decision.claimed}) == len(decision.claimed)


def believed(world: World, events: Sequence[Event], decision: Decision) -> None:
    """I3: a report that was accepted came from the holder of the latest claim, before its lease ran out."""
    claimed_now = {event.no for event in events if isinstance(event, StepClaimed)}
    for event, reply in zip(events, decision.replies, strict=True):
        is_of_worker = isinstance(event, StepReported | StepCheckpointed)
        if isinstance(event, FlowResumed) and isinstance(reply, Accepted):
            row = world.rows[event.no]
            assert (row.worker, row.fence + 1) == (None, event.fence), "a flow was resumed that was held"
        elif is_of_worker and isinstance(reply, Accepted) and event.no not in claimed_now:
            row = world.rows[event.no]
            assert (row.worker, row.fence) == (event.worker, event.fence), "a stranger was believed"
            assert row.due_at is not None
            assert row.due_at >= world.now, "a worker was believed after its lease"


def fold(world: World, entry: Entry) -> None:
    """Replay one entry hop by hop."""
    produced.update(world.fold.take(entry))
    world.hops += entry.hops


def everything(world: World) -> None:
    """All that can be said about a run between two decisions."""
    settled = [row.settled for row in world.rows.values() if row.settled is not None]
    assert len(set(settled)) == len(settled), "two steps settled in one hop"
    world.fold.check(world.run, world.rows, world.attempts.keys())
    check_rows(world.plan, world.run, world.rows, [message.name for message in world.inbox()])
