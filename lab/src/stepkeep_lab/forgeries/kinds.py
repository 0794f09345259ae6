"""The kinds of forgeries, as data: a name, whose words, what it changes, and the function that changes it.

A function gets a fresh copy of a true log and a source of chance. It returns the changed lines, or None where the log
has nothing to change. It must not touch hashes: `seals.py` recomputes them. `campaign.py` reads `KINDS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import Any, NamedTuple

from stepkeep.dialects import registry
from stepkeep_lab.forgeries import added, fields, stories
from stepkeep_lab.forgeries.added import FLOW, THEN
from stepkeep_lab.forgeries.material import CANONICAL

Line = dict[str, Any]
Forge = Callable[[list[Line], Random], list[Line] | None]


class Kind(NamedTuple):
    """One kind of forgery in one kind of log."""

    name: str
    words: str
    what: str
    forge: Forge
    about: str = ""
    """The kind of logs that it is offered to: those with added steps or with flows, or all others."""


def all_kinds() -> list[Kind]:
    """Every forgery in canonical names and in each dialect."""
    return [
        Kind(name, words, what, forge, about)
        for words in (CANONICAL, *registry.names())
        for about, told in (("", forgeries()), (THEN, added.ADDED_STORIES), (FLOW, added.CALL_STORIES))
        for name, what, forge in told
    ]


def forgeries() -> Iterable[tuple[str, str, Forge]]:
    yield from stories.STORIES
    yield from fields.field_forgeries()
