"""Expressions: random CEL from a grammar and mutated text, evaluated on hostile data, as condition and as template.

Judges that an evaluation ends in a storable value or a typed error, costs bounded time, changes no input and loses no
reference to None.
"""

from __future__ import annotations

import copy
import re
import sys
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import msgspec

from stepkeep.definition.expressions.conditions import compile_truth, scopes_of
from stepkeep.definition.expressions.expressions import compile_expression, compile_template
from stepkeep.kernel.errors import ExpressionError
from stepkeep_lab.fuzz.chance import changed_text, json_value, nested, shorter, shorter_text, smaller_tree
from stepkeep_lab.fuzz.target import Limits, Target, Verdict, broken

SCOPES = scopes_of(("a", "b-c"), None)
NOISE = 50
"""By how much the number of references to None may move without this being a leak."""

ROOTS = (
    "input",
    "input.l",
    "input.m",
    "input.t",
    "input.n",
    "input.x",
    "input.z",
    'input["odd key"]',
    "input.l[0]",
    "input.m.k",
    "steps.a.output",
    'steps["b-c"].output',
    "steps.a.output.v",
    "run.id",
    "run.version",
    "output",
    "steps.a.state",
)
LITERALS = (
    "null",
    "true",
    "false",
    "0",
    "1",
    "-1",
    "7u",
    "1.5",
    "9223372036854775807",
    "-9223372036854775808",
    "1e308",
    '""',
    '"a"',
    "'x\\u0000y'",
    "r'\\d+'",
    "b'ab'",
    '"é😀"',
    "[]",
    "[null]",
    "{}",
    "[1, 'a', null]",
    "{'a': null, 'b': [null]}",
    "{1: 2}",
    "{true: 1}",
    "{1.5: 2}",
    "duration('1h')",
    "timestamp('2026-01-01T00:00:00Z')",
)
BINARY = ("+", "-", "*", "/", "%", "==", "!=", "<", "<=", ">", ">=", "&&", "||", "in")
CALLS = (
    "size({0})",
    "string({0})",
    "int({0})",
    "double({0})",
    "uint({0})",
    "bool({0})",
    "bytes({0})",
    "dyn({0})",
    "type({0})",
    "duration({0})",
    "timestamp({0})",
    "has(input.{2})",
    "{0}.contains({1})",
    "{0}.startsWith({1})",
    "{0}.endsWith({1})",
    "{0}.matches({1})",
    "{0}.matches('(a*)*b')",
    "{0}.map(x, {1})",
    "{0}.map(x, x)",
    "{0}.map(x, [x, null, {1}])",
    "{0}.filter(x, {1})",
    "{0}.filter(x, x == null)",
    "{0}.all(x, {1})",
    "{0}.exists(x, x == {1})",
    "{0}.exists_one(x, x == {1})",
    "{0}.map(x, {0}.map(y, [x, y]))",
    "{0}[{1}]",
    "{0}.k",
    "{0} + {0}",
    "[{0}, {1}]",
    "{{'k': {0}, 'v': {1}}}",
    "({0} ? {1} : null)",
    "({1} == null ? null : {0})",
    "!{0}",
    "-{0}",
    "{0}.getFullYear()",
    "nonsense({0})",
)

