"""Decodes JSON from outside without surprises: no duplicate key, no NaN, no number that no store keeps, bounded depth.

The service reads bodies with it, and hooks their deliveries. It knows no route and no format.
"""

from __future__ import annotations

import json
from typing import Any, Final, NoReturn

from stepkeep.kernel.errors import InvalidInput

MAX_DEPTH: Final = 72
"""Levels of a JSON body. A payload may have 64; the body around it has a few more."""
LONGEST_NUMBER: Final = 40


def strict_json(body: bytes) -> Any:
    """The one JSON value of a body.

    >>> strict_json(b'{"a": 1, "a": 2}')
    Traceback (most recent call last):
    stepkeep.kernel.errors.InvalidInput: the body has the key 'a' twice in one object. Remove one of them.
    """
    try:
        text = body.decode("utf-8")
        value = (_PLAIN_NUMBERS if _has_plain_numbers(body) else _DECODER).decode(text)
    except UnicodeDecodeError:
        raise InvalidInput("the body is not UTF-8.") from None
    except RecursionError:
        raise InvalidInput(f"the body is nested deeper than {MAX_DEPTH} levels.") from None
    except json.JSONDecodeError as problem:
        raise InvalidInput(f"the body is not JSON: {problem.msg} at character {problem.pos}.") from None
    if text.count("[") + text.count("{") > MAX_DEPTH and _is_deeper(value, MAX_DEPTH):
        raise InvalidInput(f"the body is nested deeper than {MAX_DEPTH} levels.")
    return value


def _pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(items)
    if len(found) != len(items):
        seen: set[str] = set()
        twice = next(key for key, _ in items if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise InvalidInput(f"the body has the key {twice[:80]!a} twice in one object. Remove one of them.")
    return found


def _no_constant(name: str) -> NoReturn:
    raise InvalidInput(f"the body has the value {name}, which is no JSON.")


def _integer(text: str) -> int:
    if len(text) > LONGEST_NUMBER:
        raise InvalidInput(f"the body has a number of {len(text)} digits, which no database keeps.")
    return int(text)


def _number(text: str) -> float:
    if len(text) > LONGEST_NUMBER or (value := float(text)) in (float("inf"), float("-inf")):
        raise InvalidInput(f"the body has the number {text[:20]}…, which no database keeps.")
    return value


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_pairs, parse_constant=_no_constant, parse_int=_integer, parse_float=_number
)
_PLAIN_NUMBERS: Final = json.JSONDecoder(object_pairs_hook=_pairs, parse_constant=_no_constant)
"""Takes a third of the time where there are many numbers, because it calls nothing for each."""

_DIGITS: Final = bytes.maketrans(b"123456789E", b"000000000e")
_LONG: Final = b"0" * (LONGEST_NUMBER // 2)
"""A number that is longer has as many digits before its point, or after it."""
_POWER: Final = b"0e"


def _has_plain_numbers(body: bytes) -> bool:
    """Whether no number can be too long or too large, whatever the texts hold: no long row of digits, and no power."""
    digits = body.translate(_DIGITS)
    return _LONG not in digits and _POWER not in digits


def _is_deeper(value: Any, most: int) -> bool:
    """Whether a value has more levels than this. Without recursion: the value is hostile."""
    level = [value]
    for _ in range(most):
        level = [
            inner
            for one in level
            if isinstance(one, dict | list)
            for inner in (one.values() if isinstance(one, dict) else one)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True
