"""Ways to tamper with a log, from one flipped byte to a well-told lie whose hashes are all in order."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from stepkeep.kernel.machine.journal import RUN_ENTITY, Cause, Entry, Hop
from stepkeep.operations.logs.lines import encode_line

RENAMED, REMOVED = object(), object()


class Tampered(NamedTuple):
    """A log with something done to it, and the 1-based lines among which the finding must be."""

    what: str
    lines: list[bytes]
    first: int
    last: int


# -- edits -----------------------------------------------------------------------------------------------------------
def edited_fields(log: Sequence[bytes], *, all_ways: bool = False) -> Iterator[Tampered]:
    """Every field of every line changed by a character, renamed or removed: in turn, or each in all ways."""
    for place, raw in enumerate(log):
        last = _end_of_entry(log, place)
        for turn, (path, value) in enumerate(_leaves(json.loads(raw)), place):
            ways = [*_one_character(value), RENAMED, REMOVED]
            for way in ways if all_ways else [ways[turn % len(ways)]]:
                line = json.loads(raw)
                _edit(line, path, way)
                yield Tampered(f"{path}: {value!r} → {way!r}", _with(log, place, encode_line(line)), place + 1, last)


def flipped_bytes(log: Sequence[bytes]) -> Iterator[Tampered]:
    """Every byte of every line replaced by another one."""
    for place, raw in enumerate(log):
        last = _end_of_entry(log, place)
        for at, byte in enumerate(raw):
            flipped = raw[:at] + bytes([_other(byte)]) + raw[at + 1 :]
            yield Tampered(f"byte {at} of line {place + 1}", _with(log, place, flipped), place + 1, last)


def _other(byte: int) -> int:
    letter = chr(byte)
    if letter.isdigit():
        return ord("7") if letter != "7" else ord("3")
    return ord("q") if letter != "q" else ord("k")


def _leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _leaves(item, (*path, name))
    elif not isinstance(value, list):
        yield path, value


def _one_character(value: Any) -> Iterator[Any]:
    if value is None:
        yield "null"
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, float):
        yield from (value + 0.000001, value + 1, round(value * 10, 6) + 0.5)
    elif isinstance(value, int):
        yield from (value + 1, value + 10, -value - 1, str(value))
    elif value:
        for at in {0, len(value) // 2, len(value) - 1}:
            yield value[:at] + chr(_other(ord(value[at]))) + value[at + 1 :]
        yield value.upper() if value.upper() != value else value + "x"
        yield value + " "
    else:
        yield "x"


def _edit(line: dict[str, Any], path: tuple[str, ...], way: Any) -> None:
    holder = line
    for name in path[:-1]:
        holder = holder[name]
    value = holder.pop(path[-1])
    if way is RENAMED:
        holder[path[-1][:-1] + "_"] = value
    elif way is not REMOVED:
        holder[path[-1]] = way


def _with(log: Sequence[bytes], place: int, line: bytes) -> list[bytes]:
    return [*log[:place], line, *log[place + 1 :]]


def _end_of_entry(log: Sequence[bytes], place: int) -> int:
    """The line that seals the entry of this line, where a change that only the hash shows is found."""
    return next(at + 1 for at in range(place, len(log)) if b'"hash":' in log[at])


# -- cuts ------------------------------------------------------------------------------------------------------------
def cut_and_shuffled(log: Sequence[bytes]) -> Iterator[Tampered]:
    """Lines dropped, doubled, swapped, moved; tails cut off, also in the middle of a line."""
    lines = list(log)
    for place in range(len(lines)):
        here = place + 1
        yield Tampered("dropped", lines[:place] + lines[place + 1 :], min(here, len(lines) - 1), len(lines))
        yield Tampered("doubled", lines[:here] + lines[place:], here + 1, here + 1)
        yield Tampered("cut off", lines[:place], place, place)
        yield Tampered("cut through", [*lines[:place], lines[place][: len(lines[place]) // 2]], here, here)
        yield Tampered("blank line", [*lines[:place], b"", *lines[place:]], here, here)
        yield Tampered("copied to the end", [*lines, lines[place]], len(lines) + 1, len(lines) + 1)
        if here < len(lines):
            swapped = [*lines[:place], lines[here], lines[place], *lines[here + 1 :]]
            yield Tampered("swapped", swapped, here, here + 1)
            moved = [*lines[:place], *lines[here:], lines[place]]
            yield Tampered("moved to the end", moved, here, len(lines))


# -- lies ------------------------------------------------------------------------------------------------------------
def hop_left_out(entries: Sequence[Entry]) -> Iterator[tuple[str, list[Entry]]]:
    """One hop never happened; an entry left with nothing to say is left out with it."""
    for at, entry in enumerate(entries):
        for place, hop in enumerate(entry.hops):
            rest = entry.hops[:place] + entry.hops[place + 1 :]
            yield f"without {describe(entry, hop)}", _retold(entries, at, rest)


def hop_told_twice(entries: Sequence[Entry]) -> Iterator[tuple[str, list[Entry]]]:
    for at, entry in enumerate(entries):
        for place, hop in enumerate(entry.hops):
            twice = (*entry.hops[: place + 1], *entry.hops[place:])
            yield f"{describe(entry, hop)} twice", _retold(entries, at, twice)


def hop_bent(entries: Sequence[Entry], states: Sequence[str]) -> Iterator[tuple[str, list[Entry]]]:
    """One hop comes from, or goes to, another state than it did."""
    for at, entry in enumerate(entries):
        for place, hop in enumerate(entry.hops):
            for state in states:
                if state != hop.target:
                    yield f"{describe(entry, hop)} to {state}", changed(entries, at, place, target=state)
                if state != hop.source:
                    yield f"{describe(entry, hop)} from {state}", changed(entries, at, place, source=state)


def numbers_bent(entries: Sequence[Entry]) -> Iterator[tuple[str, list[Entry]]]:
    """Fences, attempts and durations that are off by one; times that run backwards."""
    for at, entry in enumerate(entries):
        if at:
            yield f"entry {entry.seq} before its time", [*entries[:at], replace(entry, at=1), *entries[at + 1 :]]
        for place, hop in enumerate(entry.hops):
            for name in ("fence", "attempt", "took"):
                value = getattr(hop, name)
                if value is not None:
                    yield f"{describe(entry, hop)} {name} + 1", changed(entries, at, place, **{name: value + 1})
                    yield f"{describe(entry, hop)} no {name}", changed(entries, at, place, **{name: None})


def entry_added(entries: Sequence[Entry], *hops: Hop) -> list[Entry]:
    """Something more happened after all that did."""
    last = entries[-1]
    return [*entries, replace(last, seq=last.seq + 1, causes=(Cause("time_came", "sweep"),), hops=hops)]


def changed(entries: Sequence[Entry], at: int, place: int, **changes: Any) -> list[Entry]:
    entry = entries[at]
    hops = (*entry.hops[:place], replace(entry.hops[place], **changes), *entry.hops[place + 1 :])
    return [*entries[:at], replace(entry, hops=hops), *entries[at + 1 :]]


def find(entries: Sequence[Entry], no: int, trigger: str) -> tuple[int, int]:
    """Where a hop stands: which entry, which place in it."""
    return next(
        (at, place)
        for at, entry in enumerate(entries)
        for place, hop in enumerate(entry.hops)
        if (hop.no, hop.trigger) == (no, trigger)
    )


def describe(entry: Entry, hop: Hop) -> str:
    who = "the run" if hop.no == RUN_ENTITY else f"step {hop.no}"
    return f"entry {entry.seq}: {who} {hop.source} → {hop.target} ({hop.trigger})"


def _retold(entries: Sequence[Entry], at: int, hops: tuple[Hop, ...]) -> list[Entry]:
    entry = entries[at]
    told = [*entries[:at], replace(entry, hops=hops), *entries[at + 1 :]]
    if not hops:
        del told[at]
    return [replace(entry, seq=seq) for seq, entry in enumerate(told, 1)]
