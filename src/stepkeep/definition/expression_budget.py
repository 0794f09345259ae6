"""How much all expressions of one definition may cost to compile together.

A definition of a few megabytes can hold expressions that take minutes and gigabytes to compile, each of them small. The
cost is told from the text before it is compiled, so that the same definition is judged alike everywhere. Front ends put
a budget into the scopes of a definition (`conditions.scopes_of`); plans of stored definitions are built without one.
"""

from __future__ import annotations

from typing import Final

MAX_EXPRESSIONS: Final = 20_000
"""How many `${{ }}`, conditions and rules a definition may hold, equal ones included."""

MAX_COMPILE_COST: Final = 3_500_000
"""The most that different expressions may cost to compile, in units of about a microsecond."""

_EACH: Final = 60
_CHARACTER: Final = 5
# Measured on lists of thousands of each: what the parser is slow on, and what becomes several nodes of the tree.
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
    """Counts what was compiled. `is_spent` once anything was refused; nothing is compiled after that."""

    __slots__ = ("_cost", "_count", "is_spent")

    def __init__(self) -> None:
        self._count, self._cost = 0, 0
        self.is_spent = False

    def count(self) -> str:
        """Count one expression; says what is wrong when it is one too many."""
        self._count += 1
        if self._count <= MAX_EXPRESSIONS:
            return ""
        self.is_spent = True
        return f"The definition holds more than {MAX_EXPRESSIONS} expressions."

    def spend(self, cost: int) -> str:
        """Count the cost of an expression that is not compiled yet; says what is wrong when it is too much."""
        self._cost += cost
        if self._cost <= MAX_COMPILE_COST:
            return ""
        self.is_spent = True
        return "The expressions of the definition are too much work to compile, from this one on."


def text_cost(source: str) -> int:
    """What it costs to compile a text, without the regular expressions in it."""
    dearer = sum(source.count(character) * cost for character, cost in _DEARER.items())
    return _EACH + _CHARACTER * len(source) + dearer


def pattern_cost(instructions: int) -> int:
    """What it costs to compile a regular expression of so many instructions."""
    return _INSTRUCTION * instructions
