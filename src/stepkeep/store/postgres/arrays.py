"""Arrays as `unnest` wants them, built without the driver looking at every element in Python.

Numbers, ids and names travel as array literals, bytes in one piece with places; texts that people wrote stay arrays.
It knows no table: `columns` says which column goes which way.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any

import msgspec

from stepkeep.errors import InvalidInput

_encode = msgspec.json.Encoder().encode


def numbers(values: Sequence[int | None]) -> str:
    """An array literal of numbers: JSON's, in other brackets (a bare `null` means the same in both)."""
    return "{" + _encode(values)[1:-1].decode() + "}"


def words(values: Sequence[str | None]) -> str | None:
    """An array literal of words from our own closed vocabularies; None, which unnest pads, where all are missing."""
    if None not in values:
        return "{" + ",".join(values) + "}"  # type: ignore[arg-type]
    if values.count(None) == len(values):
        return None
    return "{" + ",".join([value or "null" for value in values]) + "}"


def ids(values: Sequence[str | None]) -> str:
    """An array literal of run ids. The server refuses what is no id; that none of them is two is for us to see."""
    literal = "{" + ",".join([value or "null" for value in values]) + "}"
    if literal.count(",") != max(len(values) - 1, 0):
        raise InvalidInput("a run id must be a UUID")
    return literal


@lru_cache(4096)
def _quoted(name: str) -> str:
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


def names(values: Sequence[str]) -> str:
    """An array literal of tenants, of which a batch has few and often one."""
    if values and values.count(values[0]) == len(values):
        return "{" + ",".join([_quoted(values[0])] * len(values)) + "}"
    return "{" + ",".join([_quoted(value) for value in values]) + "}"


def json_text(value: object) -> str:
    return _encode(value).decode()


def texts(values: list[Any]) -> list[Any] | None:
    """An array of texts that people wrote, or None where all are missing."""
    return None if values.count(None) == len(values) else values


class Bytes:
    """All the bytes that a statement carries, joined into one parameter; columns say where theirs begin and end."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._end = 1

    def place(self, values: Sequence[bytes | None]) -> tuple[str | None, str | None]:
        """Two array literals: where each value begins, counted from 1, and its length (null where it is missing)."""
        if values.count(None) == len(values):
            return (None, None)
        present = [value or b"" for value in values]
        lengths = [None if value is None else len(value) for value in values]
        begins = list(accumulate(map(len, present), initial=self._end))
        self._end = begins.pop()
        self._parts += present
        return (numbers(begins), numbers(lengths))

    def joined(self) -> bytes:
        return b"".join(self._parts)
