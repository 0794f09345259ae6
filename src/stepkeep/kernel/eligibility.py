"""Which person may act on a step: who they are, in whose name they act, and what their duties rule out.

Every function decides from values: the authority of the person, the terms of the gate, the rows of the run. A refusal
names its rule and changes nothing. `votes.py` and `people.py` call it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from stepkeep.errors import NotAllowed
from stepkeep.kernel.authority import Authority, Delegation, Membership, MembershipKind, has_at
from stepkeep.kernel.decision import Need
from stepkeep.kernel.definition import Level, Standing
from stepkeep.kernel.draft import Draft, Missing
from stepkeep.kernel.rows import Step
from stepkeep.kernel.separation import NOBODY, Act, Constraint, Duties, objection, steps_named
from stepkeep.kernel.states import STEP_TERMINAL

decode_json = msgspec.json.decode


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
        return all(has_at(memberships, kind, name, at) for at in self._all)

    def held(self, memberships: Iterable[Membership]) -> frozenset[tuple[MembershipKind, str]]:
        """Every role and group that these memberships give at all the moments."""
        known = tuple(memberships)
        return frozenset((one.kind, one.name) for one in known if self.hold(known, one.kind, one.name))

    @property
    def _all(self) -> tuple[int, ...]:
        chosen = {Standing.BOTH: (self.opened_at, self.now), Standing.OPENING: (self.opened_at,)}
        return chosen.get(self.standing, (self.now,))


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
    ends = (delegation.valid_to, delegation.revoked_at)
    return delegation.enabled and begins <= now and not any(is_over(end, now) for end in ends)


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


def duties_of(draft: Draft, names: Iterable[str]) -> Duties:
    """Who asked for the run, and who did what on these steps."""
    involved = draft.snapshot.involved
    numbers = {name: no for name in names if (no := draft.plan.number(name)) is not None}
    if involved is None:
        raise Missing(Need(duties=True, steps=frozenset(no for no in numbers.values() if draft.lacks(no))))
    draft.require(numbers.values())
    steps = {name: draft.step(no) for name, no in numbers.items()}
    return Duties(
        requested=involved.requesters,
        executed={name: _executed_by(step) | involved.executors.get(step.no, NOBODY) for name, step in steps.items()},
        completed={name: _completed_by(step) for name, step in steps.items()},
        decided={name: _decided_by(step) for name, step in steps.items()},
        unsettled=frozenset(name for name, step in steps.items() if step.state not in STEP_TERMINAL),
    )


def _executed_by(step: Step) -> frozenset[str]:
    """Who executed an adopted step in the run that finished it."""
    adopted = None if step.note is None else step.note.adopted
    return NOBODY if adopted is None else frozenset(adopted.executors)


def _completed_by(step: Step) -> frozenset[str]:
    record = record_of(step)
    return _names_in(record) if record.get("outcome") in COMPLETED_BY_PEOPLE else NOBODY


def _decided_by(step: Step) -> frozenset[str]:
    record = record_of(step)
    told = _names_in(record) if record.get("decision") in DECIDED_BY_PEOPLE else NOBODY
    return told if step.note is None else told.union(step.note.deciders)


def _names_in(record: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(name for name in (record.get("by"), record.get("for")) if isinstance(name, str))


COMPLETED_BY_PEOPLE = frozenset({"Succeeded", "Failed", "Cancelled"})
DECIDED_BY_PEOPLE = frozenset({"approved", "rejected", "retried", "skipped", "failed"})


def record_of(step: Step) -> dict[str, Any]:
    """How a step was settled, and by whom."""
    if step.note is None or step.note.record is None:
        return {}
    record: dict[str, Any] = decode_json(step.note.record)
    return record