TYPED = {
    "list": (
        ("input.l", "[]", "[null]", "[1, 'a', null]", "input.m['odd key']"),
        (
            "<list> + <list>",
            "<list> + [<any>]",
            "<list>.map(x, <any>)",
            "<list>.map(x, x)",
            "<list>.map(x, [x, null])",
            "<list>.filter(x, <bool>)",
            "<list>.filter(x, x == null)",
            "<list>.map(x, <list>.map(y, y))",
            "[<any>, <any>, null]",
            "(<bool> ? <list> : <list>)",
        ),
    ),
    "text": (
        ("input.t", "'a'", "''", "run.id", "'é😀'", "'aaaaaaaaab'"),
        ("<text> + <text>", "string(<number>)", "string(<bool>)", "(<bool> ? <text> : 'b')", "string(input.n)"),
    ),
    "number": (
        ("input.n", "1", "0", "-1", "run.version", "9007199254740991"),
        (
            "<number> + <number>",
            "<number> * <number>",
            "<number> % 7",
            "<number> / <number>",
            "size(<list>)",
            "size(<text>)",
            "int(<text>)",
            "double(<number>)",
            "-<number>",
        ),
    ),
    "bool": (
        ("true", "false", "has(input.x)", "input.n == null", "input.z == null"),
        (
            "<any> == <any>",
            "<any> in <list>",
            "<text>.contains(<text>)",
            "<text>.startsWith(<text>)",
            "<text>.endsWith(<text>)",
            "<text>.matches('(a|b)*c')",
            "<text>.matches(<text>)",
            "<number> < <number>",
            "<list>.all(x, <bool>)",
            "<list>.exists(x, x == <any>)",
            "<list>.exists_one(x, x == null)",
            "!<bool>",
            "<bool> && <bool>",
            "<bool> || <bool>",
            "size(<list>) > <number>",
        ),
    ),
    "value": (
        (
            "null",
            "input",
            "input.x",
            "input.m",
            "steps.a.output",
            'steps["b-c"].output',
            'input["odd key"]',
            "input.m.k",
        ),
        (
            "{'k': <any>, 'v': <any>}",
            "{<text>: <any>}",
            "(<bool> ? <any> : null)",
            "(has(input.x) ? input.x : null)",
            "(<bool> ? null : <any>)",
            "dyn(<any>)",
        ),
    ),
}
"""By kind: what stands by itself, and forms with holes for other kinds."""

_HOLE = re.compile(r"<(any|list|text|number|bool|value)>")


class Evaluation(msgspec.Struct, frozen=True):
    """A source, how it is used, and the data it reads."""

    source: str
    use: str
    context: dict[str, Any]


Evaluate = Callable[[Evaluation], Any]


def evaluate(case: Evaluation) -> Any:
    """What the engine makes of an expression: compiled in the scope of its use, then evaluated."""
    if case.use == "condition":
        return compile_truth(case.source, SCOPES.condition).evaluate(case.context)
    if case.use == "rule":
        return compile_truth(case.source, SCOPES.rule).evaluate(case.context)
    if case.use == "expression":
        return compile_expression(case.source, SCOPES.rule).evaluate(case.context)
    value: Any = f"${{{{ {case.source} }}}}"
    if case.use == "text":
        value = f"a {value} b {value}"
    elif case.use == "tree":
        value = {"k": [value, {"c": "constant", "d": value}], "e": None}
    return compile_template(value, SCOPES.template).render(case.context)


class Expressions(Target[Evaluation]):
    name = "expressions"
    what = "Random CEL and mutated text on hostile data, as conditions, rules and templates."
    holds = (
        "An evaluation ends in a value that a store takes or in a typed error. It changes no input, "
        "loses no reference to None and ends within its time."
    )
    limits = Limits(cpu_seconds=3.0, wall_seconds=60.0, memory_mb=700, batch=500)

    def __init__(self, evaluate: Evaluate = evaluate) -> None:
        self._evaluate = evaluate

    def generate(self, random: Random) -> Evaluation:
        depth = random.randint(0, 3)
        source = _typed(random, "any", depth) if random.random() < 0.7 else _wild(random, depth)
        if random.random() < 0.15:
            source = changed_text(random, source)
        use = random.choice(("condition", "rule", "expression", "template", "text", "tree"))
        return Evaluation(source, use, _context(random))

    def check(self, case: Evaluation) -> Verdict:
        given = copy.deepcopy(case.context)
        before = sys.getrefcount(None)
        verdict = self._verdict(case)
        # Counted once the value is gone: what it held must have been given back, and nothing else.
        lost = before - sys.getrefcount(None)
        if sys.version_info < (3, 12) and lost > NOISE:
            # A cache that let go of something looks the same, but only once.
            lost = min(lost, *(self._lost(case) for _ in range(3)))
            if lost > NOISE:
                return broken("loses no reference to None", f"{lost} references are gone")
        if case.context != given:
            return broken("leaves its input alone", "the context changed")
        return verdict

    def _lost(self, case: Evaluation) -> int:
        before = sys.getrefcount(None)
        self._verdict(case)
        return before - sys.getrefcount(None)

    def _verdict(self, case: Evaluation) -> Verdict:
        try:
            value = self._evaluate(case)
        except ExpressionError:
            return Verdict(outcome="refused")
        return _storable(value) or Verdict(outcome="value")

    def show(self, case: Evaluation) -> str:
        return f"{case.use}: {case.source!r} on {_short(case.context)}"

    def smaller(self, case: Evaluation) -> Iterator[Evaluation]:
        for context in smaller_tree(case.context):
            yield Evaluation(case.source, case.use, context)
        for name, value in case.context["input"].items() if isinstance(case.context.get("input"), dict) else ():
            if isinstance(value, list) and len(value) > 4:
                for fewer in shorter(value):
                    yield Evaluation(case.source, case.use, {**case.context, "input": {name: fewer}})
                    break
        for source in shorter_text(case.source):
            yield Evaluation(source, case.use, case.context)


