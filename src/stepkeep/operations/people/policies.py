"""Policies of a tenant: publishes and lists revisions, and replays the verdicts of a run from its journal.

It evaluates nothing itself: the compiled policy does. The engine calls it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET

from stepkeep.definition.policy import PolicyDocument
from stepkeep.kernel.decide.judging import asked_of, run_facts, step_facts
from stepkeep.kernel.decide.policy import Policy
from stepkeep.kernel.definition import digest_of
from stepkeep.kernel.errors import InvalidInput, InvariantBroken, NotFound
from stepkeep.kernel.machine.bounds import INT
from stepkeep.kernel.machine.journal import Cause, open_entry
from stepkeep.kernel.people.authority import Caller
from stepkeep.kernel.plan import Plan
from stepkeep.operations import validate
from stepkeep.operations.answers import Answer, Moment, Next
from stepkeep.operations.instants import instant
from stepkeep.operations.people.live_policies import compiled, pinning_since
from stepkeep.operations.pipeline.group_commit import again_if_contended
from stepkeep.operations.pipeline.plans import plan_for
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.store.change import StoredPolicy

OFF = PolicyDocument(name="off", rules=())
"""The revision that ends a policy."""

_encode = msgspec.json.Encoder(order="sorted").encode


class PolicyRevision(Answer, kw_only=True):
    """A revision."""

    revision: int
    policy: str
    digest: str
    published_at: Moment
    published_by: str


class PolicyView(PolicyRevision, kw_only=True):
    """A revision with its rules."""

    document: dict[str, Any]


class PolicyList(Answer, kw_only=True):
    """Revisions, newest first."""

    policies: list[PolicyRevision]
    next: Next = UNSET


class JudgedStep(Answer, kw_only=True):
    """What rules say of a step."""

    effect: str
    rule: str | None
    reason: str


class ReplayedVerdict(Answer, kw_only=True):
    """A verdict on record (`entry` of the journal, `revision` of the policy), and what the rules say `again`."""

    step: str
    entry: int
    revision: int | None
    effect: str
    rule: str | None
    reason: str
    again: JudgedStep
    ok: bool


class Replay(Answer, kw_only=True):
    """Every verdict of a policy in a run, evaluated again."""

    run: str
    ok: bool
    verdicts: list[ReplayedVerdict]


# -- revisions ---------------------------------------------------------------------------------------------------------
async def publish_policy(transactor: Transactor, document: PolicyDocument, *, caller: Caller) -> PolicyRevision:
    """Publish a policy as the next revision of the tenant. It counts for every step that opens from then on."""
    who, store = validate.key("the actor", caller.actor), transactor.store

    async def add() -> StoredPolicy:
        newest = await store.read_policy(caller.tenant)
        number = 1 if newest is None else newest.revision + 1
        body = _encode(msgspec.structs.replace(document, pins_since=None if newest is None else pinning_since(newest)))
        return await store.publish_policy(caller.tenant, number, document.name, digest_of(body), body, who)

    stored = await again_if_contended(add)
    transactor.plans.live.forget(caller.tenant)
    return _revision(stored)


async def list_policies(transactor: Transactor, *, tenant: str) -> PolicyList:
    """The revisions of the tenant, newest first."""
    found = await transactor.store.list_policies(tenant)
    return PolicyList(policies=[_revision(one) for one in found])


async def show_policy(transactor: Transactor, revision: int | None = None, *, tenant: str) -> PolicyView:
    """One revision with its rules; without a number, the newest."""
    if revision is not None and not (type(revision) is int and 1 <= revision <= INT):
        raise InvalidInput("the revision of a policy is a whole number: 1, 2, 3, …")
    stored = await _stored(transactor, tenant, revision)
    return _revision(stored).extended(PolicyView, document=msgspec.json.decode(stored.document))


async def _stored(transactor: Transactor, tenant: str, revision: int | None) -> StoredPolicy:
    stored = await transactor.store.read_policy(tenant, revision)
    if stored is None:
        which = "no policy" if revision is None else f"no revision {revision} of a policy"
        raise NotFound(f"tenant {tenant} has {which}. `stepkeep policies list` lists what there is.")
    return stored


def _revision(stored: StoredPolicy) -> PolicyRevision:
    return PolicyRevision(
        revision=stored.revision,
        policy=stored.name,
        digest=stored.digest,
        published_at=instant(stored.published_at),
        published_by=stored.published_by,
    )


# -- replay ------------------------------------------------------------------------------------------------------------
async def replay_policy(transactor: Transactor, run_id: str, *, tenant: str) -> Replay:
    """Evaluate every verdict of a run again, by the facts on record and the revisions that were asked then."""
    found = await transactor.store.read_run(tenant, validate.run_id(run_id))
    if found is None:
        raise NotFound(f"there is no run {run_id}")
    plan = await plan_for(transactor, found.run)
    revisions: dict[int, Policy | None] = {}
    verdicts: list[ReplayedVerdict] = []
    after = 0
    while entries := await transactor.store.read_journal(tenant, run_id, after):
        for sealed in entries:
            for cause in open_entry(sealed.body).causes:
                for number in _revisions_in(cause):
                    if number not in revisions:
                        stored = await _stored(transactor, tenant, number)
                        revisions[number] = compiled(stored, transactor.plans.live.opened)
                verdicts += _replayed(plan, run_id, cause, sealed.seq, revisions, found.details.input)
        after = entries[-1].seq
    return Replay(run=run_id, ok=all(one.ok for one in verdicts), verdicts=verdicts)


def _on_record(cause: Cause) -> Mapping[str, Mapping[str, Any]]:
    found: Mapping[str, Mapping[str, Any]] = (cause.detail or {}).get("policy", {})
    return found


def _revisions_in(cause: Cause) -> list[int]:
    return [one["revision"] for one in _on_record(cause).values() if "revision" in one]


def _replayed(
    plan: Plan, run_id: str, cause: Cause, seq: int, revisions: Mapping[int, Policy | None], given: bytes
) -> list[ReplayedVerdict]:
    told = []
    for step, record in _on_record(cause).items():
        number = plan.number(step)
        if number is None:
            raise InvariantBroken(f"the journal of run {run_id} has a verdict on {step}, which its plan does not have")
        if record.get("by") in ("parent", "agent"):
            # By a run above, whose spending is in no journal of this run, or by the agent of the step: no rule says it.
            continue
        planned = plan.at(number)
        facts = {"run": run_facts(plan, run_id), "step": step_facts(plan, planned, 0), **record.get("facts", {})}
        live = revisions.get(record["revision"]) if "revision" in record else None
        verdict = asked_of([*plan.policies, *([] if live is None else [live])], facts, given)
        again = JudgedStep(effect=verdict.effect.value, rule=verdict.rule, reason=verdict.reason)
        said = {"effect": record["effect"], "rule": record.get("rule"), "reason": record.get("reason", "")}
        revision = record.get("revision")
        told.append(ReplayedVerdict(step=step, entry=seq, revision=revision, **said, again=again, ok=again == said))
    return told
