"""Evaluates the rules of a step, and those of the run at its end: conditions that must hold before a result counts.

A rule that does not hold, or cannot be evaluated, fails the step with the text of the rule. No user function runs here,
but expressions are user text, so they are kept off the worker's loop.
"""

from __future__ import annotations

from stepkeep.errors import ExpressionError
from stepkeep.kernel.outcomes import Outcome, RulesFailed, RulesPassed
from stepkeep.kernel.plan import PlannedStep
from stepkeep.worker.executor import Job, PoolKind
from stepkeep.worker.payloads import storable_text


class RulesExecutor:
    """Evaluates rules of steps in `validating`, and the final check."""

    spec = None

    def pool(self, planned: PlannedStep) -> PoolKind:
        return PoolKind.RULES

    def run(self, job: Job) -> Outcome:
        broken, view = [], job.view()
        for rule, condition in job.prepared.rules:
            try:
                if not condition.holds(view):
                    broken.append(rule.message or f"the rule does not hold: {rule.expression}")
            except ExpressionError as problem:
                broken.append(f"the rule cannot be evaluated: {rule.expression}: {problem}")
        return RulesFailed(error=storable_text("; ".join(broken))) if broken else RulesPassed()
