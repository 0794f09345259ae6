"""Builds array parameters for statements, without the driver encoding every element in Python.

Numbers, ids and names are sent as array literals, bytes as one value with offsets. Hot rows are sent as one array of
numbers, row after row, which refer to everything else. It knows no table: `parameters` defines the order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import accumulate

import msgspec

from stepkeep.kernel.errors import InvalidInput

_encode = msgspec.json.Encoder().encode


def numbers(values: Sequence[int | None]) -> str:
    """An array literal of numbers: JSON with other brackets (a bare `null` means the same in both)."""
    return "{" + _encode(values)[1:-1].decode() + "}"


def words(values: Iterable[str]) -> str:
    """An array literal of words from our own closed vocabularies."""
    return "{" + ",".join(values) + "}"


def ids(values: Sequence[str | None]) -> str:
    """An array literal of run ids. The server refuses invalid ids; an element with a comma, which would be two ids,
    is refused here."""
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


class IndexByText(dict[str, int]):
    """Numbers for texts, in order of first use, from 1."""

    def __missing__(self, text: str) -> int:
        self[text] = place = len(self) + 1
        return place


class RowEncoder:
    """What the numbers of hot rows refer to: runs by their index, bytes by offset and length."""

    def __init__(self) -> None:
        self.runs = IndexByText()
        self._parts: list[bytes] = []
        self._end = 1
        self._texts: dict[str, int] = {}

    def put(self, value: bytes) -> int:
        """The offset and length of these bytes; `stepkeep_part` reads them again."""
        begin, size = self._end, len(value)
        self._parts.append(value)
        self._end = begin + size
        return begin << 31 | size

    def put_text(self, value: str) -> int:
        """The number of a text, which is stored once however often it occurs."""
        place = self._texts.get(value)
        if place is None:
            place = self._texts[value] = self.put(value.encode())
        return place

    def run_ids(self) -> str:
        return ids(list(self.runs))

    def joined(self) -> bytes:
        return b"".join(self._parts)


def packed(rows: list[int | None]) -> str:
    """An array literal of rows of numbers, one after the other. Missing values are -1: with a null in the array,
    PostgreSQL would have to scan from its beginning for every element."""
    return "{" + _encode(rows)[1:-1].replace(b"null", b"-1").decode() + "}"


class Bytes:
    """All bytes of a statement, joined into one parameter; columns hold offsets into it."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._end = 1

    def add(self, values: Sequence[bytes | None]) -> tuple[str | None, str | None]:
        """Two array literals: the offset of each value, counted from 1, and its length (null if it is missing)."""
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