def _storable(value: Any) -> Verdict | None:
    try:
        encoded = msgspec.json.encode(value)
        again = msgspec.json.decode(encoded)
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError) as error:
        return broken("gives a value that a store takes", f"{type(error).__name__}: {error}")
    if again != value:
        return broken("gives a value that a store takes", "it reads back different")
    if b"\\u0000" in encoded:
        return broken("gives a value that a store takes", "a text holds NUL")
    return None


def _typed(random: Random, kind: str, depth: int) -> str:
    """An expression that is likely to have a value of this kind."""
    if kind == "any":
        kind = random.choice(tuple(TYPED))
    leaves, forms = TYPED[kind]
    if depth == 0:
        return random.choice(leaves)
    return _HOLE.sub(lambda found: _typed(random, found[1], depth - 1), random.choice(forms))


def _wild(random: Random, depth: int) -> str:
    """An expression by its syntax alone; its types rarely fit."""
    if depth == 0 or random.random() < 0.15:
        return random.choice(ROOTS if random.random() < 0.7 else LITERALS)
    if random.random() < 0.4:
        one, other = _wild(random, depth - 1), _wild(random, depth - 1)
        return f"({one} {random.choice(BINARY)} {other})"
    parts = _wild(random, depth - 1), _wild(random, depth - 1), random.choice("lmtnxz")
    return random.choice(CALLS).format(*parts)


def _context(random: Random) -> dict[str, Any]:
    given = {
        "l": _list(random),
        "m": {"k": json_value(random, storable=True), "n": None, "odd key": [None, None]},
        "t": _text(random),
        "n": random.choice((0, 1, -1, 1.5, 2**53 - 1, None)),
        "x": json_value(random, storable=True),
        "odd key": json_value(random, storable=True),
    }
    if random.random() < 0.2:
        del given[random.choice(tuple(given))]
    whole: Any = given if random.random() < 0.9 else json_value(random, storable=True)
    return {
        "input": whole,
        "steps": {
            "a": {"output": {"v": json_value(random, storable=True)}, "state": "succeeded"},
            "b-c": {"output": None, "state": "failed"},
        },
        "run": {"id": "r", "workflow": "w", "version": 1},
        "output": json_value(random, storable=True),
    }


def _list(random: Random) -> Any:
    kind = random.randrange(8)
    if kind == 0:
        return [None] * random.choice((1, 100, 999, 1_000, 1_001, 20_000))
    if kind == 1:
        return [[None, None]] * random.choice((10, 900))
    if kind == 2:
        return list(range(random.choice((10, 999, 1_000))))
    if kind == 3:
        return ["a" * random.choice((10, 1_000))] * random.choice((10, 400))
    if kind == 4:
        return nested(random.choice((10, 30, 100, 250)), mapping=random.random() < 0.5)
    if kind == 5:
        return [{"k": None, "v": [None] * 10}] * random.choice((10, 200))
    return [json_value(random, storable=True) for _ in range(random.randrange(6))]


def _text(random: Random) -> str:
    return random.choice(
        (
            "",
            "a",
            "a" * 1_000,
            "a" * 230_000 + "b",
            "a" * 460_000,
            "ab" * 20_000,
            "é" * 1_000,
            "2026-01-01T00:00:00Z",
        )
    )


def _short(context: dict[str, Any]) -> str:
    """The data with long texts and lists told by their length."""
    return repr(_brief(context, 8))


def _brief(value: Any, depth: int) -> Any:
    if isinstance(value, str) and len(value) > 40:
        return f"{value[:20]}… ({len(value)} characters)"
    if isinstance(value, (list, dict)) and depth == 0:
        return "…"
    if isinstance(value, list):
        shown = [_brief(item, depth - 1) for item in value[:4]]
        return [*shown, f"… ({len(value)} items)"] if len(value) > 4 else shown
    if isinstance(value, dict):
        return {key: _brief(item, depth - 1) for key, item in value.items()}
    return value
