"""One hop of a step with everything that a guard reads: its line, the step's past, its rule and its cause.

Values only. `enabled.py` checks such hops by the guards of `guards.py` and the timers of `timers.py`; `reenact.py` and
`words/shown.py` make them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from stepkeep.conformance.contract import Contract, PlannedRule, StepRule
from stepkeep.conformance.line import Line
from stepkeep.conformance.people import GateRule
from stepkeep.conformance.policies import Verdict
from stepkeep.conformance.report import Code, quoted
from stepkeep.conformance.steps import FollowedStep

Problem = tuple[Code, str]
JOURNAL_FORMAT = 2
"""The format of today's journals. Those before it do not tell for what a handler waits, nor that an attempt that was
closed is in doubt."""


class GuardedHop(NamedTuple):
    """A hop with everything that its guard reads. `asked` is the detail of its cause, and `verdict` what the
    policies said about the step. `is_stopping` is None where the log does not show whether its run stops."""

    line: Line
    step: FollowedStep
    place: PlannedRule
    contract: Contract
    asked: Mapping[str, Any]
    verdict: Verdict | None = None
    is_stopping: bool | None = False
    kept: int | None = None
    """When it ends, if it was open in the run that this one was migrated from."""
    format: int = JOURNAL_FORMAT
    """The format of the journal: an earlier program told less, and what it told is judged as today."""

    @property
    def gate(self) -> GateRule | None:
        """The terms of its gate: those of the policy that holds it, or those of its definition."""
        return self.step.terms or self.place.gate

    @property
    def rule(self) -> StepRule | None:
        return self.place.rule if self.place.phase == "main" else None

    @property
    def counted(self) -> int:
        """The attempts that the retry policy counts: those since the last retry by a person."""
        return (self.line.attempt or 0) - (self.step.spent or 0)

    @property
    def counted_with_loss(self) -> int:
        """The same after a lost lease, which uses up an attempt unless its handler was done or it is an undo."""
        return self.counted - (self.line.source != "running" or not self.place.retry.counts_losses)

    @property
    def is_budget_known(self) -> bool:
        """Whether the log shows every retry by a person; a step that never holds has none."""
        return not self.place.may_hold or self.step.spent is not None

    def is_in_time(self, due_at: int) -> bool | None:
        """Whether a retry that is due then keeps the limit of time; None where the log does not show it."""
        if self.place.retry.max_elapsed is None:
            return True
        began = self.step.began_at
        if began is None or not self.step.is_claim_known:
            return None
        return self.place.retry.is_in_time(due_at, began or self.step.claimed_at)


Guard = Callable[[GuardedHop], Iterator[Problem]]
Timer = Callable[[GuardedHop], object]
"""When time moves a step next, after a hop."""


def wrong_field(name: str, found: object, expected: object, why: str) -> str:
    """The text of a finding about one field."""
    return f"metadata.{name} is {quoted(found)}, expected {quoted(expected)}: {why}"
