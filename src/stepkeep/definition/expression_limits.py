"""How much work an expression may be: an upper bound of its cost on given data, taken before CEL evaluates it.

CEL holds the interpreter's lock while it works and cannot be interrupted, loops cost the square of their length, and
text doubles with every `x + x`. So the tree is walked once with sizes in place of values, and too much is refused.
It also refuses lists built from maps, whose order CEL changes from one process to the next. Called by `expressions`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from stepkeep.definition.syntax_tree import Call, Constant, ListOf, Loop, MapOf, Name, Node, Select
from stepkeep.errors import ExpressionError

MAX_DATA: Final = 1_000_000
"""The most that one expression may read, in bytes of JSON; a plain path such as `input.file` passes any size."""

MAX_LIST: Final = 1_000
MAX_COST: Final = 10_000_000
MAX_PATTERN: Final = 256
MAX_PATTERN_PROGRAM: Final = 20_000
_MAX_LOOKS: Final = 500_000
_SCALAR_WEIGHT: Final = 32

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


def data_weight(data: object) -> tuple[int, bool]:
    """The size of data as JSON, and whether there may be a null in it.

    Raises ExpressionError for what CEL would cut short, round or crash on.
    """
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
    return len(encoded), b"null" in encoded


def pattern_program(pattern: str) -> int:
    """A generous guess at how many instructions a regular expression compiles to."""
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
                last = _instructions(token[0])
        groups[-1] = min(groups[-1] + last, MAX_PATTERN_PROGRAM + 1)
    return sum(groups) * (2 if "(?i" in pattern else 1)


def _instructions(atom: str) -> int:
    if "\\p" in atom or "\\P" in atom:
        return 500
    return 20 if atom[0] in ".[\\" else 1


def check_cost(tree: Node, data: Mapping[str, Any]) -> None:
    """Raise ExpressionError when evaluating the tree on this data could take too much time or memory."""
    _Estimate(data).shape(tree, {})


class _Made:
    """A value that the expression will make: at most this heavy and this long, out of these items."""

    __slots__ = ("is_map", "items", "length", "weight")

    def __init__(self, weight: int, length: int = 0, items: _Shape | None = None, *, is_map: bool = False) -> None:
        self.weight, self.length, self.is_map = weight, length, is_map
        self.items: _Shape = items or []


# What a value may turn out to be: values from the data, and made ones.
_Shape = list[Any]
_SCALAR_VALUE: Final = _Made(_SCALAR_WEIGHT)
_SCALAR: Final[_Shape] = [_SCALAR_VALUE]


class _Estimate:
    def __init__(self, data: Mapping[str, Any]) -> None:
        self.data = data
        self.cost, self.times, self.looks = 0, 1, 0

    def shape(self, node: Node, local: Mapping[str, _Shape]) -> _Shape:
        self._spend(1)
        match node:
            case Constant(value=bytes() as value):
                return [_Made(len(value))]
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

    def _named(self, name: str) -> _Shape:
        return [self.data[name]] if name in self.data else []

    def _below(self, shape: _Shape, key: object) -> _Shape:
        """What `shape[key]` may be; a key of None stands for any."""
        found: _Shape = []
        for value in self._look(shape):
            if isinstance(value, _Made):
                found += value.items
            elif isinstance(value, dict):
                found += value.values() if key is None else [value[key]] if key in value else []
            elif isinstance(value, list):
                found += value if not isinstance(key, str) else []
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
                key = index.value if isinstance(index, Constant) and isinstance(index.value, str) else None
                return self._below(arguments[0], key)
            case "_?_:_":
                return [*arguments[1], *arguments[2]]
            case "dyn":
                return arguments[0]
            case "_&&_" | "_||_" | "!_" | "@not_strictly_false":
                return _SCALAR
        weight = sum(self._weight(argument) for argument in arguments)
        match node.function:
            case "_+_" if all(_is_number(value) for argument in arguments for value in self._look(argument)):
                return _SCALAR
            case "_+_":
                items = [*self._iterated(arguments[0]), *self._iterated(arguments[1])]
                length = sum(self._length(argument) for argument in arguments)
                return [self._made(weight, length, items)]
            case "string" | "bytes":
                return [self._made(weight + _SCALAR_WEIGHT)]
            case "matches":
                pattern = node.arguments[1]
                assert isinstance(pattern, Constant)
                self._spend(self._weight(arguments[0]) * pattern_program(str(pattern.value)))
        self._spend(weight)
        return _SCALAR

    def _literal(self, values: list[_Shape], keys: list[_Shape] | None = None) -> _Shape:
        weight = sum(self._weight(shape) + 1 for shape in [*values, *(keys or [])])
        items = [value for shape in values for value in shape]
        return [self._made(weight + 2, len(values), items, is_map=keys is not None)]

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
            return [_Made(2)] if builds_list else _SCALAR
        self._spend(length * length // 2 if builds_list else length)
        outer, self.times = self.times, self.times * length
        step = self.shape(node.step, {**local, node.variable: self._iterated(over), node.result: []})
        self.times = outer
        if not builds_list:
            return _SCALAR
        return [self._made(length * self._weight(step), length * self._length(step), self._iterated(step))]

    def _made(self, weight: int, length: int = 0, items: _Shape | None = None, *, is_map: bool = False) -> _Made:
        if weight > MAX_DATA:
            raise ExpressionError(
                f"it could make a value of {weight} bytes, and {MAX_DATA} are allowed.", hint="Build it in a step."
            )
        self._spend(weight)
        return _Made(weight, length, items, is_map=is_map)

    def _weight(self, shape: _Shape) -> int:
        return max((_weight(value) for value in self._look(shape)), default=0)

    def _length(self, shape: _Shape) -> int:
        return max((_length(value) for value in self._look(shape)), default=0)

    def _look(self, shape: _Shape) -> _Shape:
        self.looks += len(shape) + 1
        if self.looks > _MAX_LOOKS:
            raise _too_much()
        return shape

    def _spend(self, cost: int) -> None:
        self.cost += cost * self.times
        if self.cost > MAX_COST:
            raise _too_much()


def _too_much() -> ExpressionError:
    return ExpressionError("it is too much work for the data that it reads.", hint="Do it in a step.")


def _weight(value: object) -> int:
    if isinstance(value, _Made):
        return value.weight
    if isinstance(value, str):
        return len(value) + 2
    return len(_encode(value)) if isinstance(value, (dict, list)) else _SCALAR_WEIGHT


def _length(value: object) -> int:
    if isinstance(value, _Made):
        return value.length
    return len(value) if isinstance(value, (dict, list)) else 0


def _is_number(value: object) -> bool:
    return value is _SCALAR_VALUE or isinstance(value, (int, float))


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
