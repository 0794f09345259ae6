"""Values of wrong types, by name: what host programs and handlers may hand over by mistake or on purpose.

A case names values, because most of them have no literal. Targets for the API and for handlers call it.
"""

from __future__ import annotations

import datetime
import decimal
import fractions
import uuid
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any, Final

from stepkeep_lab.fuzz.chance import CONTROLS, nested


class TextSubclass(str):
    """A subclass of str, as templates and enumerations have them."""

    __slots__ = ()


class IntSubclass(int):
    """A subclass of int."""


class ListSubclass(list[Any]):
    """A subclass of list."""


class DictSubclass(dict[Any, Any]):
    """A subclass of dict."""


class Unprintable:
    """An object that cannot be printed."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    __str__ = __repr__


class Hostile:
    """An object of which nothing can be asked."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"no {name}")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no comparison")

    def __bool__(self) -> bool:
        raise RuntimeError("no truth")

    __hash__ = None  # type: ignore[assignment]


class Colour(Enum):
    """An enumeration that is none of ours."""

    RED = "red"


def _cycle() -> list[Any]:
    made: list[Any] = []
    made.append(made)
    return made


def _text(value: str) -> Callable[[], Any]:
    return lambda: value


TEXTS: Final[dict[str, str]] = {
    "empty text": "",
    "space": " ",
    "long text": "x" * 5_000,
    "huge text": "x" * 2_000_000,
    "NUL": "a\x00b",
    "surrogate": "\ud800",
    "newline": "a\nb",
    "digits": "5",
    "negative": "-1",
    "duration": "5s",
    "wrong duration": "5 parsecs",
    "expression": "${{ input }}",
    "broken expression": "${{",
    "markup": "[bold]x[/]",
    "emoji": "😀",
    **{f"control {place}": f"a{text}b" for place, text in enumerate(CONTROLS)},
}

VALUES: Final[dict[str, Callable[[], Any]]] = {
    "None": lambda: None,
    "True": lambda: True,
    "False": lambda: False,
    "0": lambda: 0,
    "1": lambda: 1,
    "-1": lambda: -1,
    "5": lambda: 5,
    "2**31": lambda: 2**31,
    "2**53": lambda: 2**53,
    "2**63": lambda: 2**63,
    "10**30": lambda: 10**30,
    "10**5000": lambda: 10**5_000,
    "1.5": lambda: 1.5,
    "nan": lambda: float("nan"),
    "inf": lambda: float("inf"),
    "-inf": lambda: float("-inf"),
    "1e308": lambda: 1e308,
    "complex": lambda: 1j,
    "Decimal": lambda: decimal.Decimal("1.10"),
    "Fraction": lambda: fractions.Fraction(1, 3),
    "bytes": lambda: b"ab",
    "bytearray": lambda: bytearray(b"ab"),
    "memoryview": lambda: memoryview(b"ab"),
    "timedelta": lambda: datetime.timedelta(seconds=5),
    "negative timedelta": lambda: datetime.timedelta(days=-5),
    "datetime": lambda: datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
    "uuid": lambda: uuid.UUID(int=5),
    "Path": lambda: Path("nowhere"),
    "object": object,
    "type": lambda: dict,
    "function": lambda: len,
    "exception": lambda: ValueError("x"),
    "enum": lambda: Colour.RED,
    "ellipsis": lambda: ...,
    "empty list": list,
    "empty dict": dict,
    "tuple": lambda: (1, "a"),
    "set": lambda: {1, 2},
    "generator": lambda: (number for number in range(3)),
    "list of texts": lambda: ["a", "b"],
    "list of odd things": lambda: [1, None, object()],
    "deep list": lambda: nested(5_000),
    "deep dict": lambda: nested(200, mapping=True),
    "cycle": _cycle,
    "dict of texts": lambda: {"a": "b"},
    "dict with odd keys": lambda: {1: 2, None: 3, (1, 2): 4},
    "dict with odd values": lambda: {"a": object()},
    "dict with NUL": lambda: {"a\x00": "b\x00"},
    "dict with surrogates": lambda: {"\ud800": "\udfff"},
    "dict with nan": lambda: {"a": float("nan")},
    "list of nulls": lambda: [None] * 1_000,
    "large list": lambda: ["x" * 1_000] * 3_000,
    "str subclass": lambda: TextSubclass("a"),
    "int subclass": lambda: IntSubclass(5),
    "list subclass": lambda: ListSubclass([1]),
    "dict subclass": lambda: DictSubclass(a=1),
    "unprintable": Unprintable,
    "hostile": Hostile,
    **{name: _text(value) for name, value in TEXTS.items()},
}
