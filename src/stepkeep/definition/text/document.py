"""Parses the text of a definition into plain data with the position of each value.

It knows YAML and JSON, their limits and their pitfalls, and nothing about workflows. Front ends and the linter call it,
and report through `Document.problem`, so that every message has a line and a column.
"""

from __future__ import annotations

import codecs
import heapq
import os
import re
from bisect import bisect_right
from collections.abc import Iterable
from difflib import SequenceMatcher
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias

from stepkeep.definition.text.building import Builder, DataPath, Place, PlainData, Positions
from stepkeep.definition.text.json_text import read_json
from stepkeep.edges.input_files import open_input
from stepkeep.edges.safe_text import type_name
from stepkeep.kernel.errors import DefinitionError, InvalidInput, Problem

MAX_BYTES: Final = 4 * 1024 * 1024

Syntax: TypeAlias = Literal["yaml", "json"]

# What YAML calls non-printable, and lone surrogates: these cannot be stored, shown or told apart.
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
_WORD = re.compile(r"[A-Za-z0-9_-]+")
_LONGEST_NAME: Final = 128


class Position(NamedTuple):
    """A position in a text; both count from 1, columns in characters."""

    line: int
    column: int


class Document:
    """Plain JSON data, and the position of every key and value in it."""

    def __init__(self, file: str, text: str, data: PlainData, place: Place) -> None:
        self.file, self.text, self.data, self._place = file, text, data, place

    @cached_property
    def _lines(self) -> list[int]:
        return _line_starts(self.text)

    def position(self, path: DataPath, *, key: bool = False, inside: int = 0) -> Position:
        """Where the value at `path` starts, or its key; an unknown path has the position of its nearest parent.

        `inside` counts characters into a text, as far as that is written without escapes and on one line.
        """
        place = self._place
        for depth, part in enumerate(path):
            if not isinstance(place, Positions) or part not in place.items:
                return self._at(_start(place))
            if key and depth == len(path) - 1:
                return self._at(place.keys.get(part, _start(place.items[part])))
            place = place.items[part]
        return self._at(_start(place) if isinstance(place, Positions) else self._within(place, inside))

    def problem(self, path: DataPath, message: str, hint: str = "", *, key: bool = False, inside: int = 0) -> Problem:
        """A problem that points at the value at `path`, or at its key."""
        where = self.position(path, key=key, inside=inside)
        return _problem(self.file, where, path, message, hint)

    def _at(self, offset: int) -> Position:
        return _position(self._lines, offset)

    def _within(self, start: int, inside: int) -> int:
        first = self.text[start : start + 1]
        quoted = first in {'"', "'"}
        passed = self.text[start + quoted : start + quoted + inside]
        escape = {'"': "\\", "'": "''"}.get(first, "\n")
        if first in {"|", ">"} or escape in passed or "\n" in passed:
            return start
        return start + quoted + inside if inside else start


def parse_document(text: str | bytes, file: str = "<text>", *, syntax: Syntax | None = None) -> Document:
    """Read a definition's text; raises DefinitionError with everything that is wrong with it.

    Unless told, it is strict JSON when the name of the file ends in `.json`, otherwise YAML.

    >>> document = parse_document("steps:\\n  - name: a")
    >>> document.data
    {'steps': [{'name': 'a'}]}
    >>> document.position(("steps", 0, "name"))
    Position(line=2, column=11)
    """
    decoded = _decoded(text, file)
    is_json = syntax == "json" or (syntax is None and file.lower().endswith(".json"))
    builder = read_json(decoded) if is_json else _read_yaml(decoded)
    if builder.faults:
        raise _definition_error(builder, decoded, file)
    return Document(file, decoded, builder.data, builder.places)


def _read_yaml(text: str) -> Builder:
    from stepkeep.definition.text.yaml_text import read_yaml

    return read_yaml(text)


def read_document(path: str | Path) -> Document:
    """Read a definition's file, as JSON or YAML by its name."""
    if not isinstance(path, str | os.PathLike):
        raise InvalidInput(f"a definition is named by the path of its file, not by a {type_name(path)}.")
    file = str.__str__(os.fsdecode(path))
    try:
        with open_input(file) as opened:
            content = opened.read(MAX_BYTES + 1)
    except OSError as error:
        reason = error.strerror or str(error)
        raise _refusal(file, Position(1, 1), f"This file cannot be read: {reason}.") from None
    return parse_document(content, file)


