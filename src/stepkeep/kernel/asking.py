"""Whether a person could act on a waiting step now, and why not. It decides nothing and changes nothing.

The answer comes from the checks of the decision itself, on rows that were read without a lock. So it is true for the
moment of reading; the decision checks again. `operations/cases.py` calls it.
"""

from __future__ import annotations

from stepkeep.errors import NotAllowed
from stepkeep.kernel.authority import Caller, admit
from stepkeep.kernel.decision import Snapshot
from stepkeep.kernel.draft import Draft
from stepkeep.kernel.events import GateDecided
from stepkeep.kernel.gates import is_past_deadline, opening_of
from stepkeep.kernel.people import check_duties
from stepkeep.kernel.rows import Step, is_exhausted
from stepkeep.kernel.states import StepState
from stepkeep.kernel.votes import fitting_voices


def refusal_of(snapshot: Snapshot, no: int, caller: Caller, now: int) -> NotAllowed | None:
    """Why this person may not approve the gate, decide about the hold, or complete the step; None if they may.

    The snapshot has the whole run, the authority of the caller and the people involved.
    """
    draft = Draft(snapshot, now)
    step = draft.named(no)
    try:
        admit(draft.authority(caller), caller, now)
        if step.state is StepState.AWAITING_APPROVAL and not is_exhausted(step):
            _check_gate(draft, step, caller)
        else:
            check_duties(draft, step, caller, caller.person)
    except NotAllowed as refusal:
        return refusal.with_traceback(None)
    return None


def _check_gate(draft: Draft, step: Step, caller: Caller) -> None:
    opening = opening_of(draft, step)
    if is_past_deadline(opening, draft.now):
        said = f"the deadline of {draft.planned(step).name} has passed"
        raise NotAllowed(said, "deadline", caller.person, "its deadline has passed")
    for ballot in opening.ballots:
        if ballot.person == caller.person:
            word = "approved" if ballot.approve else "rejected"
            said = f"{caller.person} has {word} {draft.planned(step).name} already; a decision is final"
            raise NotAllowed(said, "one_decision", caller.person, f"has {word} it")
    event = GateDecided(
        tenant=caller.tenant, run_id=draft.run_id, actor=caller.person, key=caller.key, no=step.no, approve=True
    )
    fitting_voices(draft, step, event)
