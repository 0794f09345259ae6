"""Whether a person could act on a step now, or execute it, and why not. It decides nothing and changes nothing.

The answer comes from the checks of the decision itself, on rows that were read without a lock. So it is true for the
moment of reading; the decision checks again. `operations/people/cases.py`, `operations/limits/resource_claims.py` and
`changes.py` call it.
"""

from __future__ import annotations

from msgspec.structs import replace

from stepkeep.kernel.decide.decision import Need, Snapshot
from stepkeep.kernel.decide.draft import Draft, Missing
from stepkeep.kernel.errors import NotAllowed
from stepkeep.kernel.machine.events import GateDecided
from stepkeep.kernel.machine.rows import Step, is_exhausted
from stepkeep.kernel.machine.states import StepState
from stepkeep.kernel.people.authority import Caller, admit
from stepkeep.kernel.people.eligibility import claim_objection
from stepkeep.kernel.people.gates import is_past_deadline, opening_of
from stepkeep.kernel.people.people import check_duties
from stepkeep.kernel.people.separation import Objection
from stepkeep.kernel.people.votes import fitting_voices


def refusal_of(
    snapshot: Snapshot, no: int, caller: Caller, now: int, *, with_any_key: bool = False
) -> NotAllowed | None:
    """Why this person may not approve the gate, decide about the hold, or complete the step; None if they may.

    The snapshot has the whole run, the authority of the caller and the people involved.
    """
    draft = Draft(snapshot, now)
    return refusal_in(draft, draft.named(no), caller, with_any_key=with_any_key)


def refusal_in(draft: Draft, step: Step, caller: Caller, *, with_any_key: bool) -> NotAllowed | None:
    """The same of a row as it stands in a decision, or as it would stand.

    `with_any_key` asks about a person who is not the caller: a registered one may have a key where names alone are
    refused.
    """
    authority = draft.authority(caller)
    if with_any_key and authority.registered:
        authority = replace(authority, vouching_allowed=True)
    try:
        admit(authority, caller, draft.now)
        if step.state is StepState.AWAITING_APPROVAL and not is_exhausted(step):
            _check_gate(draft, step, caller)
        else:
            check_duties(draft, step, caller, caller.actor)
    except NotAllowed as refusal:
        return refusal.with_traceback(None)
    return None


def ruled_out(snapshot: Snapshot, no: int, owner: str | None, now: int) -> Objection | Need | None:
    """Why duties do not allow a worker of this owner to execute the step; None if they do, or if it has no duties."""
    draft = Draft(snapshot, now)
    try:
        return claim_objection(draft, draft.step(no), owner)
    except Missing as missing:
        return missing.need


def _check_gate(draft: Draft, step: Step, caller: Caller) -> None:
    opening = opening_of(draft, step)
    if is_past_deadline(opening, draft.now):
        said = f"the deadline of {draft.planned(step).name} has passed"
        raise NotAllowed(said, "deadline", caller.actor, "its deadline has passed")
    for ballot in opening.ballots:
        if ballot.person == caller.actor:
            word = "approved" if ballot.approve else "rejected"
            said = f"{caller.actor} has {word} {draft.planned(step).name} already; a decision is final"
            raise NotAllowed(said, "one_decision", caller.actor, f"has {word} it")
    event = GateDecided(
        tenant=caller.tenant, run_id=draft.run_id, actor=caller.actor, key=caller.key, no=step.no, approve=True
    )
    fitting_voices(draft, step, event)
