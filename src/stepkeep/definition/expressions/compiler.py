"""The compiler of definitions: the kernel's `Compiler` for expressions in CEL.

`opened` opens the payloads that expressions read, if these may be sealed; `sealed` seals what is made of them. It
evaluates nothing. Each process has one, in its cache of plans.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from stepkeep.definition.expressions.compiled_policy import policies_of
from stepkeep.definition.expressions.conditions import compile_condition, compile_facts, compile_keys, compile_length
from stepkeep.definition.expressions.elements import compile_growth
from stepkeep.definition.expressions.message_tests import compile_test
from stepkeep.kernel.compiler import Compiler, Condition, Facts, Grower, Keys, MessageTest, SleepLength
from stepkeep.kernel.decide.policy import Policy
from stepkeep.kernel.definition import Definition, Limit, StepDefinition

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
