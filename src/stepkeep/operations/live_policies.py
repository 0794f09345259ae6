"""Keeps the newest policy of each tenant for the decisions of this process.

A process keeps a compiled policy for at most two seconds of the database clock; then the next decision reads it again
in its own transaction. One that cannot be read denies every step. It evaluates nothing itself: the kernel asks the
compiled policy. Batches of decisions and of starts call it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from stepkeep.definition.policy import CompiledPolicy, PolicyDocument
from stepkeep.kernel.definition import PolicyEffect, digest_of
from stepkeep.kernel.plan import Plan
from stepkeep.kernel.policy import CANNOT_EVALUATE, Policy, Verdict
from stepkeep.store.change import Loaded, StoredPolicy

FRESH_US = 2_000_000
"""How long a process decides by a policy that it has read."""

log = logging.getLogger(__name__)

_decode = msgspec.json.Decoder(PolicyDocument).decode


class BrokenPolicy:
    """A policy that this program cannot read: it denies every step, and says why."""

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
        self.opened = opened

    def stale(self, tenants: Iterable[str], loaded: Loaded) -> tuple[str, ...]:
        """Learn what was loaded; returns the tenants whose policy must be read before a decision."""
        while loaded.policies:
            # Each is learned once: the same transaction may go on seconds later, after a wait for a lock.
            tenant, stored = loaded.policies.popitem()
            self._learn(tenant, stored, loaded.now)
        return tuple(sorted(one for one in set(tenants) if not self._is_fresh(one, loaded.now)))

    def _is_fresh(self, tenant: str, now: int) -> bool:
        read_at = self._read_at.get(tenant)
        return read_at is not None and abs(now - read_at) < FRESH_US

    def get(self, tenant: str) -> Policy | None:
        return self._policies.get(tenant)

    def concerns_start(self, tenant: str, plan: Plan) -> bool:
        """Whether the policy of this tenant is about one of the first steps of a plan."""
        policy, workflow = self.get(tenant), plan.definition.name
        return policy is not None and any(policy.concerns(workflow, plan.steps[no].name) for no in plan.roots)

    def forget(self, tenant: str) -> None:
        """The next decision reads the policy of this tenant again."""
        self._read_at.pop(tenant, None)

    def _learn(self, tenant: str, stored: StoredPolicy | None, now: int) -> None:
        if now < self._read_at.get(tenant, now) < now + FRESH_US:
            # Another transaction of this process has read it later.
            return
        self._read_at[tenant] = now
        known = self._policies.get(tenant)
        if stored is None:
            self._policies.pop(tenant, None)
        elif known is None or known.revision != stored.revision:
            policy = compiled(stored, self.opened)
            if policy is None:
                self._policies.pop(tenant, None)
            else:
                self._policies[tenant] = policy


def compiled(stored: StoredPolicy, opened: Callable[[bytes], bytes] | None = None) -> Policy | None:
    """The policy of a revision; None if it has no rules. One that cannot be read denies everything."""
    named = f"revision {stored.revision} of the policy of tenant {stored.tenant}"
    if digest_of(stored.document) != stored.digest:
        return BrokenPolicy(stored.revision, f"{named} was changed in the database after it was published")
    try:
        document = _decode(stored.document)
        return CompiledPolicy(document, stored.revision, opened) if document.rules else None
    except Exception as problem:
        log.exception("%s cannot be read by this program", named)
        return BrokenPolicy(stored.revision, f"{named} cannot be read by this program: {problem}")
