"""How much work an expression may be: an upper bound of its cost on given data, taken before CEL evaluates it.

CEL holds the interpreter's lock while it works and cannot be interrupted, and conditions are evaluated while a
transaction holds locks. So the tree is walked once with sizes in place of values, and too much is refused: `contains`
costs the product of its texts, loops that build lists the square of their length, and text doubles with every `x + x`.
It also refuses lists built from maps, whose order CEL changes from one process to the next. Called by `expressions`.

The unit of cost is about a nanosecond. `ExpressionBudget` adds up what compiling all expressions of one definition
costs. `scripts/expression_costs.py` measures what each function takes and how far the estimate lies above it; the
weights below are rounded up from that.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from stepkeep.definition.expressions.syntax_tree import Call, Constant, ListOf, Loop, MapOf, Name, Node, Select, walk
from stepkeep.kernel.errors import ExpressionError

MAX_DATA: Final = 1_000_000
"""The most that one expression may read, in bytes of JSON; a plain path such as `input.file` passes any size."""

MAX_COST: Final = 150_000_000
"""What all expressions of one value (inputs of a step, a rule, an output) may cost together: some 100 ms at most."""

MAX_CONDITION_COST: Final = 5_000_000
"""What one condition may cost: at most 5 ms."""

MAX_CONDITIONS_COST: Final = 200_000_000
"""What all conditions of a definition may cost together, because one decision may have to evaluate all of them."""

MAX_RULES_COST: Final = 1_000_000_000
"""What all rules of a step may cost together."""

MIN_CONDITION_COST: Final = 100_000
"""What each condition and each rule may cost in any case, however many there are."""

MAX_LIST: Final = 1_000
MAX_PATTERN: Final = 256
MAX_PATTERN_PROGRAM: Final = 20_000

# Costs. A mass is the bytes of a value and _ITEM for each value in it.
_ITEM: Final = 32
_EVALUATION: Final = 10_000
_READ_ITEM: Final = 150
_READ_ENTRY: Final = 400
_READ_BYTE: Final = 3
_MADE_ITEM: Final = 300
_MADE_NULL: Final = 700
_LITERAL_ITEM: Final = 300
_NODE: Final = 200
_LOOK: Final = 100
_COMPARED: Final = 3
_COPIED_BYTE: Final = 6
_COPIED_ITEM: Final = 80
_SCANNED: Final = 35
_SEARCHED: Final = 10
_SEARCHED_TWICE: Final = 60
"""`contains` compares this many characters in one unit, at each place of the text."""
_BUILT_LIST: Final = 35
_PATTERN: Final = 15_000
_PATTERN_COMPILED: Final = 1_000
_PATTERN_MATCHED: Final = 10
_CALENDAR: Final = 2_000

_PATTERN_TOKEN = re.compile(
    r"""
      \(\?P?<[^>)]*> | \(\?[a-zA-Z-]*:? | [()]
    | \{(?P<low>[0-9]{1,9})(?:,(?P<high>[0-9]{0,9}))?\}
    | \[\^?\]?(?:\[:\^?[a-z]+:\]|\\.|[^\]\\])*\]
    | \\[pP](?:\{[^}]*\}|.) | \\. | .
    """,
    re.VERBOSE | re.DOTALL,
)
_encode = msgspec.json.Encoder().encode


class Weight(NamedTuple):
    """The size of data: bytes of JSON, values, those that have a key, and whether there may be a null among them."""

    size: int
    items: int
    entries: int
    may_hold_null: bool

    @property
    def mass(self) -> int:
        return self.size + _ITEM * self.items

    @property
    def reading_cost(self) -> int:
        """What it costs to hand the data to CEL."""
        return _EVALUATION + _READ_BYTE * self.size + _READ_ITEM * self.items + _READ_ENTRY * self.entries


class CostBudget:
    """What evaluations may still cost together. One for each rendering or condition; not shared between threads."""

    __slots__ = ("_refusal", "remaining")

    def __init__(self, cost: int = MAX_COST, *, is_condition: bool = False) -> None:
        self.remaining = cost
        self._refusal = _CONDITION_REFUSAL if is_condition else _REFUSAL

    def spend(self, cost: int) -> None:
        """Take this much, or raise ExpressionError."""
        self.remaining -= cost
        if self.remaining < 0:
            said, hint = self._refusal
            raise ExpressionError(said, hint=hint)


_REFUSAL: Final = ("it is too much work for the data that it reads.", "Do it in a step.")
_CONDITION_REFUSAL: Final = (
    "it is too much work for a condition on the data that it reads.",
    "Do it in a step before, and let the condition read its output.",
)


def condition_cost(conditions: int) -> int:
    """What each of this many conditions of a definition may cost."""
    return max(MIN_CONDITION_COST, min(MAX_CONDITION_COST, MAX_CONDITIONS_COST // max(conditions, 1)))


def rule_cost(rules: int) -> int:
    """What each of this many rules of a step may cost."""
    return max(MIN_CONDITION_COST, min(MAX_COST, MAX_RULES_COST // max(rules, 1)))


def data_weight(data: object) -> Weight:
    """The size of data; raises ExpressionError for what CEL would cut short, round or crash on."""
    try:
        encoded = _encode(data)
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ExpressionError(f"the data that it reads cannot be used: {_reason(error)}.") from None
    if len(encoded) > MAX_DATA:
        raise ExpressionError(
            f"it reads {len(encoded)} bytes of data, and {MAX_DATA} are allowed.",
            hint="Read single fields, or pass the value on whole.",
        )
    # CEL ends a text at its first NUL and says nothing. The escape may also be part of the text itself.
    if b"\\u0000" in encoded and _holds_nul(data):
        raise ExpressionError("the data that it reads holds a NUL character.")
    return Weight(len(encoded), _items(encoded), encoded.count(b'":'), b"null" in encoded)


def _items(encoded: bytes) -> int:
    """At most this many values are in this JSON, a mapping for four. What looks like one inside a text counts, too."""
    return encoded.count(b",") + encoded.count(b"[") + 4 * encoded.count(b"{") + 1


def pattern_program(pattern: str) -> int:
    """A generous guess at how many instructions a regular expression compiles to."""
    return pattern_units(pattern, _PROGRAM)


def _pattern_cost(pattern: str, size: int) -> int:
    """What it costs to compile a regular expression, which CEL does for each call, and to match a text with it."""
    compiled = _PATTERN_COMPILED * pattern_units(pattern, _COMPILING)
    return _PATTERN + compiled + _PATTERN_MATCHED * pattern_units(pattern, _MATCHING) * size


class Atoms(NamedTuple):
    """What a Unicode class, another class (or any character) and a single character count for in a pattern."""

    unicode: int
    some: int
    one: int


_PROGRAM: Final = Atoms(500, 20, 1)
_COMPILING: Final = Atoms(1_600, 6, 1)
_MATCHING: Final = Atoms(20, 6, 1)


def pattern_units(pattern: str, atoms: Atoms) -> int:
    """What the parts of a pattern count for together, repetitions written out."""
    groups, last = [0], 0
    for token in _PATTERN_TOKEN.finditer(pattern):
        match token[0][0]:
            case "(":
                groups.append(0)
                continue
            case ")" if len(groups) > 1:
                last = groups.pop()
            case "{" if token["low"]:
                copies = max(1, int(token["low"]), int(token["high"] or 0))
                groups[-1] += last * (copies - 1)
                last *= copies
                continue
            case _:
                last = _atom(token[0], atoms)
        groups[-1] = min(groups[-1] + last, _MAX_UNITS)
    return sum(groups) * (2 if "(?i" in pattern else 1)


_MAX_UNITS: Final = 1_000_000


def _atom(atom: str, atoms: Atoms) -> int:
    if "\\p" in atom or "\\P" in atom:
        return atoms.unicode
    return atoms.some if atom[0] in ".[\\" else atoms.one


class Traits(NamedTuple):
    """What the text of an expression tells about its cost.

    `grows` says that it may make more of its data than there is, or go over it more than once for each call.
    """

    size: int
    calls: int
    grows: bool
    makes_null: bool


_GROWING: Final = frozenset({"_+_", "contains", "matches"})


def traits_of(tree: Node) -> Traits:
    nodes = list(walk(tree))
    calls = [node.function for node in nodes if isinstance(node, Call)]
    return Traits(
        size=sum(
            len(node.value) if isinstance(node, Constant) and isinstance(node.value, str) else 1 for node in nodes
        ),
        calls=len(calls),
        grows=any(isinstance(node, Loop) for node in nodes) or not _GROWING.isdisjoint(calls),
        makes_null=any(isinstance(node, Constant) and node.value is None for node in nodes),
    )


def simple_cost(traits: Traits, weight: Weight) -> int | None:
    """An upper bound without a look at the tree, where there is one: each call goes over all data and all literals."""
    if traits.grows:
        return None
    return _NODE * traits.size + (_CALENDAR + _SCANNED * (weight.mass + traits.size)) * traits.calls


def check_cost(tree: Node, data: Mapping[str, Any], budget: CostBudget, *, may_hold_null: bool = True) -> None:
    """Take from the budget what evaluating the tree on this data costs; raises ExpressionError for too much.

    The result is taken back item by item where there may be a null in it.
    """
    estimate = _Estimate(data, budget)
    result = estimate.shape(tree, {})
    size, mass = estimate.size(result), estimate.mass(result)
    each = _MADE_NULL if may_hold_null else _MADE_ITEM
    budget.spend(_READ_BYTE * size + each * (mass - size) // _ITEM)


class _Made:
    """A value that the expression will make: at most so large and so long, out of these items."""

    __slots__ = ("is_map", "items", "length", "mass", "size")

    def __init__(
        self, size: int, mass: int, length: int = 0, items: _Shape | None = None, *, is_map: bool = False
    ) -> None:
        self.size, self.mass, self.length, self.is_map = size, mass, length, is_map
        self.items: _Shape = items or []


# What a value may turn out to be: values from the data, and made ones.
_Shape = list[Any]
_SCALAR_VALUE: Final = _Made(_ITEM, _ITEM)
_SCALAR: Final[_Shape] = [_SCALAR_VALUE]


class _Estimate:
    """Walks a tree once. `times` is how often the part that is walked will be evaluated."""

    def __init__(self, data: Mapping[str, Any], budget: CostBudget) -> None:
        self.data, self.budget = data, budget
        self.times = 1
        self.known: dict[int, tuple[int, int]] = {}

    def shape(self, node: Node, local: Mapping[str, _Shape]) -> _Shape:
        self._spend(_NODE)
        match node:
            case Constant(value=bytes() as value):
                return [_Made(len(value), len(value) + _ITEM)]
            case Constant():
                return [node.value]
            case Name():
                return local[node.name] if node.name in local else self._named(node.name.removeprefix("."))
            case Select():
                operand = self.shape(node.operand, local)
                return _SCALAR if node.test else self._below(operand, node.field)
            case Call():
                return self._call(node, [self.shape(argument, local) for argument in node.arguments])
            case ListOf():
                return self._literal([self.shape(item, local) for item in node.items])
            case MapOf():
                keys = [self.shape(key, local) for key, _ in node.entries]
                values = [self.shape(value, local) for _, value in node.entries]
                return self._literal(values, keys)
            case Loop():
                return self._loop(node, local)

    def mass(self, shape: _Shape) -> int:
        return max((self._weighed(value)[1] for value in self._look(shape)), default=0)

    def _named(self, name: str) -> _Shape:
        return [self.data[name]] if name in self.data else []

    def _below(self, shape: _Shape, key: str | int | None) -> _Shape:
        """What `shape[key]` may be; a key of None stands for any."""
        found: _Shape = []
        for value in self._look(shape):
            if isinstance(value, _Made):
                found += value.items
            elif isinstance(value, dict):
                found += value.values() if not isinstance(key, str) else [value[key]] if key in value else []
            elif isinstance(value, list):
                found += value if key is None else value[key : key + 1] if isinstance(key, int) and key >= 0 else []
        return found

    def _iterated(self, shape: _Shape) -> _Shape:
        found: _Shape = []
        for value in self._look(shape):
            found += value.items if isinstance(value, _Made) else value if isinstance(value, (list, dict)) else []
        return found

    def _call(self, node: Call, arguments: list[_Shape]) -> _Shape:
        match node.function:
            case "_[_]":
                index = node.arguments[1]
                key = index.value if isinstance(index, Constant) else None
                return self._below(arguments[0], key if isinstance(key, str | int) else None)
            case "_?_:_":
                return [*arguments[1], *arguments[2]]
            case "dyn":
                return arguments[0]
            case "_&&_" | "_||_" | "!_" | "@not_strictly_false" | "type":
                return _SCALAR
            case "_+_":
                return self._sum(arguments)
            case "string" | "bytes":
                size, mass = self.size(arguments[0]), self.mass(arguments[0])
                return [self._made(size + _ITEM, mass + _ITEM)]
            case "size":
                self._spend(_COMPARED * self._text(arguments[0]))
            case "contains":
                text, part = self._text(arguments[0]), self._text(arguments[1])
                self._spend(_SEARCHED * text + text * part // _SEARCHED_TWICE)
            case "matches":
                pattern = node.arguments[1]
                assert isinstance(pattern, Constant)
                self._spend(_pattern_cost(str(pattern.value), self._text(arguments[0])))
            case "duration" | "timestamp":
                self._spend(_CALENDAR + _SCANNED * self._text(arguments[0]))
            case function if function.startswith("get"):
                self._spend(_CALENDAR)
            case "@in":
                # A map is asked for a key; a list is gone through, and each item compared.
                lists = [value for value in arguments[1] if not _is_map(value)]
                self._spend(_COMPARED * (self.mass(arguments[0]) + self.mass(lists)))
            case _:
                # Comparisons, conversions, startsWith, endsWith, arithmetic: at most all of each argument is looked at.
                self._spend(_COMPARED * sum(self.mass(argument) for argument in arguments))
        return _SCALAR

    def _sum(self, arguments: list[_Shape]) -> _Shape:
        if all(_is_number(value) for argument in arguments for value in self._look(argument)):
            return _SCALAR
        items = [*self._iterated(arguments[0]), *self._iterated(arguments[1])]
        length = sum(self._length(argument) for argument in arguments)
        size, mass = (sum(map(measure, arguments)) for measure in (self.size, self.mass))
        return [self._made(size, mass, length, items)]

    def _literal(self, values: list[_Shape], keys: list[_Shape] | None = None) -> _Shape:
        parts = [*values, *(keys or [])]
        size, mass = (sum(measure(shape) + 1 for shape in parts) + 2 for measure in (self.size, self.mass))
        self._check_size(size)
        self._spend(_LITERAL_ITEM * len(parts))  # what it holds is referred to, not copied
        return [
            _Made(
                size, mass + _ITEM, len(values), [value for shape in values for value in shape], is_map=keys is not None
            )
        ]

    def _loop(self, node: Loop, local: Mapping[str, _Shape]) -> _Shape:
        over = self.shape(node.over, local)
        length = self._length(over)
        if length > MAX_LIST:
            raise ExpressionError(
                f"it goes through a list of {length}, and {MAX_LIST} are allowed.",
                hint="Filter long lists in a step.",
            )
        builds_list = isinstance(node.start, ListOf)
        if builds_list and any(_is_map(value) for value in over):
            raise ExpressionError(
                "it builds a list from a map, and the keys of a map come in no order.",
                hint="Use a list, or ask with all(), exists() or exists_one().",
            )
        if not length:
            return [_Made(2, _ITEM)] if builds_list else _SCALAR
        self._spend(_BUILT_LIST * length * length if builds_list else _NODE * length)
        outer, self.times = self.times, self.times * length
        step = self.shape(node.step, {**local, node.variable: self._iterated(over), node.result: []})
        self.times = outer
        if not builds_list:
            return _SCALAR
        size, mass = length * self.size(step), length * self.mass(step)
        self._check_size(size)
        return [_Made(size, mass, length * self._length(step), self._iterated(step))]

    def _made(self, size: int, mass: int, length: int = 0, items: _Shape | None = None) -> _Made:
        self._check_size(size)
        self._spend(_COPIED_BYTE * size + _COPIED_ITEM * (mass - size) // _ITEM)
        return _Made(size, mass, length, items)

    def _check_size(self, size: int) -> None:
        if size > MAX_DATA:
            raise ExpressionError(
                f"it could make a value of {size} bytes, and {MAX_DATA} are allowed.", hint="Build it in a step."
            )

    def size(self, shape: _Shape) -> int:
        return max((self._weighed(value)[0] for value in self._look(shape)), default=0)

    def _text(self, shape: _Shape) -> int:
        """The length of a text that this may be, in bytes; lists and maps of the data are none."""
        return max((self._weighed(value)[0] for value in self._look(shape) if not _is_container(value)), default=0)

    def _weighed(self, value: object) -> tuple[int, int]:
        """The bytes and the mass of a value."""
        if isinstance(value, _Made):
            return value.size, value.mass
        if isinstance(value, str):
            size = len(value) + 2 if value.isascii() else len(value.encode()) + 2
            return size, size + _ITEM
        if not isinstance(value, (dict, list)):
            return _ITEM, _ITEM
        known = self.known.get(id(value))
        if known is None:
            encoded = _encode(value)
            self.budget.spend(_READ_BYTE * len(encoded))
            known = self.known[id(value)] = len(encoded), len(encoded) + _ITEM * _items(encoded)
        return known

    def _length(self, shape: _Shape) -> int:
        return max((_length(value) for value in self._look(shape)), default=0)

    def _look(self, shape: _Shape) -> _Shape:
        """The estimate is work, too, once for each look and not for each turn of a loop."""
        self.budget.spend(_LOOK * (len(shape) + 1))
        return shape

    def _spend(self, cost: int) -> None:
        self.budget.spend(cost * self.times)


def _length(value: object) -> int:
    if isinstance(value, _Made):
        return value.length
    return len(value) if isinstance(value, (dict, list)) else 0


def _is_number(value: object) -> bool:
    return value is _SCALAR_VALUE or isinstance(value, (int, float))


def _is_container(value: object) -> bool:
    return isinstance(value, (dict, list)) or (isinstance(value, _Made) and bool(value.items))


def _is_map(value: object) -> bool:
    return value.is_map if isinstance(value, _Made) else isinstance(value, dict)


def _holds_nul(data: object) -> bool:
    waiting: list[Any] = [data]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            if "\x00" in value:
                return True
        elif isinstance(value, Mapping):
            waiting.extend(value.keys())
            waiting.extend(value.values())
        elif isinstance(value, (list, tuple)):
            waiting.extend(value)
    return False


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, OverflowError):
        return "a number in it does not fit in 64 bits"
    if isinstance(error, UnicodeEncodeError):
        return "a text in it holds half of a surrogate pair"
    return "it holds what JSON does not know"


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
