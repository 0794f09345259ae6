"""A run with its people, read without a lock: which people a waiting step asks, and why others may not act on it.

It answers with the checks of the decision itself (`kernel/asking.py`) and decides nothing. A case is true for the
moment of reading. `approvals.py` and `diagnosis.py` call it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import msgspec

from stepkeep.errors import NotAllowed
from stepkeep.kernel.asking import refusal_of
from stepkeep.kernel.authority import Authority, Caller, MembershipKind
from stepkeep.kernel.decision import Involved, Snapshot
from stepkeep.kernel.definition import Approval, Level
from stepkeep.kernel.eligibility import wanted
from stepkeep.kernel.gates import gate_terms
from stepkeep.kernel.plan import Plan
from stepkeep.kernel.rows import Opening, Step, is_exhausted
from stepkeep.kernel.states import StepState
from stepkeep.operations.asked import Asked, Barred
from stepkeep.operations.plans import plan_for
from stepkeep.operations.transact import Transactor
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

    def refusal(self, no: int, caller: Caller, authorities: Mapping[Caller, Authority]) -> NotAllowed | None:
        """Why this person may not act on the step; None if they may."""
        snapshot = Snapshot(
            plan=self.plan,
            run=self.record.run,
            steps=self.steps,
            whole=True,
            waiting=True,
            authorities=authorities,
            involved=self.involved,
        )
        return refusal_of(snapshot, no, caller, self.now)


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


async def asked_of(store: Store, case: Case, step: Step) -> Asked:
    """The people whom this waiting step asks, each with the answer whether they may act."""
    gate = None if is_exhausted(step) else gate_terms(step, case.plan.of(step))
    if gate is None or step.state is not StepState.AWAITING_APPROVAL:
        of, needs, named = "", 1, frozenset[str]()
    else:
        opening = opening_in(step)
        levels = levels_of(gate, opening)
        approved = 0 if opening is None else sum(ballot.approve for ballot in opening.ballots)
        of, needs = ("" if any(level.is_open for level in levels) else wanted(levels)), gate.quorum - approved
        named = await _named(store, case.record.run.tenant, levels)
    known = sorted(named | _with_duties(case))
    looked = known[:MOST_PEOPLE]
    callers = [Caller(case.record.run.tenant, person) for person in looked]
    authorities = await store.people.read_authorities(callers)
    may: list[str] = []
    may_not: list[Barred] = []
    for caller in callers:
        refusal = case.refusal(step.no, caller, authorities)
        if refusal is not None and (refusal.rule != "approvers" or caller.person in named):
            said = refusal.reason or str(refusal)
            may_not.append(Barred(person=caller.person, rule=refusal.rule, reason=said))
        elif refusal is None and caller.person in named:
            may.append(caller.person)
    return Asked(of=of, needs=needs, may=tuple(may), may_not=tuple(may_not), more=len(known) - len(looked))


def opening_in(step: Step) -> Opening | None:
    return None if step.note is None else step.note.opening


def levels_of(gate: Approval, opening: Opening | None) -> Sequence[Level]:
    """The levels of a gate that are open now."""
    return gate.levels[: 1 + (0 if opening is None else opening.level)]


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
    """Everyone who asked for the run, executed a step, or decided about one."""
    names: set[str] = set(case.involved.requesters)
    for owners in case.involved.executors.values():
        names |= owners
    for step in case.steps.values():
        names |= set() if step.note is None else set(step.note.deciders)
    return frozenset(names)