def render(problems: Iterable[Problem]) -> str:
    """One line per problem, in the order of the text: `file:line:column: what is wrong. What to do.`"""
    ordered = sorted(problems, key=lambda one: (one.file, one.line, one.column, one.path, one.message))
    return "\n".join(str(problem) for problem in ordered)


def path_text(path: DataPath) -> str:
    """A path as people write it: `steps[0].with.email`, with odd keys in brackets and quotes."""
    written = ""
    for part in path:
        if isinstance(part, str) and _WORD.fullmatch(part):
            written += f".{part}" if written else part
        else:
            written += f"[{part!r}]" if isinstance(part, str) else f"[{part}]"
    return written


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """The nearest candidate, or None if nothing comes close.

    >>> nearest("creat_acount", ["create_account", "close_account"])
    'create_account'
    """
    wanted = _folded(name)
    letters = set(wanted)
    # Comparing letter by letter is slow and a definition may name thousands: compare only the most promising.
    promising = heapq.nsmallest(
        50,
        (
            (len(letters ^ set(folded)) + abs(len(wanted) - len(folded)), candidate, folded)
            for candidate in candidates
            if (folded := _folded(candidate))
        ),
    )
    scored = [
        (-SequenceMatcher(None, wanted, folded).ratio(), distance, candidate)
        for distance, candidate, folded in promising
    ]
    ratio, _, best = min(scored, default=(0.0, 0, ""))
    return best if -ratio >= 0.6 else None


def _folded(name: str) -> str:
    return name[:_LONGEST_NAME].casefold().replace("-", "_").replace(".", "_")


def _decoded(text: str | bytes, file: str) -> str:
    if len(text) > MAX_BYTES or (isinstance(text, str) and len(text.encode(errors="replace")) > MAX_BYTES):
        raise _refusal(
            file,
            Position(1, 1),
            f"This document is larger than {MAX_BYTES // (1024 * 1024)} MB.",
            "Split the definition, or move data out of it.",
        )
    decoded = text if isinstance(text, str) else _utf8(text, file)
    decoded = decoded.removeprefix("\ufeff")
    unprintable = _UNPRINTABLE.search(decoded)
    if unprintable:
        raise _refusal(
            file,
            _position(_line_starts(decoded), unprintable.start()),
            f"There is a character here that cannot be shown (U+{ord(unprintable[0]):04X}).",
            "Remove it.",
        )
    return decoded


def _utf8(content: bytes, file: str) -> str:
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise _refusal(file, Position(1, 1), "This is UTF-16.", "Save the file as UTF-8.")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        before = content[: error.start].decode()
        where = _position(_line_starts(before), len(before))
        raise _refusal(file, where, "This is not UTF-8.", "Save the file as UTF-8.") from None


def _definition_error(builder: Builder, text: str, file: str) -> DefinitionError:
    lines = _line_starts(text)
    problems = [
        _problem(file, _position(lines, fault.offset), fault.path, fault.message, fault.hint)
        for fault in sorted(builder.faults, key=lambda fault: fault.offset)
    ]
    return DefinitionError(problems)


def _refusal(file: str, where: Position, message: str, hint: str = "") -> DefinitionError:
    return DefinitionError([_problem(file, where, (), message, hint)])


def _problem(file: str, where: Position, path: DataPath, message: str, hint: str) -> Problem:
    return Problem(file=file, line=where.line, column=where.column, path=path_text(path), message=message, hint=hint)


def _line_starts(text: str) -> list[int]:
    if "\r" in text:
        return [0, *(match.end() for match in re.finditer("\r\n?|\n", text))]
    return list(accumulate((len(line) + 1 for line in text.split("\n")), initial=0))[:-1]


def _position(lines: list[int], offset: int) -> Position:
    line = bisect_right(lines, offset)
    return Position(line, offset - lines[line - 1] + 1)


def _start(place: Place) -> int:
    return place.offset if isinstance(place, Positions) else place
