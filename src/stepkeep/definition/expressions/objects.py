"""Expressions as Python objects: `account.output.id`, `flow.input.amount > 1000`. Each compiles to CEL text.

An object only builds text; nothing is evaluated here, and the text follows the same rules as text in YAML. `str()` of
one is a template, so that it can stand in an f-string. `StepRef` and `Workflow` create them; `python` writes them out.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, NoReturn

from stepkeep.definition.expressions.template_text import OPENING, Embedded, split
from stepkeep.edges.safe_text import type_name
from stepkeep.kernel.errors import InvalidInput

CHOICE, OR, AND, RELATION, SUM, PRODUCT, UNARY, MEMBER = range(8)
"""How tightly the operators of CEL bind, from loose to tight."""

_RESERVED_WORDS = (
    "as break const continue else false for function if import in let loop namespace null package return true var void "
    "while"
)
RESERVED = frozenset(_RESERVED_WORDS.split())
LEAST_INTEGER, LARGEST_INTEGER = -(2**63), 2**63 - 1

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_STEP = re.compile(r'\bsteps(?:\["((?:[^"\\]|\\.)*)"\]|\.([A-Za-z_][A-Za-z0-9_]*))')


class Expr:
    """A value that is known when the run gets there: an input, or the output of a step.

    Fields are attributes or keys (`x.total`, `x["unit price"]`). `==`, `!=`, `<`, `<=`, `>`, `>=`, `+`, `-`, `*`, `/`
    and `%` work as usual. Write `&`, `|` and `~` for and, or and not, with parentheses around comparisons.

    >>> from stepkeep import Workflow
    >>> order = Workflow("order")
    >>> print((order.input.amount > 1000) & ~order.input.customer.contains("test"))
    ${{ input.amount > 1000 && !input.customer.contains("test") }}
    """

    __slots__ = ("_level", "_path", "_presence", "_text")
    __hash__ = None  # type: ignore[assignment]  # `==` makes an expression, so no dict could find one again

    def __init__(self, text: str, level: int = MEMBER, presence: str = "", path: tuple[str, ...] = ()) -> None:
        self._text, self._level, self._presence = text, level, presence
        self._path = path
        """What must be there for this value to be there, from the outside in."""

    # -- fields ------------------------------------------------------------------------------------------------------
    def __getattr__(self, name: str) -> Expr:
        if name.startswith("_"):
            # Python and notebooks look for such names; a field of that name is read with brackets.
            raise AttributeError(f'an expression has no attribute {name!r}; read a field as ["{name}"]')
        return self[name]

    def __getitem__(self, key: str | int | Expr) -> Expr:
        if isinstance(key, str) and _IDENTIFIER.fullmatch(key) and key not in RESERVED:
            text = f"{_inside(self, MEMBER)}.{key}"
            return Expr(text, path=(*self._path, f"has({text})"))
        if not isinstance(key, bool) and isinstance(key, str | int | Expr):
            read = _operand(key)._text
            is_there = f"{read} in {_inside(self, RELATION + 1)}"
            # A list has places; `in` would look for the number among its items.
            last = f"{_inside(self, MEMBER)}.size() > {read}" if isinstance(key, int) else is_there
            return Expr(f"{_inside(self, MEMBER)}[{read}]", presence=is_there, path=(*self._path, last))
        raise InvalidInput(f"a field is read by its name or number, not by a value of type {type_name(key)}.")

    def exists(self) -> Expr:
        """Whether this field is there: `order.input.discount.exists()`.

        >>> print(Expr("input").discount.exists(), Expr("input")["unit price"].exists())
        ${{ has(input.discount) }} ${{ "unit price" in input }}
        """
        return Expr(self._presence, RELATION) if self._presence else Expr(f"has({self._text})")

    def or_(self, default: Any) -> Expr:
        """This field, or a default where it is not there: `rates.output.or_(None)` of a step that may be skipped.

        >>> print(Expr("input").discount.percent.or_(0))
        ${{ has(input.discount) && has(input.discount.percent) ? input.discount.percent : 0 }}
        """
        if not self._path:
            raise InvalidInput(f"{self} is always there: a default is for a field, or for the output of a step.")
        return Expr(f"{' && '.join(self._path)} ? {self._text} : {_inside(_operand(default), OR)}", CHOICE)

    def size(self) -> Expr:
        """The number of items, fields or characters.

        >>> print(Expr("input").items.size() > 3)
        ${{ input.items.size() > 3 }}
        """
        return self._call("size")

    def contains(self, part: Any) -> Expr:
        """Whether this text contains another: `customer.contains("test")`.

        >>> print(Expr("input").name.contains("test"))
        ${{ input.name.contains("test") }}
        """
        return self._call("contains", part)

    def startswith(self, part: Any) -> Expr:
        """Whether this text begins with another.

        >>> print(Expr("input").name.startswith("A"))
        ${{ input.name.startsWith("A") }}
        """
        return self._call("startsWith", part)

    def endswith(self, part: Any) -> Expr:
        """Whether this text ends with another.

        >>> print(Expr("input").file.endswith(".csv"))
        ${{ input.file.endsWith(".csv") }}
        """
        return self._call("endsWith", part)

    def matches(self, pattern: Any) -> Expr:
        """Whether a regular expression (RE2) matches somewhere in this text.

        >>> print(Expr("input").code.matches("^[A-Z]{3}$"))
        ${{ input.code.matches("^[A-Z]{3}$") }}
        """
        return self._call("matches", pattern)

    def in_(self, values: Any) -> Expr:
        """Whether this is one of the values, or a key of a mapping.

        >>> print(Expr("input").country.in_(["CH", "DE"]))
        ${{ input.country in ["CH", "DE"] }}
        """
        return _binary(self, "in", values, RELATION)

    def _call(self, function: str, *arguments: Any) -> Expr:
        given = ", ".join(_operand(argument)._text for argument in arguments)
        return Expr(f"{_inside(self, MEMBER)}.{function}({given})")

    # -- operators ---------------------------------------------------------------------------------------------------
    def __eq__(self, other: object) -> Expr:  # type: ignore[override]
        return _binary(self, "==", other, RELATION)

    def __ne__(self, other: object) -> Expr:  # type: ignore[override]
        return _binary(self, "!=", other, RELATION)

    def __lt__(self, other: Any) -> Expr:
        return _binary(self, "<", other, RELATION)

    def __le__(self, other: Any) -> Expr:
        return _binary(self, "<=", other, RELATION)

    def __gt__(self, other: Any) -> Expr:
        return _binary(self, ">", other, RELATION)

    def __ge__(self, other: Any) -> Expr:
        return _binary(self, ">=", other, RELATION)

    def __and__(self, other: Any) -> Expr:
        return _binary(self, "&&", other, AND)

    def __rand__(self, other: Any) -> Expr:
        return _binary(other, "&&", self, AND)

    def __or__(self, other: Any) -> Expr:
        return _binary(self, "||", other, OR)

    def __ror__(self, other: Any) -> Expr:
        return _binary(other, "||", self, OR)

    def __invert__(self) -> Expr:
        return Expr(f"!{_inside(self, UNARY)}", UNARY)

    def __neg__(self) -> Expr:
        return Expr(f"-{_inside(self, MEMBER)}", UNARY)

    def __add__(self, other: Any) -> Expr:
        return _binary(self, "+", other, SUM)

    def __radd__(self, other: Any) -> Expr:
        return _binary(other, "+", self, SUM)

    def __sub__(self, other: Any) -> Expr:
        return _binary(self, "-", other, SUM)

    def __rsub__(self, other: Any) -> Expr:
        return _binary(other, "-", self, SUM)

    def __mul__(self, other: Any) -> Expr:
        return _binary(self, "*", other, PRODUCT)

    def __rmul__(self, other: Any) -> Expr:
        return _binary(other, "*", self, PRODUCT)

    def __truediv__(self, other: Any) -> Expr:
        return _binary(self, "/", other, PRODUCT)

    def __rtruediv__(self, other: Any) -> Expr:
        return _binary(other, "/", self, PRODUCT)

    def __mod__(self, other: Any) -> Expr:
        return _binary(self, "%", other, PRODUCT)

    def __rmod__(self, other: Any) -> Expr:
        return _binary(other, "%", self, PRODUCT)

    # -- what Python would do with a value ---------------------------------------------------------------------------
    def __bool__(self) -> NoReturn:
        raise InvalidInput(
            f"{self} has no value here: it is evaluated when the run gets there. In conditions write & for and, | for "
            "or, ~ for not, and (a < b) & (b < c) for a < b < c; for a branch use if_= on the step."
        )

    def __iter__(self) -> NoReturn:
        raise InvalidInput(f"{self} has no items here: it is evaluated when the run gets there.")

    def __contains__(self, item: object) -> NoReturn:
        raise InvalidInput(f"write {self._text}.contains(…) for a part of a text, or value.in_(…) for one of a list.")

    def __index__(self) -> NoReturn:
        raise InvalidInput(f"{self} is no number here: it is evaluated when the run gets there.")

    __int__ = __float__ = __index__

    def __str__(self) -> str:
        return f"{OPENING} {self._text} }}}}"

    def __repr__(self) -> str:
        return f"<expression {self._text}>"


def steps_read(value: Any) -> list[str]:
    """The steps that the templates in plain data read, in the order in which they appear.

    >>> steps_read({"to": '${{ steps["account"].output.email }}', "about": ["${{ steps.label.output }}", 5]})
    ['account', 'label']
    """
    found: dict[str, None] = {}
    waiting = [value]
    while waiting:
        part = waiting.pop(0)
        if isinstance(part, dict):
            waiting[:0] = part.values()
        elif isinstance(part, list):
            waiting[:0] = part
        elif isinstance(part, str) and OPENING in part:
            for piece in split(part):
                if isinstance(piece, Embedded):
                    found.update((quoted or plain, None) for quoted, plain in _STEP.findall(piece.source))
    return list(found)


def _binary(left: Any, operator: str, right: Any, level: int) -> Expr:
    """Operators of one level are read from the left. Comparisons of comparisons have parentheses for readers."""
    first = level + 1 if level == RELATION else level
    return Expr(f"{_inside(_operand(left), first)} {operator} {_inside(_operand(right), level + 1)}", level)


def _inside(operand: Expr, level: int) -> str:
    return operand._text if operand._level >= level else f"({operand._text})"


def _operand(value: Any) -> Expr:
    """A value as CEL text."""
    match value:
        case Expr():
            return value
        case bool() | None:
            return Expr(json.dumps(value))
        case str():
            return Expr(json.dumps(str.__str__(value), ensure_ascii=False))
        case int() if LEAST_INTEGER <= value <= LARGEST_INTEGER:
            return Expr(f"{int(value)}", MEMBER if value >= 0 else UNARY)
        case float() if math.isfinite(value):
            return Expr(repr(float(value)), MEMBER if value >= 0 else UNARY)
        case list() | tuple():
            return Expr(f"[{', '.join(_operand(item)._text for item in value)}]")
        case Mapping():
            pairs = (f"{_operand(key)._text}: {_operand(item)._text}" for key, item in value.items())
            return Expr(f"{{{', '.join(pairs)}}}")
    raise InvalidInput(
        f"a value of type {type_name(value)} cannot stand in an expression: use text, numbers, lists and dicts."
    )
