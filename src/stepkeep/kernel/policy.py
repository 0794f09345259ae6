"""Policy as values: rules that allow, hold or deny a step before it becomes ready, and the verdict on one step.

Rules are data. A compiled policy (of the `definition` package) evaluates them on facts alone, so that a verdict can be
replayed from the facts on record. The kernel asks it where a step opens and where a retry is due.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any, Protocol

import msgspec

from stepkeep.kernel.definition import Approval


class PolicyEffect(StrEnum):
    """What a rule does to a step. The order is that of strictness."""

    ALLOW = "allow"
    HOLD = "hold"
    DENY = "deny"


STRICTNESS = tuple(PolicyEffect)

CANNOT_EVALUATE = "cannot_evaluate"
"""The name that a verdict has in place of a rule if a rule cannot be evaluated."""


class PolicyRule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One rule: for which workflows and steps (patterns; none: all), when, and what follows.

    `when` is an expression over the facts; None means always. `approval` is the gate of a `hold`.
    """

    name: str
    then: PolicyEffect
    when: str | None = None
    reason: str = ""
    workflows: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    approval: Approval | None = None

    def concerns(self, workflow: str, step: str) -> bool:
        return _among(workflow, self.workflows) and _among(step, self.steps)


def _among(name: str, patterns: Sequence[str]) -> bool:
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


class Verdict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a policy says about one step. `rule` is None where no rule spoke, which allows.

    `revision` is the number of the live policy; None is the policy of the definition.
    """

    effect: PolicyEffect = PolicyEffect.ALLOW
    rule: str | None = None
    revision: int | None = None
    reason: str = ""
    approval: Approval | None = None


class Policy(Protocol):
    """A compiled policy. `reads` are the parts of the facts that its rules for a step need."""

    @property
    def revision(self) -> int | None: ...

    def reads(self, workflow: str, step: str) -> frozenset[str]: ...

    def judge(self, facts: Mapping[str, Any]) -> Verdict: ...


def strictest(verdicts: Sequence[Verdict]) -> Verdict:
    """The verdict that counts among those of several policies: the strictest, and of equals the first.

    >>> strictest([Verdict(), Verdict(effect=PolicyEffect.DENY, rule="a"), Verdict(effect=PolicyEffect.HOLD)]).rule
    'a'
    """
    return max(verdicts, key=lambda one: STRICTNESS.index(one.effect), default=Verdict())
