"""Findings of checks: a message and the path of the value it concerns, before its line is known.

Checks collect findings and continue, so that all problems are shown at once. A `Source` (a document, or the Python
calls of a workflow) turns them into problems with a position. Nothing here decides what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, Protocol

from stepkeep.definition.text.document import nearest
from stepkeep.kernel.errors import Problem

Path = tuple[str | int, ...]

_KINDS = {dict: "a mapping", list: "a list", str: "text", bool: "true or false", int: "a whole number"}

MAX_PROBLEMS = 50
"""Limit on shown problems: a document can hold a hundred thousand mistakes."""


class Finding(NamedTuple):
    """One message about the value at `path` (or its key, or a character inside its text).

    `ignored` marks advice on a field that has no effect.
    """

    path: Path
    message: str
    hint: str = ""
    key: bool = False
    inside: int = 0
    ignored: bool = False


class Source(Protocol):
    """The origin of a definition, which can give the position of a part."""

    def problem(self, path: Path, message: str, hint: str = "", *, key: bool = False, inside: int = 0) -> Problem: ...


def located(source: Source, findings: Iterable[Finding]) -> tuple[Problem, ...]:
    """Findings as problems in the order of the text, without duplicates, up to the limit."""
    found = [
        source.problem(finding.path, finding.message, finding.hint, key=finding.key, inside=finding.inside)
        for finding in findings
    ]
    ordered = sorted(dict.fromkeys(found), key=lambda problem: (problem.line, problem.column))
    if len(ordered) <= MAX_PROBLEMS:
        return tuple(ordered)
    last = source.problem((), "There are more problems than these.", "Mend them first and check again.")
    return (last, *ordered[:MAX_PROBLEMS])


def as_written(path: Path, data: Any) -> Path:
    """The path to a value in data with short forms, whose expanded keys were not written."""
    value, way = data, list[str | int]()
    for part in path:
        match value:
            case dict():
                value = value.get(part)
            case list() if isinstance(part, int) and part < len(value):
                value = value[part]
            case list() | str() if isinstance(part, str):
                continue
        way.append(part)
    return tuple(way)


NOT_EVALUATED = "Expressions are not evaluated here; remove `${{ }}`."

KEYS_ARE_LIMITS = 'A limit has keys: `limits: [{name: NAME, per: "${{ … }}", running: 1}]`.'
"""What to write in place of an expression in the name of a resource."""

LOAD_IT = "Load the code that registers it (--app FILE.py), or publish it with --handlers-elsewhere."
"""What to do about a name that no registered handler has."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint that names the nearest known word, or nothing."""
    found = nearest(name, known)
    return f"Did you mean `{found}`?" if found else ""


def kind_of(value: Any) -> str:
    """The name of a value's type for messages."""
    if value is None:
        return "empty"
    return next((name for kind, name in _KINDS.items() if type(value) is kind), "a number")


def shown(value: Any) -> str:
    """A value for a message: short, and on one line."""
    if isinstance(value, dict | list) or value is None:
        return kind_of(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value) if not isinstance(value, int) or value.bit_length() < 256 else "a very long number"
    cut = text if len(text) <= 60 else f"{text[:60]}…"
    return f"`{' '.join(cut.split())}`" if isinstance(value, str) else cut


def evaluated(value: Any) -> str:
    """What an expression came to, for a message."""
    return "null" if value is None else shown(value)


def texts_in(value: Any) -> Iterator[tuple[Path, str]]:
    """Every text in a value with its path, the last one first. A value may be nested deeper than Python recurses."""
    waiting: list[tuple[Path, Any]] = [((), value)]
    while waiting:
        path, part = waiting.pop()
        if isinstance(part, dict):
            waiting.extend(((*path, key), inner) for key, inner in part.items())
        elif isinstance(part, list):
            waiting.extend(((*path, number), inner) for number, inner in enumerate(part))
        elif isinstance(part, str):
            yield path, part
