"""Converts written durations (`1h30m`, `500ms`, `PT5M`) to whole microseconds, and back.

It refuses ambiguous input: bare numbers, months, years, inner fractions. The definition schema, the Python decorators
and the command line call it; nothing else parses durations.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Final

from stepkeep.kernel.errors import StepkeepError

MAX_DURATION_US: Final = 3650 * 86_400 * 1_000_000

_LONGEST_TEXT: Final = 64
_UNITS: Final = {
    "w": 7 * 86_400 * 1_000_000,
    "d": 86_400 * 1_000_000,
    "h": 3_600 * 1_000_000,
    "m": 60 * 1_000_000,
    "s": 1_000_000,
    "ms": 1_000,
    "us": 1,
}
_ORDER: Final = tuple(_UNITS)
_WRITTEN: Final = ("d", "h", "m", "s", "ms", "us")
_EXAMPLES: Final = "Write for example 90s, 1h30m, 500ms, 2d or PT5M."

_PART = re.compile(r"([0-9]+)(?:\.([0-9]+))?(ms|us|µs|μs|[wdhms])")
_BARE_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_ISO_PART = re.compile(r"([0-9]+)(?:[.,]([0-9]+))?([A-Z])")
_ISO_DATE: Final = {"W": "w", "D": "d"}
_ISO_TIME: Final = {"H": "h", "M": "m", "S": "s"}


class InvalidDuration(StepkeepError, ValueError):
    """A duration that cannot be used as written; a ValueError too, so that pydantic collects it."""


def parse_duration(text: object) -> int:
    """The number of microseconds in `text`, between 0 and ten years.

    >>> parse_duration("1h30m")
    5400000000
    >>> parse_duration("PT0.5S")
    500000
    """
    if isinstance(text, (int, float)) and not isinstance(text, bool):
        raise InvalidDuration(_ambiguous(str(text) if abs(text) < 10**15 else "a bare number"))
    if not isinstance(text, str):
        raise InvalidDuration(f"A duration is text, not {type(text).__name__}. {_EXAMPLES}")
    stripped = text.strip()
    if len(stripped) > _LONGEST_TEXT:
        raise InvalidDuration(f"This duration is longer than {_LONGEST_TEXT} characters. {_EXAMPLES}")
    if _BARE_NUMBER.fullmatch(stripped):
        raise InvalidDuration(_ambiguous(stripped))
    if stripped.startswith(("-", "+")):
        raise InvalidDuration(f"{stripped!r} has a sign; a duration is never negative. {_EXAMPLES}")
    parts = _iso_parts(stripped) if stripped.startswith("P") else _plain_parts(stripped)
    return _total(stripped, parts)


def format_duration(microseconds: int) -> str:
    """The shortest text in whole units that `parse_duration` reads back as the same number.

    >>> format_duration(5_400_000_000)
    '1h30m'
    """
    if not 0 <= microseconds <= MAX_DURATION_US:
        raise InvalidDuration(f"{microseconds} microseconds is out of bounds: a duration is 0s to 3650d.")
    written, rest = "", microseconds
    for unit in _WRITTEN:
        count, rest = divmod(rest, _UNITS[unit])
        if count:
            written += f"{count}{unit}"
    return written or "0s"


def _ambiguous(number: str) -> str:
    if _BARE_NUMBER.fullmatch(number):
        return f"{number} has no unit, so it could be seconds or milliseconds. Write {number}s or {number}ms."
    return f"{number} is not a duration: it has no unit. {_EXAMPLES}"


def _plain_parts(text: str) -> list[tuple[str, str, str]]:
    parts, position = [], 0
    while position < len(text):
        match = _PART.match(text, position)
        if match is None:
            raise InvalidDuration(f"{text!r} is not a duration. {_EXAMPLES}")
        whole, fraction, unit = match.groups(default="")
        parts.append((whole, fraction, "us" if unit in {"µs", "μs"} else unit))
        position = match.end()
        while text[position : position + 1] == " ":
            position += 1
    return parts


def _iso_parts(text: str) -> list[tuple[str, str, str]]:
    date, separator, time = text[1:].partition("T")
    if separator and not time:
        raise InvalidDuration(f"{text!r} ends after the T. Write for example PT5M, or P2D without a T.")
    return [*_iso_half(text, date, _ISO_DATE), *_iso_half(text, time, _ISO_TIME)]


def _iso_half(text: str, half: str, units: dict[str, str]) -> list[tuple[str, str, str]]:
    parts, position = [], 0
    while position < len(half):
        match = _ISO_PART.match(half, position)
        if match is None:
            raise InvalidDuration(f"{text!r} is not an ISO 8601 duration. {_EXAMPLES}")
        whole, fraction, letter = match.groups(default="")
        if letter not in units:
            raise InvalidDuration(_wrong_letter(text, letter, in_date=units is _ISO_DATE))
        parts.append((whole, fraction, units[letter]))
        position = match.end()
    return parts


def _wrong_letter(text: str, letter: str, *, in_date: bool) -> str:
    if in_date and letter in {"Y", "M"}:
        return f"{text!r} counts months or years, which have no fixed length. Write days, or PT5M for minutes."
    if in_date and letter in _ISO_TIME:
        return f"{text!r} lacks the T before hours, minutes and seconds. Write for example PT5M or P1DT2H."
    return f"{text!r} uses {letter} where ISO 8601 does not allow it. {_EXAMPLES}"


def _total(text: str, parts: list[tuple[str, str, str]]) -> int:
    if not parts:
        raise InvalidDuration(f"{text!r} is not a duration. {_EXAMPLES}")
    ranks = [_ORDER.index(unit) for _, _, unit in parts]
    if any(later <= earlier for earlier, later in pairwise(ranks)):
        raise InvalidDuration(f"{text!r} must name each unit once, the largest first, as in 1h30m.")
    if any(fraction for _, fraction, _ in parts[:-1]):
        raise InvalidDuration(f"{text!r} has a fraction before its last unit. Write 1h30m, not 1.5h0m.")
    total = sum(_microseconds(text, *part) for part in parts)
    if total > MAX_DURATION_US:
        raise InvalidDuration(f"{text!r} is more than ten years (3650d). Write a shorter duration.")
    return total


def _microseconds(text: str, whole: str, fraction: str, unit: str) -> int:
    scale: int = 10 ** len(fraction)
    microseconds, rest = divmod(int(whole + fraction) * _UNITS[unit], scale)
    if rest:
        raise InvalidDuration(f"{text!r} is finer than a microsecond. Write fewer decimals.")
    return microseconds
