"""Patterns of event types: `order.paid`, `order.*`, `*`. A star stands for any characters, also for none.

Pure. The relay matches with it; a store uses the text before the first star to leave out what cannot match.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from stepkeep.kernel.errors import InvalidInput

MAX_PATTERN = 200
MAX_PATTERNS = 50


def check_patterns(given: Iterable[object]) -> tuple[str, ...]:
    """Patterns as they are stored: sorted, without duplicates."""
    found = sorted({_checked(one) for one in given})
    if not found:
        raise InvalidInput("a sink needs at least one pattern of event types, such as 'order.*' or '*'.")
    if len(found) > MAX_PATTERNS:
        raise InvalidInput(f"a sink has at most {MAX_PATTERNS} patterns, and not {len(found)}.")
    return tuple(found)


def _checked(one: object) -> str:
    if not isinstance(one, str) or not 0 < len(one) <= MAX_PATTERN or not one.isprintable():
        raise InvalidInput(f"a pattern of event types has 1 to {MAX_PATTERN} printable characters, as in 'order.*'.")
    return str.__str__(one)


def matches(patterns: Iterable[str], event_type: str) -> bool:
    """Whether any of the patterns matches.

    >>> matches(["order.*", "paid"], "order.sent"), matches(["order.*"], "orders")
    (True, False)
    """
    return any(_compiled(one).fullmatch(event_type) for one in patterns)


@lru_cache(maxsize=1000)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(re.escape(part) for part in pattern.split("*")), re.DOTALL)


def prefix_of(patterns: Iterable[str]) -> str:
    """The text that every matching type begins with; empty where there is none.

    >>> prefix_of(["order.paid", "order.p*"]), prefix_of(["order.*", "*"])
    ('order.p', '')
    """
    heads = [one.split("*", 1)[0] for one in patterns]
    first, last = min(heads), max(heads)
    end = next((at for at, letter in enumerate(first) if at >= len(last) or last[at] != letter), len(first))
    return first[:end]
