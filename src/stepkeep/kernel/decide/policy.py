"""Policy as values: the verdict of rules on one step, before it becomes ready.

Rules are data. A compiled policy (of the `definition` package) evaluates them on facts alone, so that a verdict can be
replayed from the facts on record. `judging.py` asks it where a step opens and where a retry is due.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from stepkeep.kernel.definition import Approval, PolicyEffect

STRICTNESS = tuple(PolicyEffect)

CANNOT_EVALUATE = "cannot_evaluate"
"""The name that a verdict has in place of a rule if a rule cannot be evaluated."""


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

    @property
    def is_pinned(self) -> bool:
        """Whether runs that start under this revision keep it."""
        ...

    @property
    def counts_attempts(self) -> bool:
        """Whether a shared budget counts attempts: then each ended attempt must be found by its cost."""
        ...

    def concerns(self, workflow: str, step: str) -> bool: ...

    def reads(self, workflow: str, step: str) -> frozenset[str]: ...

    def judge(self, facts: Mapping[str, Any], given: bytes | None = None) -> Verdict:
        """The verdict on these facts. `given` is the input of the run as it is stored."""
        ...


def strictest(verdicts: Sequence[Verdict]) -> Verdict:
    """The verdict that counts among those of several policies: the strictest, then the first that names a rule.

    >>> strictest([Verdict(), Verdict(effect=PolicyEffect.DENY, rule="a"), Verdict(effect=PolicyEffect.HOLD)]).rule
    'a'
    """
    return max(verdicts, key=lambda one: (STRICTNESS.index(one.effect), one.rule is not None), default=Verdict())
