"""Measure what expressions cost, and how much the limits let through: `python scripts/expression_costs.py`.

For each kind of work the data grows until the estimate refuses it; what was accepted last is timed. The first column of
times is for a condition, the second for the inputs of a step. Run it after a change of the CEL library or of a weight
in `definition/expressions/limits.py`; the figures in `docs/definitions.md` come from it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from stepkeep.definition.expressions.expressions import Expression, Scope, compile_expression
from stepkeep.definition.expressions.limits import MAX_CONDITION_COST, MAX_COST, CostBudget
from stepkeep.kernel.errors import ExpressionError

Make = Callable[[int], Any]


def texts(size: int) -> dict[str, Any]:
    return {"text": "a" * size, "same": "".join(["a"] * size), "part": "a" * (size // 2) + "b", "short": "a" * 10 + "b"}


def lists(size: int) -> dict[str, Any]:
    return {"list": [1] * size, "same": [1] * size, "texts": ["ab"] * size, "nested": [[1]] * size}


def maps(size: int) -> dict[str, Any]:
    return {"map": {str(n): n for n in range(size)}, "same": {str(n): n for n in range(size)}}


def nulls(size: int) -> dict[str, Any]:
    return {"list": [None] * size, "maps": [{"a": None}] * size}


def mixed(size: int) -> dict[str, Any]:
    return {"text": "ab" * size, "times": "1h" * size, "when": "2020-01-01T00:00:00." + "1" * size + "Z"}


WORK: tuple[tuple[str, Make], ...] = (
    ("input.list == 1", lists),
    ("input.nested == 1", lists),
    ("input.map == 1", maps),
    ("input.text == 'x'", texts),
    ("input.text == input.same", texts),
    ("input.text < input.same", texts),
    ("size(input.text) == 1", texts),
    ("input.text.startsWith(input.same)", texts),
    ("input.text.endsWith(input.same)", texts),
    ("input.text.contains(input.part)", texts),
    ("input.text.contains(input.short)", texts),
    (" || ".join(["input.text.contains(input.part)"] * 13), texts),
    ("input.list == input.same", lists),
    ("input.texts == input.texts", lists),
    ("input.nested == input.nested", lists),
    ("input.map == input.same", maps),
    ("2 in input.list", lists),
    ("'abc' in input.texts", lists),
    ("'x' in input.map", maps),
    ("input.list + input.list == input.same", lists),
    ("size(input.text + input.text + input.text) == 1", texts),
    ("size(" + " + ".join(["input.text"] * 20) + ") == 1", texts),
    ("size(bytes(input.text)) == 1", texts),
    ("size(string(bytes(input.text))) == 1", texts),
    ("int(input.text) == 1 || true", texts),
    ("double(input.text) == 1.0 || true", texts),
    ("duration(input.times) == duration('1h')", mixed),
    ("timestamp(input.when) == timestamp(input.when)", mixed),
    ("input.list.all(x, x == 1)", lists),
    ("input.list.exists(x, x == 2)", lists),
    ("input.list.exists_one(x, x == 2)", lists),
    ("size(input.list.map(x, x)) == 1", lists),
    ("size(input.list.filter(x, true)) == 1", lists),
    ("size(input.list.map(x, {'a': x, 'b': [x]})) == 1", lists),
    ("input.list.all(x, input.list.all(y, y == 1))", lists),
    ("size(input.list.map(x, input.list.map(y, y))) == 1", lists),
    ("input.list.all(x, !(2 in input.list))", lists),
    ("input.list.all(x, input.list == input.same)", lists),
    ("input.list.all(x, size(input.list + input.list) > 0)", lists),
    ("input.list.all(x, (input.list + input.list)[0] == 1)", lists),
    ("input.list.all(x, timestamp('2020-01-01T00:00:00Z').getHours('Europe/Berlin') >= 0)", lists),
    ("input.list.all(x, string(timestamp('2020-01-01T00:00:00Z')) != '')", lists),
    ("input.list.all(x, x.a.b == 1 || true)", lists),
    ("input.texts.all(x, x.matches('^[a-z]+$'))", lists),
    ("size(input.texts.filter(x, x.matches('^[a-z]+@[a-z.]+$'))) == 0", lists),
    (r"input.texts.all(x, !x.matches('(\\pL\\pN){19}'))", lists),
    ("input.texts.all(x, !x.matches('(a?){1000}c'))", lists),
    ("input.text.matches('(a|b)*a(a|b){100}c')", texts),
    ("input.text.matches('[ab]*a[ab]{200}c')", mixed),
    ("input.text.matches('(.{0,30}a){15}c')", mixed),
    (r"input.text.matches('(\\pL\\pN?){19}c')", texts),
    ("input.list + []", nulls),
    ("input.maps + []", nulls),
    ("input.list + []", lists),
    ("[input.text, input.text]", texts),
)


def accepted(expression: Expression, data: Any, cost: int) -> bool:
    """Whether the limits let this through; an error of the expression itself counts as evaluated."""
    try:
        expression.evaluate({"input": data}, CostBudget(cost))
    except ExpressionError as error:
        return not any(said in error.message for said in ("too much work", "are allowed", "more than 10000 items"))
    return True


def largest(expression: Expression, make: Make, cost: int) -> int:
    """The largest size that is accepted, within 5 %."""
    low, high = 0, 16
    while high < 1_000_000 and accepted(expression, make(high), cost):
        low, high = high, high * 2
    while high - low > max(1, low // 20):
        middle = (low + high) // 2
        low, high = (middle, high) if accepted(expression, make(middle), cost) else (low, middle)
    return low


def milliseconds(expression: Expression, data: Any, cost: int) -> float:
    best = float("inf")
    for _ in range(3):
        began = time.thread_time()
        accepted(expression, data, cost)
        best = min(best, time.thread_time() - began)
    return best * 1_000


def write(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    write(f"{'condition, ms':>14} {'of size':>9} {'inputs, ms':>12} {'of size':>9}  expression")
    worst = [0.0, 0.0]
    for source, make in WORK:
        expression = compile_expression(source, Scope())
        row = []
        for place, cost in enumerate((MAX_CONDITION_COST, MAX_COST)):
            size = largest(expression, make, cost)
            spent = milliseconds(expression, make(size), cost)
            worst[place] = max(worst[place], spent)
            row.append((spent, size))
        shown = source if len(source) <= 80 else f"{source[:80]}…"
        write(f"{row[0][0]:14.2f} {row[0][1]:9,} {row[1][0]:12.2f} {row[1][1]:9,}  {shown}")
    write(f"worst: {worst[0]:.2f} ms for a condition, {worst[1]:.2f} ms for inputs")


if __name__ == "__main__":
    main()
