"""A dialect's machines as plain data: states and arrows of its seed, and the mapping from the canonical machine.

Plain data only, no kernel tables: the judge reads these files and must share no code with the engine. `shows` maps a
canonical state to the dialect's. A canonical state without a mapping is a stutter: the shown state stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

ANY = "*"
"""In a forbidden pair: any state."""


class Arrow(NamedTuple):
    """One row of the seed's table; `source` is None for creation.

    `when` names the canonical triggers and grounds that cover the seed's word; an entry that ends in `*` is a prefix.
    Without `when` the word covers every ground.
    """

    source: str | None
    target: str
    trigger: str
    cites: str
    when: tuple[str, ...] = ()


class Extension(NamedTuple):
    """An arrow that the engine produces and the seed does not have, or has for other grounds, with the reason.

    `trigger` is the word of the extension; without one, its line carries the canonical trigger.
    """

    source: str | None
    target: str
    reason: str
    trigger: str = ""
    when: tuple[str, ...] = ()


class ForbiddenPair(NamedTuple):
    """A pair of states that the seed forbids; either side may be ANY."""

    source: str
    target: str
    cites: str


def covers(when: tuple[str, ...], because: str, ground: str) -> bool:
    """Whether `when` names this canonical trigger or this ground."""
    return any(ground.startswith(one[:-1]) if one.endswith("*") else one in (because, ground) for one in when)


class MachineView(msgspec.Struct, frozen=True, kw_only=True):
    """One machine of a dialect, and its mapping from the canonical machine.

    `noun` is the dialect's name of the entity and the start of its log event types (`task` gives
    `task_state_transition`). `states` are the seed's; `extra` are shown states that the seed lacks, each with its
    reason. `shows` maps canonical states to shown ones; a missing canonical state is a stutter. `sticky` lists shown
    states that are not left for an earlier one: from `running`, a retry's `pending` is a stutter in dialects that say
    so. `quiet` names canonical triggers whose hop shows nothing. `repeats` names triggers that are shown even if the
    state stays the same, for a seed with an arrow from a state to itself. `follows` names grounds on which a run's
    arrow is written after the line of the step that caused it, where the seed's guard asks for that.
    """

    noun: str
    states: tuple[str, ...]
    terminal: frozenset[str]
    arrows: tuple[Arrow, ...]
    shows: Mapping[str, str]
    forbidden: tuple[ForbiddenPair, ...] = ()
    extra: Mapping[str, str] = {}
    extensions: tuple[Extension, ...] = ()
    sticky: Mapping[str, frozenset[str]] = {}
    quiet: frozenset[str] = frozenset()
    repeats: frozenset[str] = frozenset()
    follows: frozenset[str] = frozenset()

    def legal(self, source: str | None, target: str) -> bool:
        """Whether the seed itself has this arrow."""
        return any(arrow.source == source and arrow.target == target for arrow in self.arrows)

    def extended(self, source: str | None, target: str) -> Extension | None:
        """The extension that allows this arrow, if one is listed."""
        found = (each for each in self.extensions if each.source == source and each.target == target)
        return next(found, None)

    def listed(self, source: str | None, target: str) -> list[Arrow | Extension]:
        """Every row for this pair of states: the seed's own first, then the extensions."""
        rows: tuple[Arrow | Extension, ...] = (*self.arrows, *self.extensions)
        return [one for one in rows if one.source == source and one.target == target]

    def word(self, source: str | None, target: str, because: str, ground: str) -> Arrow | Extension | None:
        """The arrow or extension whose word is true for this ground; None if nothing listed covers it.

        An entry that names the ground comes first, then one without `when`; the seed's own comes before an extension.
        """
        listed = self.listed(source, target)
        named = (one for one in listed if one.when and covers(one.when, because, ground))
        return next(named, None) or next((one for one in listed if not one.when), None)

    def next_shown(self, shown: str | None, canonical: str, trigger: str | None = None) -> str | None:
        """The shown state after the canonical machine entered this state; an unchanged one means a stutter."""
        if trigger in self.quiet:
            return shown
        target = self.shows.get(canonical, shown)
        if shown is not None and target in self.sticky.get(shown, frozenset()):
            return shown
        return target

    def repeated(self, shown: str | None, trigger: str) -> bool:
        """Whether a hop by this trigger is an arrow of the seed although the shown state stays the same."""
        return shown is not None and trigger in self.repeats and self.legal(shown, shown)
