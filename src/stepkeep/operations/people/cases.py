"""A run with its people, read without a lock: which people a waiting step asks, and why others may not act on it.

It answers with the checks of the decision itself (`kernel/people/may_act.py`) and decides nothing. A case is true for
the moment of reading. `approvals.py`, `diagnosis.py` and views call it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TypedDict, cast

import msgspec
from msgspec import UNSET

from stepkeep.edges.names import same_names
from stepkeep.kernel.decide.decision import Involved, Snapshot
from stepkeep.kernel.definition import Approval, Level
from stepkeep.kernel.errors import Conflict, NotAllowed
from stepkeep.kernel.machine.rows import Opening, Step, is_exhausted
from stepkeep.kernel.machine.states import StepState
from stepkeep.kernel.people.authority import Authority, Caller, MembershipKind
from stepkeep.kernel.people.eligibility import wanted
from stepkeep.kernel.people.gates import gate_terms, open_levels
from stepkeep.kernel.people.may_act import refusal_of, ruled_out
from stepkeep.kernel.people.persons import persons_in
from stepkeep.kernel.people.separation import Objection
from stepkeep.kernel.people.votes import ballot_record
from stepkeep.kernel.plan import Plan
from stepkeep.operations.instants import instant
from stepkeep.operations.people.step_people import Barred, StepPeople
from stepkeep.operations.pipeline.plans import plan_for
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.operations.runs.run_answers import Ballot
from stepkeep.store.principals import SubjectKind
from stepkeep.store.protocol import Store
from stepkeep.store.records import RunRecord

MOST_PEOPLE = 50
"""People of one waiting step that are looked at, one by one."""


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A run with its steps and the people behind it."""

    record: RunRecord
    plan: Plan
    steps: Mapping[int, Step]
    involved: Involved
    now: int

    def refusal(
        self, no: int, caller: Caller, authorities: Mapping[Caller, Authority], *, with_any_key: bool = False
    ) -> NotAllowed | None:
        """Why this person may not act on the step; None if they may."""
        return refusal_of(self._snapshot(authorities), no, caller, self.now, with_any_key=with_any_key)

    def ruled_out(self, no: int, owner: str) -> str | None:
        """Why duties do not allow workers of this owner to execute the step, in words; None if they do."""
        found = ruled_out(self._snapshot(), no, owner, self.now)
        return f"{found.reason} ({found.rule})" if isinstance(found, Objection) else None

    def _snapshot(self, authorities: Mapping[Caller, Authority] = {}) -> Snapshot:
        return Snapshot(
            plan=self.plan,
            run=self.record.run,
            steps=self.steps,
            whole=True,
            waiting=True,
            authorities=authorities,
            involved=self.involved,
        )


async def read_case(transactor: Transactor, record: RunRecord, now: int) -> Case:
    """The run of this record, as it is now."""
    tenant, run_id = record.run.tenant, record.run.id
    plan = await plan_for(transactor, record.run)
    steps, involved = await asyncio.gather(
        transactor.store.read_steps(tenant, run_id), transactor.store.read_involved([(tenant, run_id)])
    )
    return Case(
        record=record,
        plan=plan,
        steps={step.no: step for step in steps},
        involved=involved[tenant, run_id],
        now=now,
    )


async def asked_of(store: Store, case: Case, step: Step, reader: Caller | None = None) -> StepPeople:
    """The people whom this waiting step asks, each with the answer whether they may act; and whether the reader may."""
    gate = None if is_exhausted(step) else gate_terms(step, case.plan.of(step))
    if gate is None or step.state is not StepState.AWAITING_APPROVAL:
        of, needs, named = "", 1, frozenset[str]()
    else:
        opening = opening_in(step)
        levels = open_levels(gate, opening)
        approved = 0 if opening is None else sum(ballot.approve for ballot in opening.ballots)
        of, needs = ("" if any(level.is_open for level in levels) else wanted(levels)), gate.quorum - approved
        named = await _named(store, case.record.run.tenant, levels)
    known = sorted(named | _with_duties(case))
    looked = known[:MOST_PEOPLE]
    callers = [Caller(case.record.run.tenant, person) for person in looked]
    authorities = await store.people.read_authorities(callers if reader is None else [*callers, reader])
    may: list[str] = []
    may_not: list[Barred] = []
    for caller in callers:
        refusal = case.refusal(step.no, caller, authorities, with_any_key=True)
        if refusal is not None and (refusal.rule != "approvers" or caller.actor in named):
            said = refusal.reason or str(refusal)
            may_not.append(Barred(person=caller.actor, rule=refusal.rule, reason=said))
        elif refusal is None and caller.actor in named:
            may.append(caller.actor)
    words: tuple[str, ...] | None = ()
    if reader is not None and case.refusal(step.no, reader, authorities) is not None:
        lends = reader.key is None and authorities[reader].vouching_allowed
        words = ("--by", may[0]) if lends and may else None
    return StepPeople(
        of=of,
        needs=needs,
        may=tuple(may),
        may_not=tuple(may_not),
        more=len(known) - len(looked),
        reader=words,
        reader_asked=reader is not None and bool(same_names([reader.actor], case.involved.requesters)),
    )


