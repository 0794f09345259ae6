"""Findings: what a check has to say, and about which part of the data, before anyone knows the line.

Checks collect findings and go on, so that people see all that is wrong at once. A `Source` (a document, or
the Python calls of a workflow) turns them into problems with a place. Nothing here decides what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from stepkeep.definition.document import nearest
from stepkeep.errors import Problem

Path = tuple[str | int, ...]

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
    left_out = len(ordered) - MAX_PROBLEMS
    last = source.problem((), f"There are {left_out} more problems.", "Mend these first and check again.")
    return (*ordered[:MAX_PROBLEMS], last)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint that names the nearest known word, or nothing."""
    found = nearest(name, known)
    return f"Did you mean `{found}`?" if found else ""
