"""The rules of a step or of the run, prepared for evaluation: compiled expressions, schemas and programs.

It evaluates nothing and runs nothing. `prepared` makes the checks of a step once; the rules' executor uses them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec import UNSET

from stepkeep.definition.expressions.conditions import CompiledCondition, compile_rule
from stepkeep.definition.expressions.json_schema import Shape
from stepkeep.definition.python.registry import HandlerSpec, Registry
from stepkeep.kernel.definition import Handler, Rule
from stepkeep.kernel.plan import Plan
from stepkeep.worker.attempts.classify import BindingError
from stepkeep.worker.attempts.misfits import MisfitError
from stepkeep.worker.attempts.templates import Template, compiled


class Check(NamedTuple):
    """One rule. Exactly one of `condition`, `shape` and `program` is set.

    `shaped` is the value that the schema is about, or None for the outputs of the last steps. `spec` is the handler of
    a program that is a function.
    """

    rule: Rule
    condition: CompiledCondition | None = None
    shape: Shape | None = None
    shaped: Template | None = None
    program: Template | None = None
    inputs: Template | None = None
    spec: HandlerSpec | None = None

    @property
    def title(self) -> str:
        """What the rule is called where it failed."""
        if self.rule.name is not UNSET:
            return self.rule.name
        program = self.rule.program
        if program is UNSET:
            return ""
        return program.name if isinstance(program, Handler) else program.argv[0]

    @property
    def templates(self) -> Iterable[Template]:
        return (one for one in (self.shaped, self.program, self.inputs) if one is not None)


def checks_of(rules: Sequence[Rule], plan: Plan, step: str, registry: Registry) -> tuple[Check, ...]:
    """The checks of these rules, which belong to this step. Raises MisfitError for a handler that is not here."""
    return tuple(_check(rule, plan, step, registry, len(rules)) for rule in rules)


def _check(rule: Rule, plan: Plan, step: str, registry: Registry, among: int) -> Check:
    if rule.schema is not UNSET:
        output = plan.definition.output
        return Check(rule, shape=Shape(rule.schema), shaped=None if output is None else compiled(output, plan))
    if rule.program is UNSET:
        return Check(rule, condition=compile_rule(rule.expression, plan.definition, step, among))
    inputs = compiled(None if rule.inputs is UNSET else rule.inputs, plan, step)
    spec = _spec(rule.program.name, registry) if isinstance(rule.program, Handler) else None
    return Check(rule, program=compiled(rule.program, plan, step), inputs=inputs, spec=spec)


def _spec(name: str, registry: Registry) -> HandlerSpec:
    spec = registry.get(name)
    if spec is None:
        raise MisfitError(name, f"this worker has no handler {name} for a rule; load its module with --app")
    if spec.runs_in == "process" or spec.transactional:
        raise BindingError(f"handler {name} cannot be a rule: it runs in a process or a transaction of its own")
    return spec
