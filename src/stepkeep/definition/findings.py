"""Findings of checks: a message and the path of the value it concerns, before its line is known.

Checks collect findings and continue, so that all problems are shown at once. A `Source` (a document, or the Python
calls of a workflow) turns them into problems with a position. Nothing here decides what is wrong.

Messages of the checks in the words of the Python front end: `inputs=` instead of `with`, `after=` for `depends_on`.
"""

from __future__ import annotations

import re
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


WORDS = {
    "with": "inputs=",
    "depends_on": "after=",
    "if": "if_=",
    "not": "not_=",
    "uses": "step()",
    "http.body": "body=",
}
"""The words of YAML that Python writes differently, as they stand in backquotes."""

PHRASES = {
    "`retry: {max_attempts: …}`": "`retry=Retry(max_attempts=…)`",
    "true or false": "True or False",
    ", send what its decorator says (`handlers`)": "",
    "`sleep: 2h`, or `sleep: {until: 2026-11-03T10:15Z}`": '`sleep("2h")`, or `sleep(until="2026-11-03T10:15Z")`',
    "`completion: {mode: manual, deadline: 24h}`": '`completion={"mode": "manual", "deadline": "24h"}`',
    "Steps are named as in `name:`.": "Steps have the names of their calls.",
}


def _option_of(found: re.Match[str]) -> str:
    value = found[2] if found[2].isdigit() else f'"{found[2]}"'
    return f"`{WORDS.get(found[1], found[1]).removesuffix('=')}={value}`"


FORMS: tuple[tuple[re.Pattern[str], Any], ...] = (
    (
        re.compile(r"(?:Depend on|Say) `\{step: ([^`]+), allow: \[skipped\]\}`"),
        r'Write `after=STEP.allow("skipped")` for `\1`',
    ),
    (re.compile(r"`workflow: \{name: [^`,]+, deadline: 1h\}`"), '`deadline="1h"`'),
    (re.compile(r"`\$\{\{ has\(steps\[[^`]+ : null \}\}`"), "`STEP.output.or_(None)`"),
    (re.compile(r"`(\w+): (\w+)`"), _option_of),
)
"""Forms of YAML, and what Python writes for them."""

OPTIONS = (
    "after",
    "capabilities",
    "compensate_when",
    "completion",
    "description",
    "effect",
    "hold",
    "if_",
    "input_schema",
    "inputs",
    "limits",
    "on_exhausted",
    "on_failure",
    "order",
    "output_schema",
    "post",
    "pre",
    "queue",
    "resources",
    "retry",
    "rules",
    "timeout",
    "transactional",
    "undo",
)

OTHER_WORDS = {
    "with": "inputs",
    "with_": "inputs",
    "input": "inputs",
    "args": "inputs",
    "kwargs": "inputs",
    "if": "if_",
    "when": "if_",
    "condition": "if_",
    "depends_on": "after",
    "needs": "after",
    "requires": "after",
    "compensate": "undo",
    "compensation": "undo",
    "retries": "retry",
    "retry_policy": "retry",
}
"""What other engines, and YAML, call an option."""

_UNKNOWN_KEY = re.compile(r"There is no key `(.+?)=?` here\.")
_QUOTED = re.compile(r"`([^`]+)`")


def in_python(path: Path, message: str, hint: str) -> tuple[str, str]:
    """A message and its hint for a workflow that was written in Python.

    >>> in_python(("steps", 0, "when"), "There is no key `when` here.", "Write `if`.")
    ('There is no option `when=` here.', 'Write `if_=`.')
    >>> in_python((), "Step `b` reads `a`.", "Add `a` to its `depends_on`, or read an earlier step.")
    ('Step `b` reads `a`.', 'Add `a` to its `after=`, or read an earlier step.')
    """
    unknown = _UNKNOWN_KEY.fullmatch(message)
    if unknown is not None and len(path) == 3 and path[0] == "steps":
        return f"There is no option `{unknown[1]}=` here.", _option(unknown[1])
    return _said(message), _said(hint)


def _option(name: str) -> str:
    meant = OTHER_WORDS.get(name)
    if meant is not None:
        return f"Write `{meant}=`."
    found = nearest(name, OPTIONS)
    return f"Did you mean `{found}=`?" if found else f"Options: {', '.join(OPTIONS)}."


def _said(text: str) -> str:
    for written, ours in PHRASES.items():
        text = text.replace(written, ours)
    for form, ours in FORMS:
        text = form.sub(ours, text)
    return _QUOTED.sub(lambda found: f"`{WORDS.get(found[1], found[1])}`", text)
