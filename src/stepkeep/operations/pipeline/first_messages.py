"""Decides on the first events of a run in the transaction that creates it: the pause of its workflow, the messages that
were kept for its business key, and the sender's own.

The kernel decides on each as on any event; the journal has them in an entry after the creation. It reads no store.
`start.py` and `by_key.py` call it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from stepkeep.kernel.decide.decide import decide
from stepkeep.kernel.decide.decision import Decision, Need, Reply, Snapshot
from stepkeep.kernel.decide.draft import Missing
from stepkeep.kernel.decide.policy import Policy
from stepkeep.kernel.machine.events import MessageArrived, PauseRequested
from stepkeep.kernel.machine.rows import Consumed, Gate, GateChange, Message, Origin, Rows, Run
from stepkeep.kernel.plan import Plan
from stepkeep.store.change import Loaded, NewRun
from stepkeep.store.deliveries import Takes
from stepkeep.store.rows import Delivery, MailboxMessage

DAY = 86_400_000_000
KEEP_US = 7 * DAY
"""How long a message is kept for a run, unless the sender says otherwise, and the id of a delivered one at least."""


class FirstEvents(msgspec.Struct, frozen=True):
    """A new run after its first events, and the kernel's reply to each."""

    new: NewRun
    replies: tuple[Reply, ...]


def kept_event(message: MailboxMessage, run_id: str) -> MessageArrived:
    """The event that takes a kept message out of the mailbox. Its sender was admitted when it was sent."""
    assert message.payload is not None
    return MessageArrived(
        tenant=message.tenant,
        run_id=run_id,
        actor=message.sender,
        vouched_by=message.vouched_by,
        key=message.key_id,
        id=message.id,
        name=message.name,
        payload=message.payload,
        kept_at=message.arrived_at,
    )


def delivered(message: MailboxMessage, run_id: str, now: int) -> MailboxMessage:
    """The row of a message after its delivery: its id is kept on, the payload is in the run's inbox."""
    return replace(message, payload=None, run_id=run_id, forget_at=max(message.forget_at, now + KEEP_US))


def with_events(
    new: NewRun,
    plan: Plan,
    events: Sequence[PauseRequested | MessageArrived],
    loaded: Loaded,
    policy: Policy | None,
    spend: Mapping[str, Mapping[str, float]],
) -> FirstEvents:
    """The new run after these events. Raises Missing if a decision needs the standing of a person."""
    run = new.run
    snapshot = Snapshot(
        plan=plan,
        run=run,
        steps={step.no: step for step in new.steps},
        whole=True,
        waiting=True,
        inbox=(),
        outputs=dict.fromkeys(range(plan.size)),
        input=new.details.input,
        authorities=loaded.authorities,
        policy=policy,
        origin=Origin(new.details.created_by, new.details.labels),
        costs=(),
        spend=spend,
    )
    decision = decide(snapshot, events, loaded.now)
    if isinstance(decision, Need):
        raise Missing(decision)
    return FirstEvents(_merged(new, decision), decision.replies)


def _merged(new: NewRun, decision: Decision) -> NewRun:
    if decision.entry is None:
        return new
    changed = {step.no: step for step in decision.changed}
    messages = {message.id: message for message in decision.rows.of(Message)}
    for taken in decision.rows.of(Consumed):
        messages[taken.id] = replace(messages[taken.id], consumed_by=taken.consumed_by)
    gates = {(gate.no, gate.activation): gate for gate in (*new.rows.of(Gate), *decision.rows.of(Gate))}
    for change in decision.rows.of(GateChange):
        place = (change.no, change.activation)
        gates[place] = replace(
            gates[place], level=change.level, due_at=change.due_at, closed_at=change.closed_at, outcome=change.outcome
        )
    cursors = [_advanced(one, decision.run, decision.entry.at) for one in new.rows.of(Delivery)]
    rows = Rows()
    rows.take(new.rows)
    rows.take(decision.rows)
    rows.put(Message, messages.values())
    rows.put(Consumed, ())
    rows.put(Gate, gates.values())
    rows.put(GateChange, ())
    rows.put(Delivery, cursors)
    return replace(
        new,
        run=decision.run,
        steps=(*(changed.get(step.no, step) for step in new.steps), *decision.added),
        entries=(*new.entries, decision.entry),
        rows=rows,
    )


def _advanced(cursor: Delivery, run: Run, now: int) -> Delivery:
    """A cursor that the run brings itself, after its first events: they may have ended the run."""
    is_due = cursor.takes & Takes.COURSE or (cursor.takes & Takes.ENDINGS and run.ended_at is not None)
    return replace(cursor, last=run.seq, ready_at=cursor.ready_at or now) if is_due else cursor
