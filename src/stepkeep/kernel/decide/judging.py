"""Asks the policies about a step before it becomes ready or a person completes it, and records the verdict with the
facts that it rests on.

The policies of the definition and the live policy of the tenant are asked; the strictest verdict counts. The record is
in the cause of the hop, so that the verdict can be replayed from the journal. `progress.py` asks where a step opens and
where a retry is due, `people.py` before a completion. Undo steps and the final check are not judged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Required, TypedDict

import msgspec
from msgspec.structs import replace

from stepkeep.kernel.decide.decision import Bound, Need
from stepkeep.kernel.decide.draft import Draft, Missing
from stepkeep.kernel.decide.failure import DENIAL, Settled, fail_for_good
from stepkeep.kernel.decide.policy import Policy, Verdict, strictest
from stepkeep.kernel.definition import Agent, Approval, Handler, PolicyEffect, shown_terms
from stepkeep.kernel.errors import NotAllowed
from stepkeep.kernel.machine.rows import Step
from stepkeep.kernel.machine.states import Category, Phase, StepState
from stepkeep.kernel.people.authority import Authority, Caller, MembershipKind
from stepkeep.kernel.plan import Plan, PlannedStep

BUDGET = "budget:"
"""How the name of a rule begins that limits what is spent."""
STOPS = {PolicyEffect.DENY: "denied", PolicyEffect.HOLD: "held"}

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Judged(msgspec.Struct, frozen=True):
    """The end of a judgement that does not let the step go on: it was denied, or it waits for people on these terms.

    `settled` is the ending of a denied step; `permit` is the rule that an approval of the hold permits.
    """

    settled: Settled | None = None
    terms: Approval | None = None
    permit: str | None = None


def judged(draft: Draft, step: Step, of: int | None = None) -> Judged | None:
    """Deny this step or ask to hold it, if a policy says so; None lets it go on."""
    if (stopped := _stopped_above(draft, step, of)) is not None:
        return stopped
    if (found := _verdict_on(draft, step)) is None:
        return None
    verdict, record = found
    planned = draft.planned(step)
    if verdict.effect is PolicyEffect.HOLD and not planned.kind.only_waits:
        permit = permit_of(verdict)
        if step.note is not None and step.note.permit == permit:
            # People have approved the same rule for this step already: a retry does not ask them again.
            record_verdict(draft, planned.name, {**record, "permitted": True})
            return None
        own = planned.hold if step.state is StepState.PENDING else None
        terms = merged(verdict.approval or Approval(), own)
        record_verdict(draft, planned.name, {**record, "terms": shown_terms(terms)})
        return Judged(terms=terms, permit=permit)
    record_verdict(draft, planned.name, record)
    if verdict.effect is not PolicyEffect.DENY:
        return None
    return Judged(fail_for_good(draft, step, DENIAL, Category.GOVERNANCE, refusal(verdict), of=of))


def permit_of(verdict: Verdict) -> str:
    """The rule of a hold, as an approval of it is remembered."""
    return f"{verdict.rule}@{verdict.revision or 'definition'}"


def judged_signal(draft: Draft, step: Step) -> Mapping[str, Any] | None:
    """The verdict on a step that a person completes, for the journal; NotAllowed if a policy denies or holds the step.

    A hold that people have approved for this step before lets it pass. A spent budget does: a signal spends nothing.
    """
    if (found := _verdict_on(draft, step)) is None:
        return None
    verdict, record = found
    if verdict.effect is PolicyEffect.ALLOW or (verdict.rule or "").startswith(BUDGET):
        return record
    if verdict.effect is PolicyEffect.HOLD and step.note is not None and step.note.permit == permit_of(verdict):
        return {**record, "permitted": True}
    word, name = STOPS[verdict.effect], draft.planned(step).name
    said = f"the completion of {name} of run {step.run_id} is not accepted: {word} by {_rule_of(verdict)}"
    raise NotAllowed(said, rule=verdict.rule or "", reason=verdict.reason)


def _verdict_on(draft: Draft, step: Step) -> tuple[Verdict, Mapping[str, object]] | None:
    """What the policies that concern this step say about it now, and what the journal has about that."""
    plan, live = draft.plan, draft.snapshot.policy
    if live is None and not plan.policies:
        return None
    planned = draft.planned(step)
    if planned.phase is not Phase.MAIN:
        return None
    workflow, name = plan.definition.name, planned.definition.name
    asked = [one for one in (*plan.policies, live) if one is not None and one.concerns(workflow, name)]
    if not asked:
        return None
    read = frozenset[str]().union(*(one.reads(workflow, name) for one in asked))
    facts = _facts(draft, planned, step, read)
    verdict = strictest([one.judge(facts, draft.snapshot.input) for one in asked])
    return verdict, record_of(verdict, None if live is None else live.revision, facts, read)


def _stopped_above(draft: Draft, step: Step, of: int | None) -> Judged | None:
    """Deny a step of a child where a run above it has spent its budget: what is left of that bounds the child too."""
    above, planned = draft.snapshot.above, draft.planned(step)
    if above == () or planned.phase is not Phase.MAIN:
        return None
    if above is None:
        raise Missing(Need(above=True))
    found = spent_above(above, [attempt.cost for attempt in draft.attempts])
    if found is None:
        return None
    record = {
        "effect": PolicyEffect.DENY.value,
        "rule": found.rule,
        "by": "parent",
        "run": found.run_id,
        "reason": found.reason,
        "spent": found.spent,
        "limit": found.limit,
    }
    record_verdict(draft, planned.name, record)
    return Judged(fail_for_good(draft, step, DENIAL, Category.GOVERNANCE, str(found), of=of))


class Exceeded(msgspec.Struct, frozen=True, gc=False):
    """A budget of a run above that is spent: its name, what the tree of that run had spent, and the limit."""

    run_id: str
    name: str
    spent: float
    limit: float

    @property
    def rule(self) -> str:
        return f"{BUDGET}{self.name}"

    @property
    def reason(self) -> str:
        return f"the run and those below it have spent {self.limit:g} {self.name}"

    def __str__(self) -> str:
        return f"denied by the rule {self.rule} of run {self.run_id}: {self.reason}"


def spent_above(above: Iterable[Bound], more: Iterable[bytes | None] = ()) -> Exceeded | None:
    """The first of these budgets that is spent. `more` are costs of this decision."""
    new = tuple(more)
    for bound in above:
        spent = cost_facts([*bound.costs, *new])
        for name, limit in bound.limits.items():
            if spent.get(name, 0.0) >= limit:
                return Exceeded(bound.run_id, name, spent[name], limit)
    return None


def refusal(verdict: Verdict) -> str:
    """The words of a denial: the rule and its policy, then its reason."""
    return f"denied by {_rule_of(verdict)}"


def _rule_of(verdict: Verdict) -> str:
    where = "the definition" if verdict.revision is None else f"policy revision {verdict.revision}"
    return f"the rule {verdict.rule} of {where}" + (f": {verdict.reason}" if verdict.reason else "")


def record_of(verdict: Verdict, revision: int | None, facts: PolicyFacts, read: Iterable[str]) -> Mapping[str, object]:
    """What the journal has about a verdict. `revision` is the live policy that was asked, whichever rule spoke.

    The input is not repeated: the journal has its digest since the run was created.
    """
    told = {
        "effect": verdict.effect.value,
        "rule": verdict.rule,
        "by": None if verdict.rule is None else "definition" if verdict.revision is None else "tenant",
        "reason": verdict.reason,
        "revision": revision,
        "facts": {part: facts.get(part) for part in sorted(read) if part != "input"},
    }
    return {name: value for name, value in told.items() if value not in (None, "", {})}


def record_verdict(draft: Draft, name: str, record: Mapping[str, Any]) -> None:
    """Add a record to the cause of the hops that follow."""
    cause = draft.causes[-1]
    detail = cause.detail or {}
    draft.causes[-1] = replace(cause, detail={**detail, "policy": {**detail.get("policy", {}), name: dict(record)}})


def merged(policy: Approval, own: Approval | None) -> Approval:
    """The terms of a step that a policy holds and that has a hold of its own: the stricter of each."""
    if own is None:
        return replace(policy, facts=msgspec.UNSET)
    deadlines = [one.deadline for one in (policy, own) if one.deadline is not None]
    return replace(
        own if policy.levels[0].is_open else policy,
        prompt=policy.prompt or own.prompt,
        quorum=max(policy.quorum, own.quorum),
        excluded=tuple(dict.fromkeys((*policy.excluded, *own.excluded))),
        deadline=min(deadlines, default=None),
        facts=own.facts,
        covers=policy.covers and own.covers,
    )


# -- facts -------------------------------------------------------------------------------------------------------------
class StepFacts(TypedDict):
    """`attempt` is the number of the attempt that would follow."""

    name: str
    kind: str
    handler: str
    effect: str
    queue: str
    capabilities: list[str]
    attempt: int
    tier: str


class RunFacts(TypedDict):
    id: str
    workflow: str
    version: int
    dialect: str
    domains: list[str]


class TimeFacts(TypedDict):
    iso: str
    year: int
    month: int
    day: int
    hour: int
    weekday: int


class PrincipalFacts(TypedDict):
    """The person that asked for the run, with the roles and groups that count at this moment."""

    name: str
    registered: bool
    roles: list[str]
    groups: list[str]


class PolicyFacts(TypedDict, total=False):
    """What rules of policies read."""

    step: Required[StepFacts]
    run: Required[RunFacts]
    time: TimeFacts
    labels: Mapping[str, str]
    principal: PrincipalFacts
    spend: Mapping[str, Mapping[str, float]]
    cost: Mapping[str, float]


def _facts(draft: Draft, planned: PlannedStep, step: Step, read: frozenset[str]) -> PolicyFacts:
    """The parts of the facts that are read, and always the step and the run, which name what is judged."""
    plan, snapshot = draft.plan, draft.snapshot
    wants_origin = bool(read & {"principal", "labels"}) and snapshot.origin is None
    if wants_origin or ("input" in read and snapshot.input is None) or ("cost" in read and snapshot.costs is None):
        raise Missing(Need(input=wants_origin or "input" in read, costs="cost" in read))
    facts: PolicyFacts = {"step": step_facts(plan, planned, step.attempts), "run": run_facts(plan, draft.run_id)}
    if "time" in read:
        facts["time"] = time_facts(draft.now)
    if snapshot.origin is not None and "labels" in read:
        labels = snapshot.origin.labels
        facts["labels"] = {} if labels is None else msgspec.json.decode(labels)
    if snapshot.origin is not None and "principal" in read:
        caller = Caller(snapshot.run.tenant, snapshot.origin.created_by)
        facts["principal"] = principal_facts(draft.authority(caller), draft.now)
    if "spend" in read:
        facts["spend"] = {name: dict(spent) for name, spent in snapshot.spend.items()}
    if "cost" in read:
        facts["cost"] = cost_facts([*(snapshot.costs or ()), *(attempt.cost for attempt in draft.attempts)])
    return facts


def step_facts(plan: Plan, planned: PlannedStep, attempts: int) -> StepFacts:
    definition, executor = planned.definition, planned.executor
    about = plan.definition.about.get("actions", {}).get(definition.name, {})
    return {
        "name": definition.name,
        "kind": planned.kind.policy_title,
        "handler": executor.name if isinstance(executor, Handler | Agent) else "",
        "effect": definition.effect.value,
        "queue": definition.queue,
        "capabilities": list(definition.capabilities),
        "attempt": attempts + 1,
        "tier": about.get("executionTier", ""),
    }


def run_facts(plan: Plan, run_id: str) -> RunFacts:
    definition = plan.definition
    return {
        "id": run_id,
        "workflow": definition.name,
        "version": definition.version,
        "dialect": definition.dialect,
        "domains": list(definition.about.get("domainsInvolved", ())),
    }


def time_facts(now: int) -> TimeFacts:
    moment = EPOCH + timedelta(microseconds=now)
    return {
        "iso": moment.isoformat(),
        "year": moment.year,
        "month": moment.month,
        "day": moment.day,
        "hour": moment.hour,
        "weekday": moment.isoweekday(),
    }


def principal_facts(authority: Authority, now: int) -> PrincipalFacts:
    held = [one for one in authority.memberships if authority.registered and one.holds(now)]
    return {
        "name": authority.person,
        "registered": authority.registered,
        "roles": sorted({one.name for one in held if one.kind is MembershipKind.ROLE}),
        "groups": sorted({one.name for one in held if one.kind is MembershipKind.GROUP}),
    }


def cost_facts(costs: Iterable[bytes | None]) -> dict[str, float]:
    """The sums of what the attempts of a run reported, and how many have ended. `usd` and `tokens` are always there."""
    found = {"usd": 0.0, "tokens": 0.0, "attempts": 0.0}
    for cost in costs:
        found["attempts"] += 1
        spent = None if cost is None else msgspec.json.decode(cost)
        for name, amount in spent.items() if isinstance(spent, dict) else ():
            if name != "attempts":
                found[name] = found.get(name, 0.0) + amount
    return found


def asked_of(policies: Iterable[Policy], facts: Mapping[str, Any], given: bytes | None) -> Verdict:
    """The verdict of these policies on facts, as `judged` finds it. A replay calls it with the facts on record."""
    workflow, step = facts["run"]["workflow"], facts["step"]["name"]
    return strictest([one.judge(facts, given) for one in policies if one.concerns(workflow, step)])