async def people_asked(store: Store, case: Case, step: Step) -> tuple[str, ...]:
    """The people whom an open gate asks: approvers, and everyone who was ever given one of its roles or groups."""
    gate = None if is_exhausted(step) else gate_terms(step, case.plan.of(step))
    if gate is None or step.state is not StepState.AWAITING_APPROVAL:
        return ()
    named = await _named(store, case.record.run.tenant, open_levels(gate, opening_in(step)))
    if len(named) > MOST_PEOPLE:
        said = f"{case.plan.of(step).name} asks {len(named)} people; an operator unblocks a gate that nobody may decide"
        raise Conflict(f"{said}, and at most {MOST_PEOPLE} are looked at. Let one of them decide or delegate.")
    return tuple(sorted(named))


def opening_in(step: Step) -> Opening | None:
    return None if step.note is None else step.note.opening


async def _named(store: Store, tenant: str, levels: Sequence[Level]) -> frozenset[str]:
    """The approvers, and everyone who was ever given one of the roles or groups: also those who have it no more."""
    found = {person for level in levels for person in level.approvers}
    kinds = [(MembershipKind.ROLE, name) for level in levels for name in level.roles]
    kinds += [(MembershipKind.GROUP, name) for level in levels for name in level.groups]
    groups: set[str] = set()
    for kind, name in dict.fromkeys(kinds):
        for row in await store.people.read_members(tenant, kind, name):
            (found if row.subject_kind is SubjectKind.PERSON else groups).add(row.subject)
    for group in sorted(groups):
        members = await store.people.read_members(tenant, MembershipKind.GROUP, group)
        found |= {row.subject for row in members if row.subject_kind is SubjectKind.PERSON}
    return frozenset(found)


def _with_duties(case: Case) -> frozenset[str]:
    """Everyone who asked for the run, executed or completed a step, or decided about one, also below it."""
    persons = persons_in(case.steps.values(), case.involved.executors)
    return case.involved.requesters.union(persons.executed, persons.completed, persons.decided)


class GatePeople(TypedDict, total=False):
    """The people and the terms of an open gate, fields of `Waiting`."""

    prompt: str
    roles: list[str]
    groups: list[str]
    approvers: list[str]
    of: str
    not_: list[str]
    level: int
    quorum: int
    votes: list[Ballot]


def asked_people(gate: Approval, step: Step) -> GatePeople:
    """Of whom an open gate asks what. Empty parts are left out."""
    opening = None if step.note is None else step.note.opening
    levels = open_levels(gate, opening)
    roles = list(dict.fromkeys(role for level in levels for role in level.roles))
    groups = list(dict.fromkeys(group for level in levels for group in level.groups))
    approvers = list(dict.fromkeys(person for level in levels for person in level.approvers))
    found = {
        "prompt": gate.prompt,
        "roles": roles,
        "groups": groups,
        "approvers": approvers,
        "of": " or ".join([*roles, *(f"group {name}" for name in groups), *approvers]),
        "not_": list(gate.excluded),
        "level": 0 if opening is None else opening.level,
        "quorum": gate.quorum if gate.quorum > 1 else None,
        "votes": [] if opening is None else ballots(opening),
    }
    return cast("GatePeople", {name: value for name, value in found.items() if value})


def ballots(opening: Opening) -> list[Ballot]:
    """The decisions that an open gate has counted."""
    return [
        Ballot(by=one["by"], decision=one["decision"], at=instant(one["at"]), for_=one.get("for", UNSET))
        for one in map(ballot_record, opening.ballots)
    ]
