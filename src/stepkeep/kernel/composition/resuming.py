"""A flow that goes on in the transaction that settles its calls: its claim and its report are one event.

The worker fed the ends of calls to the flow before they were recorded. The event therefore counts only if exactly these
ends, in this order, are recorded by the same decision. Otherwise it is refused, and the flow is claimed as usual.
`decide` calls it.
"""

from __future__ import annotations

from stepkeep.kernel.composition.flows import settled_calls
from stepkeep.kernel.decide.decision import Reply
from stepkeep.kernel.decide.draft import HOP_BITS, Draft
from stepkeep.kernel.decide.execution import claim, report
from stepkeep.kernel.decide.resources import is_set_aside
from stepkeep.kernel.errors import Conflict
from stepkeep.kernel.machine.events import FlowResumed, StepClaimed
from stepkeep.kernel.machine.rows import Step
from stepkeep.kernel.machine.states import StepState


def resume(draft: Draft, event: FlowResumed) -> Reply:
    """Claim a flow that is ready, and accept its report under that claim."""
    step = draft.named(event.no)
    said = _misfit(draft, step, event)
    if said is not None:
        raise Conflict(f"step {event.no} of run {event.run_id} cannot be resumed: {said}")
    claimed = StepClaimed(
        tenant=event.tenant,
        run_id=event.run_id,
        actor=event.actor,
        no=event.no,
        worker=event.worker,
        lease=event.lease,
    )
    claim(draft, claimed)
    return report(draft, event)


def _misfit(draft: Draft, step: Step, event: FlowResumed) -> str | None:
    """Why the flow did not go on from what this decision has recorded; None if it did."""
    planned, grown = draft.planned(step), None if step.note is None else step.note.grown
    if grown is None or not planned.kind.is_flow:
        return "it is no flow that has made calls"
    if planned.has_rules or planned.by_hand:
        return "it has rules or is completed by hand, and needs a claim of its own"
    if is_set_aside(draft.plan, planned):
        return "it needs resources, or duties limit who executes it, and a claim of its own is needed"
    if step.state is not StepState.READY or step.fence + 1 != event.fence:
        return f"it is {step.state} after fence {step.fence}; another claim or a cancel came first"
    if (settled := settled_calls(step)) != event.seen:
        return f"{settled} of its calls have settled, and it went on from {event.seen}"
    last = 0
    for call in event.calls:
        row = draft.named(call.no)
        if row.state is not StepState.SUCCEEDED or row.fence != call.fence or row.settled is None:
            return f"its call {call.no} has not succeeded under fence {call.fence}"
        if row.settled >> HOP_BITS != draft.seq or row.settled <= last:
            return f"the end of its call {call.no} was recorded at another time"
        last = row.settled
    if draft.plan.size > 1 and draft.moving - draft.leased > 1:
        # The same rule as for chained claims: another ready step may come first by its number.
        return "other steps of the run are ready, and one of them may come first"
    return None
