"""Shared by dialects whose plan is a chain: step names that also name handlers, and repeated names.

In seeds 001 and 002 the name of a step selects its handler, so it may occur several times; canonical steps need unique
names. The front ends of `run` and `linear` call it; the machines do not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, TypedDict

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from stepkeep.definition.findings import LOAD_IT, Finding, Path, did_you_mean
from stepkeep.definition.python.registry import Registry

# Short enough that the number of a repeated name still fits into the name of a step.
WORD = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,55}")
WORD_RULE = "letters, digits, `_`, `.` and `-`, starting with a letter, at most 56 characters"


def _word(value: str) -> str:
    if not value.strip():
        raise PydanticCustomError("word", "must not be empty: use {rule}", {"rule": WORD_RULE})
    if not WORD.fullmatch(value):
        cut = value if len(value) <= 60 else f"{value[:60]}…"
        said = "cannot be `{value}`: use {rule}"
        raise PydanticCustomError("word", said, {"value": " ".join(cut.split()), "rule": WORD_RULE})
    return value


StepWord = Annotated[str, AfterValidator(_word), Field(json_schema_extra={"pattern": f"^{WORD.pattern}$"})]
"""The name of a step that is also the name of its handler."""


def distinct(words: Sequence[str]) -> list[str]:
    """A unique name for each step: repeated names are numbered, avoiding names that are already used.

    >>> distinct(["LLM", "TOOL", "LLM", "LLM"])
    ['LLM', 'TOOL', 'LLM-2', 'LLM-3']
    """
    taken = set(words)
    numbers: dict[str, int] = {}
    names = []
    for word in words:
        name = word
        if word in numbers:
            while name in taken:
                numbers[word] += 1
                name = f"{word}-{numbers[word]}"
            taken.add(name)
        numbers.setdefault(word, 1)
        names.append(name)
    return names


def check_known(named: Iterable[tuple[Path, str]], handlers: Registry) -> Iterator[Finding]:
    """Check that the handlers of steps are registered; each missing one is reported at its position."""
    for path, name in named:
        if handlers.get(name) is None:
            hint = did_you_mean(name, handlers.names) or LOAD_IT
            yield Finding(path, f"There is no handler `{name}`.", hint)


class Placement(TypedDict, total=False):
    transactional: bool
    capabilities: tuple[str, ...]
    queue: str


def placement(name: str, handlers: Registry | None) -> Placement:
    """A handler's own settings on where it runs; retries and timeouts come from the document."""
    spec = None if handlers is None else handlers.get(name)
    if spec is None:
        return {}
    return {
        "transactional": spec.transactional,
        "capabilities": tuple(sorted(set(spec.capabilities))),
        "queue": spec.queue,
    }
