"""The compiler of definitions: the kernel's `Compiler` for expressions in CEL.

`opened` opens the payloads that expressions read, if these may be sealed; `sealed` seals what is made of them. It
evaluates nothing. Each process has one, in its cache of plans.

Expressions over messages: the filter of a wait, and its `until`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from stepkeep.definition.expressions.conditions import (
    compile_condition,
    compile_facts,
    compile_keys,
    compile_length,
    compile_truth,
)
from stepkeep.definition.expressions.elements import compile_growth
from stepkeep.definition.expressions.expressions import Expression, Scope
from stepkeep.definition.expressions.limits import CostBudget, ExpressionBudget, condition_cost
from stepkeep.definition.findings import evaluated
from stepkeep.definition.policy import policies_of
from stepkeep.kernel.compiler import Compiler, Condition, ConditionView, Facts, Grower, Keys, MessageTest, SleepLength
from stepkeep.kernel.decide.policy import Policy
from stepkeep.kernel.definition import Definition, Limit, StepDefinition
from stepkeep.kernel.errors import ExpressionError
from stepkeep.kernel.machine.payloads import MADE_HERE, read_reference

_decode = msgspec.json.Decoder().decode


class CompiledTest:
    """A filter or an `until`, implementing the kernel's `MessageTest` protocol."""

    def __init__(self, expression: Expression, several: bool, opened: Callable[[bytes], bytes] | None) -> None:
        self._expression, self._several, self._opened = expression, several, opened
        self.reads_input: bool = "input" in expression.roots

    def holds(self, view: ConditionView, messages: Sequence[bytes]) -> bool:
        """Whether it is true for these messages; raises ExpressionError if it cannot be evaluated."""
        payloads = [self._value("a message", one) for one in messages]
        context: dict[str, Any] = {"messages": payloads} if self._several else {"message": payloads[-1]}
        if self.reads_input:
            context["input"] = self._value("the input", view.input)
        found = self._expression.evaluate(context, CostBudget(condition_cost(1), is_condition=True))
        if not isinstance(found, bool):
            raise ExpressionError(f"`{self._expression.source}` comes to {evaluated(found)}, not to true or false.")
        return found

    def _value(self, what: str, payload: bytes) -> Any:
        if payload.startswith(MADE_HERE):
            if read_reference(payload) is not None:
                raise ExpressionError(f"{what} is kept outside its row: no filter reads it.")
            if self._opened is not None:
                payload = self._opened(payload)
        return _decode(payload)


def message_scope(several: bool, budget: ExpressionBudget | None = None) -> Scope:
    """The names of a filter, or with `several` of an `until`."""
    return Scope(facts={"messages" if several else "message": None, "input": None}, budget=budget)


def compile_test(source: str, several: bool, *, opened: Callable[[bytes], bytes] | None = None) -> CompiledTest:
    """Compile a filter of a wait, or its `until`. `opened` opens payloads that may be sealed."""
    return CompiledTest(compile_truth(source, message_scope(several, ExpressionBudget())), several, opened)


MOST_TESTS = 512
"""How many compiled filters of waits are kept."""


class ExpressionCompiler(Compiler):
    """Compiles what definitions say in expressions."""

    def __init__(self) -> None:
        self.opened: Callable[[bytes], bytes] | None = None
        self.sealed: Callable[[bytes], bytes] | None = None
        self._tests: dict[tuple[str, bool], MessageTest] = {}

    def condition(self, text: str, definition: Definition) -> Condition:
        return compile_condition(text, definition, opened=self.opened)

    def sleep_length(self, text: str, definition: Definition) -> SleepLength:
        return compile_length(text, definition, opened=self.opened)

    def message_test(self, text: str, several: bool) -> MessageTest:
        """A compiled filter. Those that handlers wait with come again with each message, so that some are kept."""
        known = self._tests.get((text, several))
        if known is None:
            known = compile_test(text, several, opened=self.opened)
            if len(self._tests) >= MOST_TESTS:
                self._tests.pop(next(iter(self._tests)))
            self._tests[text, several] = known
        return known

    def facts(self, facts: Mapping[str, str], definition: Definition) -> Facts:
        return compile_facts(facts, definition, opened=self.opened, sealed=self.sealed)

    def keys(self, limits: Sequence[Limit], definition: Definition) -> Keys:
        return compile_keys(limits, definition, opened=self.opened)

    def grower(self, step: StepDefinition, definition: Definition) -> Grower:
        return compile_growth(step, definition, opened=self.opened, sealed=self.sealed)

    def policies(self, definition: Definition) -> tuple[Policy, ...]:
        return policies_of(definition, opened=self.opened)
