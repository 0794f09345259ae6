"""Which person may act on a step: who they are, in whose name they act, and what their duties rule out.

Every function decides from values: the authority of the person, the terms of the gate, the rows of the run. A refusal
names its rule and changes nothing. `votes.py`, `people.py` and `execution.py` call it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from stepkeep.kernel.decide.decision import Involved, Need
from stepkeep.kernel.decide.draft import Draft, Missing
from stepkeep.kernel.definition import Level, Standing
from stepkeep.kernel.errors import NotAllowed
from stepkeep.kernel.machine.rows import Step
from stepkeep.kernel.machine.states import STEP_TERMINAL
from stepkeep.kernel.people.authority import Authority, Delegation, Membership, MembershipKind, has_at
from stepkeep.kernel.people.persons import numbers_below, persons_of
from stepkeep.kernel.people.separation import (
    NOBODY,
    Act,
    Constraint,
    Duties,
    Excluded,
    Objection,
    objection,
    steps_named,
)


class Voice(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A person as they act: in their own name, or on behalf of a delegator whose memberships count."""

    person: str
    on_behalf_of: str | None = None
    delegation: str | None = None
    memberships: tuple[Membership, ...] = ()
    is_known: bool = True
    is_service: bool = False

    @property
    def subject(self) -> str:
        """The person whose memberships count."""
        return self.on_behalf_of or self.person

    @property
    def names(self) -> frozenset[str]:
        return frozenset((self.person, self.subject))


class Moments(msgspec.Struct, frozen=True, gc=False):
    """The moments at which a membership must hold, and the words for them."""

    opened_at: int
    now: int
    standing: Standing

    def hold(self, memberships: tuple[Membership, ...], kind: MembershipKind, name: str) -> bool:
        """A revocation on record counts for the present, also where the clock has gone back since."""
        left = tuple(one for one in memberships if one.revoked_at is None)
        then = self.standing is Standing.NOW or has_at(memberships, kind, name, self.opened_at)
        return then and (self.standing is Standing.OPENING or has_at(left, kind, name, self.now))

    def held(self, memberships: Iterable[Membership]) -> frozenset[tuple[MembershipKind, str]]:
        """Every role and group that these memberships give at all the moments."""
        known = tuple(memberships)
        return frozenset((one.kind, one.name) for one in known if self.hold(known, one.kind, one.name))


def is_over(moment: int | None, now: int) -> bool:
    return moment is not None and moment <= now


def voices_of(authority: Authority, on_behalf_of: str | None, now: int) -> list[Voice]:
    """The ways in which a person may act now: themselves, then on behalf of each delegator; or the one they name."""
    person = authority.person
    own = Voice(
        person=person,
        memberships=authority.memberships if authority.registered else (),
        is_known=authority.registered or authority.vouching_allowed,
        is_service=authority.is_service,
    )
    if on_behalf_of == person:
        return [own]
    lent = [
        Voice(person=person, on_behalf_of=one.delegator, delegation=one.id, memberships=one.memberships)
        for one in authority.delegations
        if one.delegator != person and not authority.is_service and is_valid(one, now)
    ]
    if on_behalf_of is None:
        return [own, *lent]
    named = [voice for voice in lent if voice.on_behalf_of == on_behalf_of]
    if not named:
        said = f"{person} has no delegation of {on_behalf_of} that is valid now"
        raise NotAllowed(said, rule="delegation", person=person)
    return named[:1]


def is_valid(delegation: Delegation, now: int) -> bool:
    """Whether a delegation counts now."""
    begins = max(delegation.granted_at, delegation.valid_from or 0)
    is_ended = delegation.revoked_at is not None or is_over(delegation.valid_to, now)
    return delegation.enabled and begins <= now and not is_ended


def terms_met(voice: Voice, levels: Sequence[Level], moments: Moments) -> tuple[str, ...] | None:
    """The roles, groups or names by which this voice may decide at one of these levels; None if it may not."""
    met = [word for level in levels for word in _met(voice, level, moments)]
    if met:
        return tuple(dict.fromkeys(met))
    return () if any(level.is_open for level in levels) and not voice.is_service else None


def _met(voice: Voice, level: Level, moments: Moments) -> Iterable[str]:
    if voice.subject in level.approvers and voice.is_known:
        yield f"approver:{voice.subject}"
    if voice.is_service:
        return
    for kind, names in ((MembershipKind.ROLE, level.roles), (MembershipKind.GROUP, level.groups)):
        for name in names:
            if moments.hold(voice.memberships, kind, name):
                yield f"{kind}:{name}"


def wanted(levels: Sequence[Level]) -> str:
    """The people that these levels ask for, in words."""
    words = [
        *(f"role {name}" for level in levels for name in level.roles),
        *(f"group {name}" for level in levels for name in level.groups),
        *(name for level in levels for name in level.approvers),
    ]
    return " or ".join(dict.fromkeys(words))


def check_separation(draft: Draft, constraints: Sequence[Constraint], voice: Voice, act: Act) -> None:
    """Refuse an act that a constraint of the step or of the run does not allow."""
    if not constraints:
        return
    names = {name for constraint in constraints for name in steps_named(constraint)}
    if found := objection(constraints, act, duties_of(draft, names)):
        by = voice.person if voice.on_behalf_of is None else f"{voice.person} (for {voice.on_behalf_of})"
        said = f"{by} may not decide or complete {act.step} of run {draft.run_id}: {found.reason} ({found.rule})"
        raise NotAllowed(said, rule=found.rule, person=voice.person, reason=found.reason, step=act.step)


def claim_objection(draft: Draft, step: Step, owner: str | None) -> Objection | None:
    """Why duties do not allow a worker of this owner to execute a step. A worker without an owner is no person."""
    constraints = draft.plan.duties_on(draft.planned(step))
    if not constraints or owner is None:
        return None
    name = draft.plan.within(draft.planned(step))
    others = {one for rule in constraints for one in steps_named(rule) if isinstance(rule, Excluded) or one != name}
    return objection(constraints, Act(step=name, names=frozenset((owner,))), duties_of(draft, others))


def executors_in(draft: Draft, involved: Involved) -> Mapping[int, frozenset[str]]:
    """The owners of the workers that executed steps, those that this decision claims included."""
    claimed = {no: involved.executors.get(no, NOBODY) | {owner} for no, owner in draft.owners.items()}
    return {**involved.executors, **claimed} if claimed else involved.executors


def duties_of(draft: Draft, names: Iterable[str]) -> Duties:
    """Who asked for the run, and who did what on these steps and everything below them."""
    involved, plan = draft.snapshot.involved, draft.plan
    numbers = {name: no for name in names if (no := plan.number(name)) is not None}
    whole = any(numbers_below(plan, no) for no in numbers.values()) and not draft.snapshot.whole
    lacking = frozenset(no for no in numbers.values() if draft.lacks(no))
    if involved is None or lacking or whole:
        raise Missing(Need(duties=involved is None, steps=lacking, whole=whole))
    rows = {**draft.snapshot.steps, **draft.steps}
    executors = executors_in(draft, involved)
    found = {name: persons_of(plan, rows, no, executors) for name, no in numbers.items()}
    return Duties(
        requested=involved.requesters,
        executed={name: frozenset(one.executed) for name, one in found.items()},
        completed={name: frozenset(one.completed) for name, one in found.items()},
        decided={name: frozenset(one.decided) for name, one in found.items()},
        lent={name: frozenset(one.lent) for name, one in found.items()},
        many=frozenset(name for name, one in found.items() if one.many),
        unsettled=frozenset(name for name, no in numbers.items() if rows[no].state not in STEP_TERMINAL),
    )
