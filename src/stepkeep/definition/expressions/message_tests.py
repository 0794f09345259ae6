"""Expressions over messages: the filter of a wait, and its `until`.

A filter reads `message`, the payload of one message; `until` reads `messages`, those that the wait has taken. Both read
`input`. They are evaluated while a transaction holds locks, within the limits of a condition. The kernel's plan and the
checks of definitions call it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from stepkeep.definition.expressions.conditions import compile_truth
from stepkeep.definition.expressions.expressions import Expression, Scope
from stepkeep.definition.expressions.limits import CostBudget, ExpressionBudget, condition_cost
from stepkeep.definition.findings import evaluated
from stepkeep.kernel.compiler import ConditionView
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
