"""Separation of duties in a `WorkflowV1` document: its constraint kinds, as terms of approvals and duties of a run.

Kinds about the person who asked for the run keep that person from every approval; kinds about two people ask for a
quorum. Checks yield findings; nothing here decides at run time. The front end of the dialect calls it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from stepkeep.definition.findings import Finding, Path, did_you_mean
from stepkeep.dialects.action.written import SodConstraint
from stepkeep.kernel import definition as kernel
from stepkeep.kernel.people.separation import REQUESTER

NOT_THE_REQUESTER = frozenset({"MakerChecker", "HazardousZoneNoSelfApproval", "RemoteEstopRequesterSeparation"})
"""Kinds that keep the person who asked for the run from approving an action of it."""

DUAL = "SafetyClassifiedZoneDualApproval"
FIELDS = {
    "DistinctApprovers": ("minimumApprovers", "minimum_approvers"),
    "IncompatibleDuties": ("dutyKeys", "duty_keys"),
    "SpecialistApproval": ("requiredRoles", "required_roles"),
}
"""What a kind needs besides its name: the key, and the field of the model."""


def check_constraints(constraints: Sequence[SodConstraint], actions: Collection[str]) -> Iterator[Finding]:
    """Every problem of the constraints of a document."""
    for place, constraint in enumerate(constraints):
        path: Path = ("sodConstraints", place)
        needed = FIELDS.get(constraint.kind)
        if needed is not None and not getattr(constraint, needed[1]):
            yield Finding(path, f"`{constraint.kind}` needs `{needed[0]}`.", "Add it.")
        for key, field in FIELDS.values():
            if getattr(constraint, field) and needed != (key, field):
                said = f"`{key}` means nothing for `{constraint.kind}`."
                yield Finding((*path, key), said, "Remove it.", key=True)
        for number, name in enumerate(constraint.duty_keys):
            if name not in actions:
                at = (*path, "dutyKeys", number)
                yield Finding(at, f"There is no action `{name}`.", did_you_mean(name, actions))
        if constraint.kind == "IncompatibleDuties" and len(set(constraint.duty_keys)) == 1:
            yield Finding((*path, "dutyKeys"), "`IncompatibleDuties` takes two actions or more.", "Name the others.")


def duties_of(constraints: Sequence[SodConstraint]) -> tuple[kernel.Duty, ...]:
    """The duties of a run."""
    kinds = [one for one in constraints if one.kind == "IncompatibleDuties"]
    return tuple(kernel.Incompatible(steps=tuple(one.duty_keys)) for one in kinds)


def quorum_of(constraints: Sequence[SodConstraint]) -> int:
    """How many people approve an action."""
    asked = [one.minimum_approvers or 1 for one in constraints if one.kind == "DistinctApprovers"]
    return max([1, *asked, *(2 for one in constraints if one.kind == DUAL)])


def excluded_by(constraints: Sequence[SodConstraint]) -> tuple[str, ...]:
    """The people who may not approve an action."""
    return (REQUESTER,) if any(one.kind in NOT_THE_REQUESTER for one in constraints) else ()


def roles_of(constraints: Sequence[SodConstraint]) -> tuple[str, ...]:
    """The roles of which an approver needs one."""
    return tuple(dict.fromkeys(role for one in constraints for role in one.required_roles))
