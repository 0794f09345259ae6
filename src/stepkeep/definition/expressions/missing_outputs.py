"""Finds where an expression reads the output of a step that may have none: it may be skipped, or fail and be tolerated.

It reads a definition alone and evaluates nothing. An expression that asks with has(), or for the state of the step, is
left out, as is a step whose condition asks so. `lint` and `simulate` report what it finds.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from stepkeep.definition.expressions.template_text import OPENING, Embedded, split
from stepkeep.kernel.definition import Definition, OnDeadline, StepDefinition
from stepkeep.kernel.machine.states import OnFailure, StepState

_STEP = r"""\bsteps(?:\[["']((?:[^"'\\]|\\.)*)["']\]|\.([A-Za-z_][A-Za-z0-9_]*))"""
_READ = re.compile(_STEP + r"\.output\b")
_ASKED = re.compile(rf"has\(\s*{_STEP}\.output\b|{_STEP}\.state\b")
_TRUTHS = ("condition", "expression", "until", "as_long_as", "when", "length")
"""Fields whose text is an expression as a whole."""


class MissingOutput(NamedTuple):
    """A step (None: the run itself) that reads the output of another one, which may have none."""

    place: int | None
    reader: str | None
    read: str


def missing_outputs(definition: Definition) -> Iterator[MissingOutput]:
    """Every such place, in the order of the steps; the output and the rules of the run last."""
    uncertain = _may_have_none(definition)
    if not uncertain:
        return
    required = {
        step.name: [edge.step for edge in step.depends_on if edge.allow == (StepState.SUCCEEDED,)]
        for step in definition.steps
    }
    for place, step in enumerate(definition.steps):
        names = [name for name in _reads(step) if name in uncertain and name != step.name]
        certain = _required_by(step.name, required) if names else frozenset()
        yield from (MissingOutput(place, step.name, name) for name in names if name not in certain)
    final = {"output": definition.output, "rules": msgspec.to_builtins(definition.rules)}
    yield from (MissingOutput(None, None, name) for name in _read_in(final) if name in uncertain)


def _may_have_none(definition: Definition) -> set[str]:
    """The steps that may end without an output in a run that goes on."""
    followers: dict[str, list[str]] = defaultdict(list)
    for step in definition.steps:
        for edge in step.depends_on:
            if StepState.SKIPPED not in edge.allow:
                followers[edge.step].append(step.name)
    front = [step.name for step in definition.steps if may_skip(step)]
    found = set(front)
    while front:
        front = [name for one in front for name in followers[one] if name not in found]
        found.update(front)
    return found


def may_skip(step: StepDefinition) -> bool:
    """Whether a step may end as skipped, or as failed, in a run that goes on."""
    is_tolerated = step.on_failure in (OnFailure.SKIP, OnFailure.CONTINUE)
    return (
        step.condition is not None
        or is_tolerated
        or (step.approval is not None and step.approval.on_deadline is OnDeadline.SKIP)
    )


def _required_by(name: str, required: dict[str, list[str]]) -> frozenset[str]:
    """The steps that have succeeded whenever this one runs."""
    found, front = set[str](), [name]
    while front:
        front = [before for one in front for before in required.get(one, ()) if before not in found]
        found.update(front)
    return frozenset(found)


def _reads(step: StepDefinition) -> list[str]:
    asked = set() if step.condition is None else _names(_ASKED, step.condition)
    return [name for name in _read_in(msgspec.to_builtins(step)) if name not in asked]


def _read_in(value: Any) -> list[str]:
    """The steps whose outputs the expressions in plain data read without asking."""
    found: dict[str, None] = {}
    todo: list[tuple[str, Any]] = [("", value)]
    while todo:
        key, part = todo.pop()
        if isinstance(part, dict):
            todo += part.items()
        elif isinstance(part, list | tuple):
            todo += [(key, one) for one in part]
        elif isinstance(part, str):
            for text in _expressions(key, part):
                asked = _names(_ASKED, text)
                found.update((name, None) for name in sorted(_names(_READ, text)) if name not in asked)
    return list(found)


def _expressions(key: str, text: str) -> list[str]:
    if OPENING in text:
        return [piece.source for piece in split(text) if isinstance(piece, Embedded)]
    return [text] if key in _TRUTHS else []


def _names(pattern: re.Pattern[str], text: str) -> set[str]:
    return {next(name for name in found.groups() if name) for found in pattern.finditer(text)}
