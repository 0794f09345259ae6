"""Fires triggers for the ends of runs: notes the runs that live when a trigger is added, and decides about noted ends.

The transaction that ends a run notes it, as an awaiting firing, for every trigger that is about its workflow; so no end
is missed, whatever is killed. A transaction that was under way when the trigger was added may not see it: the runs that
live then are noted before the addition is acknowledged. Sweeps and `manage` call it; it writes nothing but such notes.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from stepkeep.kernel.decide.decision import asked_names, requesters_of
from stepkeep.kernel.errors import Contended, ExpressionError
from stepkeep.kernel.triggers import TriggerSpec
from stepkeep.operations.pipeline.group_commit import MAX_CONFLICT_RETRIES
from stepkeep.operations.triggers.chain import depth_after, too_deep
from stepkeep.operations.triggers.firing import MAX_REASON, Firer, OutsideEvent, spec_of
from stepkeep.operations.triggers.inputs import holds, input_of
from stepkeep.operations.triggers.plan import Planned, new_firing, skipped
from stepkeep.store.rows import (
    Firing,
    FiringState,
    TriggerKey,
    TriggerRow,
    Watched,
)

ENDINGS_AT_ONCE = 20
SKIPPED_AT_ONCE = 200
NOTED_AT_ONCE = 500

_FIRST = "00000000-0000-0000-0000-000000000000"


class Endings(msgspec.Struct, frozen=True, kw_only=True):
    """What a sweep found: firings to decide about, what is only recorded, and whether more ends are noted."""

    arrived: tuple[Firing, ...] = ()
    noted: tuple[Firing, ...] = ()
    has_more: bool = False


async def endings(firer: Firer, row: TriggerRow, spec: TriggerSpec, now: int) -> Endings:
    """What comes of noted ends. Those of a pause are skipped; those before it wait until it is over."""
    if spec.ended is None or row.removed_at is not None:
        return Endings()
    if row.paused_at is not None:
        return Endings(noted=await _ends_of_pause(firer, row, now))
    ended = await firer.transactor.store.triggers.read_endings(row.tenant, row.name, ENDINGS_AT_ONCE)
    decided = [await _ended(firer, row, spec, one, now) for one in ended]
    return Endings(
        arrived=tuple(one for one in decided if one.state is FiringState.WAITING),
        noted=tuple(one for one in decided if one.state is not FiringState.WAITING),
        has_more=len(ended) == ENDINGS_AT_ONCE,
    )


async def note_living(firer: Firer, key: TriggerKey) -> None:
    """Note the runs that live now for a trigger that is about their ends, unless that was done. A kill in between does
    no harm: the next sweep goes on."""
    triggers = firer.transactor.store.triggers
    conflicts = 0
    while conflicts < MAX_CONFLICT_RETRIES:
        row = await triggers.read(*key)
        if row is None or row.cursor_at is None or row.removed_at is not None:
            return
        ended = spec_of(row).ended
        found = [] if ended is None else await triggers.find_unseen(*key, ended.workflow, _FIRST, NOTED_AT_ONCE)
        now = await firer.transactor.store.now()
        noted = tuple(
            replace(new_firing(row, run_id, now, now), state=FiringState.AWAITING, source=run_id) for run_id in found
        )
        is_done = len(found) < NOTED_AT_ONCE
        after = replace(row, seq=row.seq + 1, cursor_at=None if is_done else row.cursor_at)
        if await firer.carry_out(row, Planned(row=after, records=noted)) is None:
            conflicts += 1
    raise Contended(f"the trigger {key[1]} is changed by many processes at once: try again")


async def leave_out_pause(firer: Firer, key: TriggerKey) -> None:
    """Skip the ends of a pause on record, before it ends."""
    conflicts = 0
    while conflicts < MAX_CONFLICT_RETRIES:
        row = await firer.transactor.store.triggers.read(*key)
        if row is None or row.paused_at is None or spec_of(row).ended is None:
            return
        left_out = await _ends_of_pause(firer, row, await firer.transactor.store.now())
        if not left_out:
            return
        if await firer.carry_out(row, Planned(row=replace(row, seq=row.seq + 1), records=left_out)) is None:
            conflicts += 1
    raise Contended(f"the trigger {key[1]} is changed by many processes at once: try again")


async def _ends_of_pause(firer: Firer, row: TriggerRow, now: int) -> tuple[Firing, ...]:
    assert row.paused_at is not None
    found = []
    for one in await firer.transactor.store.triggers.read_endings(row.tenant, row.name, SKIPPED_AT_ONCE):
        record = await firer.transactor.store.read_run(row.tenant, str(one.firing.source))
        ended_at = None if record is None else record.run.ended_at
        if ended_at is None or ended_at >= row.paused_at:
            found.append(skipped(replace(one.firing, due_at=now), "the run ended while the trigger was paused"))
    return tuple(found)


async def _ended(firer: Firer, row: TriggerRow, spec: TriggerSpec, one: Watched, now: int) -> Firing:
    """The firing for a run that has ended: to be decided about, or skipped with the reason."""
    assert spec.ended is not None
    firing = replace(one.firing, due_at=now)
    source = str(firing.source)
    record = await firer.transactor.store.read_run(row.tenant, source)
    if record is None or one.run_state is None:
        return skipped(firing, "the run was deleted before its end was seen")
    # Noted for an earlier trigger of this name, which was removed before the run ended.
    is_of_another = firing.made_at < row.created_at and (record.run.ended_at or now) < row.created_at
    if is_of_another or record.details.workflow != spec.ended.workflow:
        return skipped(firing, "the run ended before this trigger was about its workflow")
    if one.run_state not in spec.ended.states:
        return skipped(firing, f"the run has {one.run_state}, which this trigger is not about")
    event = OutsideEvent(
        id=source,
        name=f"run.{one.run_state}",
        payload=None,
        at=record.run.ended_at or now,
        run=source,
        correlation_id=record.details.correlation_id,
        asked=asked_names(requesters_of(record.details)),
        facts={"workflow": record.details.workflow, "state": one.run_state.value, "error": record.run.error},
    )
    depth = await depth_after(firer, row.tenant, source)
    try:
        if not holds(row, spec, firing.moment, event.shown()):
            return skipped(firing, "the condition does not hold")
        given = input_of(row, spec, firing.moment, event.shown()) if spec.inputs is not None else _about(event)
    except ExpressionError as problem:
        return skipped(firing, str(problem)[:MAX_REASON])
    if said := too_deep(depth):
        return skipped(firing, said)
    kept = await firer.kept(row, given, event)
    return replace(firing, state=FiringState.WAITING, given=kept, depth=depth)


def _about(event: OutsideEvent) -> bytes:
    """The input of a run that another one's end starts, unless the trigger says otherwise."""
    facts = event.facts
    return msgspec.json.encode({"run_id": event.run, "workflow": facts["workflow"], "state": facts["state"]})
