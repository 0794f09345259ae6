"""Execution slots: a run under a limit stays queued, its first steps pending, until a slot is granted to it.

The first steps of such a run count the slot as one more unmet dependency. The kernel does not count slots:
`operations/limits/slots.py` does, under a lock. `create`, `begin` and `decide` call it.
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec.structs import replace

from stepkeep.kernel.decide.decision import Accepted, Reply
from stepkeep.kernel.decide.draft import Draft
from stepkeep.kernel.decide.progress import open_first_steps, slot_waiters
from stepkeep.kernel.errors import Conflict
from stepkeep.kernel.machine.events import SlotGranted
from stepkeep.kernel.machine.states import RUN_TERMINAL, RunState
from stepkeep.kernel.plan import Plan


def waiting_numbers(plan: Plan, adopted: Collection[int]) -> frozenset[int]:
    """The steps of a new run that wait for its slot: its roots, or the first step that is not adopted."""
    roots = frozenset(plan.roots).difference(adopted)
    return roots or frozenset([planned.no for planned in plan.steps if planned.no not in adopted][:1])


def grant_slot(draft: Draft, event: SlotGranted) -> Reply:
    """Open the first steps of a queued run that waits for a slot. A run gets one once."""
    if draft.state is not RunState.QUEUED:
        has = "has ended" if draft.state in RUN_TERMINAL else f"is {draft.state}"
        raise Conflict(f"run {event.run_id} {has}; only a queued run is granted a slot.")
    draft.require(draft.plan.roots)
    waiting = slot_waiters(draft)
    if not waiting:
        return Accepted({"state": draft.state}, repeated=True)
    told = [{"scope": one.scope, "held": one.held, "most": one.most} for one in event.scopes]
    draft.caused_by("slot_granted", event.actor, {"scopes": told} if told else None)
    for step in waiting:
        draft.put(replace(step, unmet=step.unmet - 1))
    open_first_steps(draft)
    return Accepted({"state": draft.state})
