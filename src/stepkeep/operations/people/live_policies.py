"""Keeps the newest policy of each tenant for the decisions of this process.

A process keeps a compiled policy for at most two seconds of the database clock; then the next decision reads it again:
in its own transaction, or just before it if it rests on rows without locks. One that cannot be read denies every step.
It evaluates nothing itself: the kernel asks the compiled policy. Batches of decisions and of starts call it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from stepkeep.definition.policy import CompiledPolicy, PolicyDocument
from stepkeep.kernel.decide.policy import CANNOT_EVALUATE, Policy, Verdict
from stepkeep.kernel.definition import BudgetOf, PolicyEffect, SharedBudget, digest_of
from stepkeep.kernel.plan import Plan
from stepkeep.store.change import Loaded, SpendWindow, Spent, StoredPolicy

FRESH_US = 2_000_000
"""How long a process decides by a policy that it has read."""

Pin = tuple[str, int]
"""The revision that a run is pinned to: (tenant, number)."""

log = logging.getLogger(__name__)

_decode = msgspec.json.Decoder(PolicyDocument).decode


class BrokenPolicy:
    """A policy that this program cannot read: it denies every step, and says why."""

    is_pinned = counts_attempts = False

    def __init__(self, revision: int, problem: str) -> None:
        self.revision, self._problem = revision, problem

    def concerns(self, workflow: str, step: str) -> bool:
        return True

    def reads(self, workflow: str, step: str) -> frozenset[str]:
        return frozenset()

    def judge(self, facts: Mapping[str, Any], given: bytes | None = None) -> Verdict:
        return Verdict(effect=PolicyEffect.DENY, rule=CANNOT_EVALUATE, revision=self.revision, reason=self._problem)


class LivePolicies:
    """The newest policy of each tenant, as this process read it last."""

    def __init__(self, opened: Callable[[bytes], bytes] | None = None) -> None:
        self._read_at: dict[str, int] = {}
        self._policies: dict[str, Policy] = {}
        self._pinned: dict[Pin, Policy | None] = {}
        self._pinning_since: dict[str, int] = {}
        self._spend: dict[str, dict[int, tuple[Spent, ...]]] = {}
        self.opened = opened

    def stale(self, tenants: Iterable[str], loaded: Loaded) -> tuple[str, ...]:
        """Learn what was loaded; returns the tenants whose policy must be read before a decision."""
        while loaded.policies:
            # Each is learned once: the same transaction may go on seconds later, after a wait for a lock.
            tenant, stored = loaded.policies.popitem()
            self._learn(tenant, stored, loaded.now)
        while loaded.revisions:
            pin, found = loaded.revisions.popitem()
            self._pinned[pin] = None if found is None else compiled(found, self.opened)
        return tuple(sorted(one for one in set(tenants) if not self._is_fresh(one, loaded.now)))

    def _is_fresh(self, tenant: str, now: int) -> bool:
        read_at = self._read_at.get(tenant)
        return read_at is not None and abs(now - read_at) < FRESH_US

    def get(self, tenant: str) -> Policy | None:
        return self._policies.get(tenant)

    def has_pins(self, tenant: str) -> bool:
        """Whether runs of this tenant may be pinned to a revision."""
        return tenant in self._pinning_since

    def pin_for(self, tenant: str, now: int) -> int | None:
        """The revision that a run is pinned to that is created now.

        After the first revision that pins, none is for a while: a process that has not read that revision yet would not
        look for the pin.
        """
        policy = self.get(tenant)
        if policy is None or not policy.is_pinned or now < self._pinning_since[tenant] + 2 * FRESH_US:
            return None
        return policy.revision

    def knows(self, pin: Pin) -> bool:
        """Whether this process has read the revision that a run is pinned to. Revisions never change."""
        return pin in self._pinned

    def pinned(self, pin: Pin) -> Policy | None:
        return self._pinned[pin]

    # -- shared budgets ----------------------------------------------------------------------------------------------
    def unread_spend(self, tenants: Iterable[str], loaded: Loaded) -> tuple[SpendWindow, ...]:
        """Learn what was loaded; returns the windows of shared budgets that were not read since the policy was."""
        while loaded.spend:
            (tenant, per), spent = loaded.spend.popitem()
            self._spend.setdefault(tenant, {})[per] = spent
        wanted = {(tenant, per) for tenant in set(tenants) for per in self._windows(tenant)}
        return tuple(sorted(one for one in wanted if one[1] not in self._spend.get(one[0], ())))

    def _windows(self, tenant: str) -> set[int]:
        used = [self._policies.get(tenant)] if tenant in self._policies else []
        used += [policy for (owner, _), policy in self._pinned.items() if owner == tenant]
        return {budget.per for policy in used if isinstance(policy, CompiledPolicy) for budget in policy.budgets}

    def spend_of(self, policy: Policy | None, tenant: str, workflow: str) -> Mapping[str, Mapping[str, float]]:
        """What was spent of each shared budget of a policy, as a run of this workflow counts it."""
        if not isinstance(policy, CompiledPolicy) or not policy.budgets:
            return {}
        known = self._spend.get(tenant, {})
        return {budget.name: spent_of(budget, known.get(budget.per, ()), workflow) for budget in policy.budgets}

    def concerns_start(self, tenant: str, plan: Plan) -> bool:
        """Whether the policy of this tenant is about one of the first steps of a plan, or pins its runs."""
        policy, workflow = self.get(tenant), plan.definition.name
        if policy is not None and policy.is_pinned:
            return True
        return policy is not None and any(policy.concerns(workflow, plan.steps[no].name) for no in plan.roots)

    def forget(self, tenant: str) -> None:
        """The next decision reads the policy of this tenant again."""
        self._read_at.pop(tenant, None)

    def _learn(self, tenant: str, stored: StoredPolicy | None, now: int) -> None:
        if now < self._read_at.get(tenant, now) < now + FRESH_US:
            # Another transaction of this process has read it later.
            return
        self._read_at[tenant] = now
        self._spend.pop(tenant, None)
        known = self._policies.get(tenant)
        if stored is None:
            self._policies.pop(tenant, None)
        elif known is None or known.revision != stored.revision:
            policy = compiled(stored, self.opened)
            if (since := pinning_since(stored)) is not None:
                self._pinning_since[tenant] = since
            if policy is None:
                self._policies.pop(tenant, None)
            else:
                self._policies[tenant] = policy


def pinning_since(stored: StoredPolicy) -> int | None:
    """Since when runs may be pinned to this revision or an earlier one. To one that cannot be read they may."""
    try:
        document = _decode(stored.document)
    except msgspec.MsgspecError:
        return stored.published_at
    return stored.published_at if document.pins and document.pins_since is None else document.pins_since


def spent_of(budget: SharedBudget, spent: Iterable[Spent], workflow: str) -> dict[str, float]:
    """What counts towards a budget: the spending of all workflows, or of this one."""
    counted = [one for one in spent if budget.of is BudgetOf.TENANT or one.workflow == workflow]
    return {
        "usd": sum(one.usd for one in counted),
        "tokens": sum(one.tokens for one in counted),
        "attempts": float(sum(one.attempts for one in counted)),
    }


def compiled(stored: StoredPolicy, opened: Callable[[bytes], bytes] | None = None) -> Policy | None:
    """The policy of a revision; None if it has no rules. One that cannot be read denies everything."""
    named = f"revision {stored.revision} of the policy of tenant {stored.tenant}"
    if digest_of(stored.document) != stored.digest:
        return BrokenPolicy(stored.revision, f"{named} was changed in the database after it was published")
    try:
        document = _decode(stored.document)
        return CompiledPolicy(document, stored.revision, opened) if document.rules or document.budgets else None
    except Exception as problem:
        log.exception("%s cannot be read by this program", named)
        return BrokenPolicy(stored.revision, f"{named} cannot be read by this program: {problem}")
