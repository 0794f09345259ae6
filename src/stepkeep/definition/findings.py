"""Findings: what a check has to say, and about which part of the data, before anyone knows the line.

Checks collect findings and go on, so that people see all that is wrong at once. A `Source` (a document, or
the Python calls of a workflow) turns them into problems with a place. Nothing here decides what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

from stepkeep.definition.document import nearest
from stepkeep.errors import Problem

Path = tuple[str | int, ...]

_KINDS = {dict: "a mapping", list: "a list", str: "text", bool: "true or false", int: "a whole number"}

MAX_PROBLEMS = 50
"""Nobody reads more than this at once, and a document can hold a hundred thousand mistakes."""


class Finding(NamedTuple):
    """One thing to say about the value at `path` (or its key, or a character inside its text)."""

    path: Path
    message: str
    hint: str = ""
    key: bool = False
    inside: int = 0


class Source(Protocol):
    """Whatever people wrote: it can point at a part of itself."""

    def problem(self, path: Path, message: str, hint: str = "", *, key: bool = False, inside: int = 0) -> Problem: ...


def located(source: Source, findings: Iterable[Finding]) -> tuple[Problem, ...]:
    """Findings as problems in the order of the text, each said once, and no more of them than a person can read."""
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
    """The way to a value through data that may hold short forms, which were widened by keys that nobody wrote."""
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


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint that names the nearest known word, or nothing."""
    found = nearest(name, known)
    return f"Did you mean `{found}`?" if found else ""


def kind_of(value: Any) -> str:
    """What people call a value of this type."""
    if value is None:
        return "empty"
    return next((name for kind, name in _KINDS.items() if type(value) is kind), "a number")


def shown(value: Any) -> str:
    """A value as it may stand in a sentence: short, and on one line."""
    if isinstance(value, dict | list) or value is None:
        return kind_of(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value) if not isinstance(value, int) or value.bit_length() < 256 else "a very long number"
    cut = text if len(text) <= 60 else f"{text[:60]}…"
    return f"`{' '.join(cut.split())}`" if isinstance(value, str) else cut
