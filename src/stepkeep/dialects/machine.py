"""A dialect's machines as plain data: its states and arrows straight out of its seed, and how it sees ours.

Plain words only, no kernel tables: the judge reads these files and must share no code with what it judges. `shows`
maps a canonical state to the dialect's; a state it lacks is a stutter and shows what was shown before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

ANY = "*"
"""In a forbidden pair: any state."""


class Arrow(NamedTuple):
    """One row of the seed's own table; `source` is None where the thing comes into being.

    Where a seed has several rows between the same two states, `when` names the canonical triggers that mean this one.
    """

    source: str | None
    target: str
    trigger: str
    cites: str
    when: tuple[str, ...] = ()


class Extension(NamedTuple):
    """An arrow that the engine produces and the seed does not have, with the reason why it must."""

    source: str | None
    target: str
    reason: str


class Forbidden(NamedTuple):
    """A pair of states that the seed rules out by name; either side may be ANY."""

    source: str
    target: str
    cites: str


class MachineView(msgspec.Struct, frozen=True, kw_only=True):
    """One machine of a dialect, and the canonical machine seen through it.

    `noun` is what the dialect calls the thing and how its log lines begin (`task` gives `task_state_transition`).
    `states` are the seed's; `extra` are states shown that the seed lacks, each with its reason. `shows` maps canonical
    states to shown ones; a canonical state that is missing from it is a stutter. `sticky` says which shown states are
    no way back from a shown one: from `running`, a retry's `pending` is a stutter in dialects that say so.
    `quiet` names canonical triggers whose hop shows nothing, whatever state it leads to; `repeats` names those that are
    shown even where the state stays the same, in a seed that has an arrow from a state to itself.
    """

    noun: str
    states: tuple[str, ...]
    terminal: frozenset[str]
    arrows: tuple[Arrow, ...]
    shows: Mapping[str, str]
    forbidden: tuple[Forbidden, ...] = ()
    extra: Mapping[str, str] = {}
    extensions: tuple[Extension, ...] = ()
    sticky: Mapping[str, frozenset[str]] = {}
    quiet: frozenset[str] = frozenset()
    repeats: frozenset[str] = frozenset()

    def legal(self, source: str | None, target: str) -> bool:
        """Does the seed itself have this arrow?"""
        return any(arrow.source == source and arrow.target == target for arrow in self.arrows)

    def extended(self, source: str | None, target: str) -> Extension | None:
        """The extension that allows this arrow, if one is listed."""
        found = (each for each in self.extensions if each.source == source and each.target == target)
        return next(found, None)

    def next_shown(self, shown: str | None, canonical: str, trigger: str | None = None) -> str | None:
        """What is shown after the canonical machine entered this state; the same again means a stutter."""
        if trigger in self.quiet:
            return shown
        target = self.shows.get(canonical, shown)
        if shown is not None and target in self.sticky.get(shown, frozenset()):
            return shown
        return target

    def repeated(self, shown: str | None, trigger: str) -> bool:
        """Is a hop by this trigger an arrow of the seed although the state stays as it was shown?"""
        return shown is not None and trigger in self.repeats and self.legal(shown, shown)
