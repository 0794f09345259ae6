"""One error planted in a log of a dialect: by somebody who edits a line, or rewrites every number and hash."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from random import Random
from typing import NamedTuple

from tests.conformance.tellings import Line, encoded, resealed

from stepkeep.conformance.report import Code
from stepkeep.conformance.schema import timestamp_of
from stepkeep.dialects.dialect import JudgedDialect
from stepkeep.dialects.machine import MachineView


class Planted(NamedTuple):
    """A log with one error, the 1-based line at which it must be found, and as what."""

    log: list[bytes]
    line: int
    codes: frozenset[Code]


Plant = Callable[[list[Line], JudgedDialect, Random], Planted | None]

UNREADABLE = frozenset({Code.HASH, Code.JSON, Code.SCHEMA, Code.CONTRADICTION, Code.ILLEGAL, Code.HEAD, Code.GAP})


def changed_byte(lines: list[Line], judged: JudgedDialect, random: Random) -> Planted:
    """One byte of one line is another one; nothing else is touched."""
    log = encoded(lines)
    place = random.randrange(len(log))
    at = random.randrange(len(log[place]))
    other = random.choice([byte for byte in b'0123456789abcdefxyz"{}:,' if byte != log[place][at]])
    log[place] = log[place][:at] + bytes([other]) + log[place][at + 1 :]
    return Planted(log, place + 1, frozenset(Code))


def missing_line(lines: list[Line], judged: JudgedDialect, random: Random) -> Planted:
    place = random.randrange(len(lines))
    log = encoded([*lines[:place], *lines[place + 1 :]])
    if place == len(lines) - 1:
        return Planted(log, place, frozenset({Code.INCOMPLETE}))
    return Planted(log, place + 1, frozenset({Code.GAP}))


def repeated_line(lines: list[Line], judged: JudgedDialect, random: Random) -> Planted:
    place = random.randrange(len(lines) - 1)
    log = encoded([*lines[: place + 1], lines[place], *lines[place + 1 :]])
    return Planted(log, place + 2, frozenset({Code.ORDER}))


def swapped_lines(lines: list[Line], judged: JudgedDialect, random: Random) -> Planted | None:
    if len(lines) < 3:
        return None
    place = random.randrange(len(lines) - 2)
    log = encoded([*lines[:place], lines[place + 1], lines[place], *lines[place + 2 :]])
    return Planted(log, place + 1, frozenset({Code.GAP}))


def time_backwards(lines: list[Line], judged: JudgedDialect, random: Random) -> Planted | None:
    """Rewritten whole, but a line is older than the one before it."""
    if len(lines) < 2:
        return None
    place = random.randrange(1, len(lines))
    told = deepcopy(lines)
    at = told[place - 1]["metadata"]["at"] - random.randint(1, 5_000_000)
    told[place]["metadata"]["at"], told[place]["timestamp"] = at, timestamp_of(at)
    return Planted(encoded(resealed(told)), place + 1, frozenset({Code.TIME}))


def illegal_arrow(lines: list[Line], judged: JudgedDialect, random: Random) -> Planted | None:
    """Rewritten whole, but one arrow leads where neither the seed nor its list of extensions goes."""
    place = random.randrange(len(lines) - 1) if len(lines) > 1 else 0
    view = view_of(lines[place], judged)
    if view is None:
        return None
    source = lines[place]["from_state"]
    wrong = [
        state
        for state in (*view.states, *view.extra)
        if state != source and not view.legal(source, state) and not view.extended(source, state)
    ]
    if not wrong:
        return None
    told = deepcopy(lines)
    told[place]["to_state"] = random.choice(wrong)
    return Planted(encoded(resealed(told)), place + 1, frozenset({Code.ILLEGAL}))


def untold_arrow(lines: list[Line], judged: JudgedDialect, random: Random) -> Planted | None:
    """Rewritten whole, but something of a thing that moves on later is left out."""
    named = [(line["event_type"], line["entity_id"]) for line in lines[:-1]]
    places = [at for at, name in enumerate(named) if name in named[at + 1 :]]
    places = [at for at in places if lines[at]["from_state"] != lines[at]["to_state"]]
    if not places:
        return None
    place = random.choice(places)
    later = named.index(named[place], place + 1)
    told = deepcopy([*lines[:place], *lines[place + 1 :]])
    return Planted(encoded(resealed(told)), later, frozenset({Code.DISCONTINUOUS, Code.CREATION}))


def false_ending(lines: list[Line], judged: JudgedDialect, random: Random) -> Planted:
    """Rewritten whole, but the closing line says another state."""
    told = deepcopy(lines)
    head = told[-1]
    other = random.choice([state for state in judged.run.states if state != head["to_state"]])
    head["from_state"] = head["to_state"] = head["metadata"]["state"] = other
    return Planted(encoded(resealed(told)), len(lines), frozenset({Code.HEAD}))


def false_flag(lines: list[Line], judged: JudgedDialect, random: Random) -> Planted | None:
    """Rewritten whole, but an extension does not say so, or something ordinary says it is one."""
    if len(lines) < 2:
        return None
    place = random.randrange(len(lines) - 1)
    told = deepcopy(lines)
    metadata = told[place]["metadata"]
    code = Code.ILLEGAL if "extension" in metadata else Code.CONTRADICTION
    if metadata.pop("extension", None) is None:
        metadata["extension"] = True
    return Planted(encoded(resealed(told)), place + 1, frozenset({code}))


def false_trigger(lines: list[Line], judged: JudgedDialect, random: Random) -> Planted | None:
    """Rewritten whole, but an arrow of the seed is said to have another trigger."""
    places = [at for at, line in enumerate(lines[:-1]) if "extension" not in line["metadata"]]
    if not places:
        return None
    told = deepcopy(lines)
    place = random.choice(places)
    told[place]["trigger"] += " or so"
    return Planted(encoded(resealed(told)), place + 1, frozenset({Code.ILLEGAL}))


PLANTS: Sequence[Plant] = (
    changed_byte,
    missing_line,
    repeated_line,
    swapped_lines,
    time_backwards,
    illegal_arrow,
    untold_arrow,
    false_ending,
    false_flag,
    false_trigger,
)


def view_of(line: Line, judged: JudgedDialect) -> MachineView | None:
    """The machine that a line is about."""
    found = (view for view in judged.views if line["event_type"] == f"{view.noun}_state_transition")
    return next(found, None)
