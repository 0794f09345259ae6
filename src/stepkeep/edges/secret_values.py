"""Hides the values of secrets in text and JSON, in every spelling in which programs quote them.

A value is found as it is, as JSON, Python and URLs write it, in hexadecimal, and inside base64. A line of a value of
several lines is found by itself. Values of fewer than four characters are not looked for. Workers hide the values of an
attempt in what it left behind, and the log hides every value that this process has read.
"""

from __future__ import annotations

import base64
import binascii
import json
import logging
import re
import threading
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote, quote_plus

from stepkeep.edges.safe_text import exception_text, inert_line, type_name

SHORTEST_HIDDEN: Final = 4
SHORTEST_LINE: Final = 8
SHORTEST_BASE64: Final = 8
MOST_KNOWN: Final = 1_000
"""How many values the log of a process hides; the oldest are forgotten first."""

_CUT = re.compile(r" … \[cut\] … |… \([0-9,]+ more characters\)")
"""Where text was shortened, and half of a value may have stayed."""


class Redactor:
    """Hides values, given as (name, value), as `[secret NAME]`."""

    def __init__(self, values: Iterable[tuple[str, str]]) -> None:
        self._names: dict[str, str] = {}
        for name, value in values:
            for spelling in spellings(value):
                self._names.setdefault(spelling, name)
        longest_first = sorted(self._names, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def found_in(self, text: str) -> str | None:
        """The name of a secret whose value is in this text."""
        found = None if self._pattern is None else self._pattern.search(text)
        return None if found is None else self._names[found[0]]

    def text(self, text: str, *, is_cut: bool = False) -> str:
        """The text without the values; with `is_cut`, also without what is left of one where it begins or ends."""
        if not self._names:
            return text
        hidden = self._whole_hidden(text)
        if not is_cut and _CUT.search(hidden) is None:
            return hidden
        pieces = re.split(f"({_CUT.pattern})", hidden)
        for place in range(0, len(pieces), 2):
            if place or is_cut:
                pieces[place] = self._without_tail(pieces[place])
            if place + 1 < len(pieces) or is_cut:
                pieces[place] = self._without_head(pieces[place])
        return "".join(pieces)

    def json(self, value: Any) -> Any:
        """A JSON value without the values, at any depth, in keys too. A number that is a value counts as one."""
        holder: list[Any] = [value]
        waiting: list[tuple[Any, Any]] = [(holder, 0)]
        while waiting:
            parent, place = waiting.pop()
            item = parent[place]
            if isinstance(item, dict):
                parent[place] = clean = {self.text(key): below for key, below in item.items()}
                waiting.extend((clean, key) for key in clean)
            elif isinstance(item, list):
                parent[place] = listed = list(item)
                waiting.extend((listed, number) for number in range(len(listed)))
            elif isinstance(item, str):
                parent[place] = self.text(item)
            elif isinstance(item, int | float) and not isinstance(item, bool):
                name = self._names.get(str(item))
                parent[place] = item if name is None else hidden_as(name)
        return holder[0]

    def _whole_hidden(self, text: str) -> str:
        assert self._pattern is not None
        return self._pattern.sub(lambda found: hidden_as(self._names[found[0]]), text)

    def _without_tail(self, text: str) -> str:
        """The text without the end of a value at its beginning."""
        for spelling, name in self._names.items():
            for size in range(min(len(spelling) - 1, len(text)), SHORTEST_HIDDEN - 1, -1):
                if text.startswith(spelling[-size:]):
                    return hidden_as(name) + text[size:]
        return text

    def _without_head(self, text: str) -> str:
        """The text without the beginning of a value at its end."""
        for spelling, name in self._names.items():
            for size in range(min(len(spelling) - 1, len(text)), SHORTEST_HIDDEN - 1, -1):
                if text.endswith(spelling[:size]):
                    return text[:-size] + hidden_as(name)
        return text


def hidden_as(name: str) -> str:
    """What stands in the place of a value."""
    return f"[secret {name}]"


@lru_cache(maxsize=MOST_KNOWN)
def spellings(value: str) -> tuple[str, ...]:
    """The forms in which a value may be quoted.

    >>> spellings("p&ss")[:2]
    ('p&ss', 'p%26ss')
    """
    if len(value) < SHORTEST_HIDDEN:
        return ()
    found = dict.fromkeys(_written(value))
    for line in value.splitlines():
        if len(line) >= SHORTEST_LINE:
            found |= dict.fromkeys(_written(line))
    return tuple(spelling for spelling in found if len(spelling) >= SHORTEST_HIDDEN)


def _written(value: str) -> Iterator[str]:
    raw = value.encode("utf-8", "surrogatepass")
    yield value
    yield quote(raw, safe="")
    yield quote(raw)
    yield quote_plus(raw)
    for ascii_only in (True, False):
        once = json.dumps(value, ensure_ascii=ascii_only)[1:-1]
        yield once
        # JSON that is a text in other JSON.
        yield json.dumps(once, ensure_ascii=ascii_only)[1:-1]
    yield repr(value)[1:-1]
    yield repr(raw)[2:-1]
    yield inert_line(value, len(value) * 10)
    yield binascii.hexlify(raw).decode()
    yield binascii.hexlify(raw).decode().upper()
    yield from _in_base64(raw)


def _in_base64(raw: bytes) -> Iterator[str]:
    """The characters of base64 that depend on the value alone, at each of the three places where it may begin."""
    for before in range(3):
        whole = base64.b64encode(b"\0" * before + raw).decode()
        first, last = -(-before * 8 // 6), (before + len(raw)) * 8 // 6
        part = whole[first:last]
        if len(part) >= SHORTEST_BASE64:
            yield part
            yield part.replace("+", "-").replace("/", "_")


class _GrowingRedactor(Redactor):
    """Hides many values, to which others are added. Compiling a pattern of a thousand values takes half a second, so
    that this one finds them by their first characters."""

    def __init__(self) -> None:
        super().__init__(())
        self._starts: dict[str, tuple[str, ...]] = {}
        self._uses: Counter[str] = Counter()

    def add(self, name: str, value: str) -> None:
        for spelling in spellings(value):
            self._uses[spelling] += 1
            if self._uses[spelling] == 1:
                start = spelling[:SHORTEST_HIDDEN]
                alike = (*self._starts.get(start, ()), spelling)
                self._starts[start] = tuple(sorted(alike, key=len, reverse=True))
                self._names[spelling] = name

    def drop(self, value: str) -> None:
        for spelling in spellings(value):
            self._uses[spelling] -= 1
            if self._uses[spelling]:
                continue  # a spelling of another value too
            del self._uses[spelling], self._names[spelling]
            start = spelling[:SHORTEST_HIDDEN]
            left = tuple(one for one in self._starts.pop(start) if one != spelling)
            if left:
                self._starts[start] = left

    def _whole_hidden(self, text: str) -> str:
        starts, pieces, done, at = self._starts, [], 0, 0
        # A text is searched for one start in less time than one of its characters takes below.
        if len(starts) <= len(text) and not any(start in text for start in starts):
            return text
        while at <= len(text) - SHORTEST_HIDDEN:
            for spelling in starts.get(text[at : at + SHORTEST_HIDDEN], ()):
                if text.startswith(spelling, at):
                    pieces += [text[done:at], hidden_as(self._names[spelling])]
                    done = at = at + len(spelling)
                    break
            else:
                at += 1
        return "".join([*pieces, text[done:]]) if pieces else text


class KnownSecrets:
    """Every value that this process has read, for its log."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}
        self._redactor = _GrowingRedactor()
        self._lock = threading.Lock()

    def remember(self, values: Mapping[str, str]) -> None:
        """Hide these from now on."""
        if all(value in self._values for value in values.values()):
            return
        with self._lock:
            for name, value in values.items():
                if value not in self._values:
                    self._values[value] = name
                    self._redactor.add(name, value)
            while len(self._values) > MOST_KNOWN:
                oldest = next(iter(self._values))
                del self._values[oldest]
                self._redactor.drop(oldest)

    def hide(self, text: str) -> str:
        """The text without any of these values."""
        if not self._values:
            return text
        with self._lock:
            return self._redactor.text(text)

    def filter(self, record: logging.LogRecord) -> bool:
        """Hide values in a log record, in its message and its traceback. Nothing is left out, and nothing raises."""
        if not self._values:
            return True
        try:
            said = record.getMessage()
        except Exception as problem:  # noqa: BLE001 - arguments of a record are user code
            # The logging module would print the arguments.
            said, record.args = f"(a message that cannot be formatted: {type_name(problem)})", None
            record.msg = said
        if (hidden := self.hide(said)) != said:
            record.msg, record.args = hidden, None
        trace = record.exc_text or (_trace(record.exc_info[1]) if record.exc_info and record.exc_info[1] else "")
        if (hidden := self.hide(trace)) != trace:
            record.exc_text, record.exc_info = hidden, None
        return True


def _trace(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error))
    except BaseException:  # noqa: BLE001 - user code: `__str__` and `__cause__` may do anything
        return exception_text(error)


KNOWN: Final = KnownSecrets()
"""The values that workers in this process have read."""
