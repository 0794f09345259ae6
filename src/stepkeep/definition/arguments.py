"""Checks arguments of host programs and handlers: lists, mappings, numbers and flags.

It returns plain values, so that no method of a subclass runs later. Texts have their own rules (`operations.edge`). The
constructors, the engine and the worker's settings call it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from stepkeep.edges.safe_text import inert_line, plain_text, type_name
from stepkeep.kernel.errors import InvalidInput


def items(what: str, value: object) -> list[Any]:
    """A list of any length, from anything that can be gone through but a text or a mapping.

    >>> items("rules", ("a", "b"))
    ['a', 'b']
    """
    if isinstance(value, (str, bytes, bytearray, memoryview, Mapping)) or not isinstance(value, Iterable):
        raise InvalidInput(f"{what} takes a list, not a value of type {type_name(value)}.")
    return list(value)


def mapping(what: str, value: object) -> dict[Any, Any]:
    """A mapping as a plain dict.

    >>> mapping("labels", {"team": "billing"})
    {'team': 'billing'}
    """
    if not isinstance(value, Mapping):
        raise InvalidInput(f"{what} takes a mapping, not a value of type {type_name(value)}.")
    return dict(value)


def number(what: str, value: object, least: float, most: float) -> float:
    """A number within bounds; neither true nor false, nor one that is none.

    >>> number("jitter", 1, 0, 1)
    1.0
    """
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise InvalidInput(f"{what} is a number from {least:g} to {most:g}, not a value of type {type_name(value)}.")
    # Compared before the conversion to float: the largest integers do not fit into one. NaN is never within bounds.
    if not least <= value <= most:
        raise InvalidInput(f"{what} is a number from {least:g} to {most:g}, not {shown(value)}.")
    return float(value)


def whole(what: str, value: object, least: int, most: int) -> int:
    """A whole number within bounds.

    >>> whole("concurrency", 16, 1, 100)
    16
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidInput(f"{what} is a whole number from {least} to {most}, not a value of type {type_name(value)}.")
    if not least <= value <= most:
        raise InvalidInput(f"{what} is a whole number from {least} to {most}, not {shown(value)}.")
    return int(value)


def flag(what: str, value: object) -> bool:
    """True or False, and nothing that merely counts as either.

    >>> flag("start_now", True)
    True
    """
    if not isinstance(value, bool):
        raise InvalidInput(f"{what} is True or False, not a value of type {type_name(value)}.")
    return value


def choice(what: str, value: object, choices: Iterable[str]) -> str:
    """One of these words.

    >>> choice("backoff", "linear", ["constant", "linear"])
    'linear'
    """
    known = [str(word) for word in choices]
    if not isinstance(value, str) or value not in known:
        raise InvalidInput(f"{what} is {', '.join(known[:-1])} or {known[-1]}, not {shown(value)}.")
    return str(value)


def shown(value: object) -> str:
    """A wrong value for people: a short text or a small number itself, anything else by its type.

    >>> shown("soon"), shown(10**30), shown([1])
    ("'soon'", 'a number beyond all bounds', 'a value of type list')
    """
    if isinstance(value, str):
        return repr(inert_line(plain_text(value) or "", 80))
    if not isinstance(value, (int, float)):
        return f"a value of type {type_name(value)}"
    if value != value or -(10**15) < value < 10**15:
        return repr(float(value) if isinstance(value, float) else int(value))
    return "a number beyond all bounds"
