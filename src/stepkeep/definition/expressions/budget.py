"""Limits the total cost of compiling all expressions of one definition.

A definition of a few megabytes can hold small expressions that take minutes and gigabytes to compile. The cost is
estimated from the text before compilation, so that the same definition is accepted or refused everywhere. Front ends
put a budget into the scopes of a definition (`conditions.scopes_of`); plans of stored definitions are built without
one.
"""

from __future__ import annotations

from typing import Final

MAX_EXPRESSIONS: Final = 20_000
"""How many `${{ }}`, conditions and rules a definition may hold, equal ones included."""

MAX_COMPILE_COST: Final = 3_500_000
"""The largest compilation cost of all different expressions, in units of about a microsecond."""

_EACH: Final = 60
_CHARACTER: Final = 5
# Measured on lists of thousands of each: slow constructs of the parser, and those that become several nodes.
_DEARER: Final = {
    "(": 120,
    "-": 60,
    "{": 35,
    "[": 20,
    "+": 20,
    "*": 20,
    "/": 20,
    "%": 20,
    "?": 20,
    "<": 25,
    ">": 25,
    "=": 5,
    ",": 10,
}
_INSTRUCTION: Final = 2
"""The cost of an instruction of a regular expression."""


class ExpressionBudget:
    """Counts what was compiled. `is_spent` after the first refusal; nothing is compiled after that."""

    __slots__ = ("_cost", "_count", "is_spent")

    def __init__(self) -> None:
        self._count, self._cost = 0, 0
        self.is_spent = False

    def count(self) -> str:
        """Count one expression; returns the problem if it is one too many."""
        self._count += 1
        if self._count <= MAX_EXPRESSIONS:
            return ""
        self.is_spent = True
        return f"The definition holds more than {MAX_EXPRESSIONS} expressions."

    def spend(self, cost: int) -> str:
        """Count the cost of an expression that is not compiled yet; returns the problem if it is too much."""
        self._cost += cost
        if self._cost <= MAX_COMPILE_COST:
            return ""
        self.is_spent = True
        return "The expressions of the definition are too much work to compile, from this one on."


def text_cost(source: str) -> int:
    """The cost of compiling a text, without its regular expressions."""
    dearer = sum(source.count(character) * cost for character, cost in _DEARER.items())
    return _EACH + _CHARACTER * len(source) + dearer


def pattern_cost(instructions: int) -> int:
    """The cost of compiling a regular expression of this many instructions."""
    return _INSTRUCTION * instructions
