"""Differences of definitions as texts: in small parts, with units, and without secrets."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from stepkeep.kernel import definition as kernel
from stepkeep.operations.definitions.versions import DURATIONS, FREE, LONGEST, differing_paths

COUNTS = frozenset(
    {
        *("version", "order", "priority", "slots", "quorum", "reject_on", "count", "tolerate", "in_flight", "max"),
        *("running", "weight", "rate", "burst", "units"),
        *("retry.max_attempts", "retry.max_losses"),
    }
)
"""The whole numbers of a definition that are no durations."""

MOMENTS = frozenset({"wait.until"})


def numbers(of: Any, place: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every place in a value of this type that may have a whole number, without the content of users."""
    if isinstance(of, type) and issubclass(of, msgspec.Struct):
        for name, hint in typing.get_type_hints(of).items():
            if name not in FREE and name not in place:
                yield from numbers(hint, (*place, name))
    elif of is int:
        yield place
    elif typing.get_origin(of) in (typing.Union, types.UnionType, tuple):
        for one in typing.get_args(of):
            yield from numbers(one, place)


def ends(place: tuple[str, ...]) -> set[str]:
    return {place[-1], ".".join(place[-2:])}


def test_every_whole_number_of_a_definition_is_a_duration_a_count_or_a_moment() -> None:
    found = set(numbers(kernel.Definition))
    assert len(found) > 20
    for place in found:
        kinds = [ends(place) & kind for kind in (DURATIONS, COUNTS - {"max"} if "retry" in place else COUNTS, MOMENTS)]
        assert sum(map(bool, kinds)) == 1, f"{'.'.join(place)} is of no kind, or of two: say of which"


@pytest.mark.parametrize(
    ("field", "old", "new", "told"),
    [
        ("timeout", None, 90_000_000, [("timeout", "nothing", "1m30s")]),
        ("growth", {"max": 3, "pause": 0}, {"max": 4, "pause": 0}, [("growth.max", "3", "4")]),
        ("growth", {"max": 3, "pause": 0}, {"max": 3, "pause": 1_000}, [("growth.pause", "0s", "1ms")]),
        ("inputs", {"timeout": 5}, {"timeout": 6}, [("inputs.timeout", "5", "6")]),
        ("inputs", {"password": "one"}, {"password": "two"}, [("inputs.password", '"***"', '"***"')]),
        ("retry", {"max": 1, "on": ["timeout"]}, {"max": 1, "on": []}, [("retry.on", '["timeout"]', "[]")]),
    ],
)
def test_a_difference_is_told_where_it_is(field: str, old: Any, new: Any, told: list[tuple[str, str, str]]) -> None:
    assert differing_paths(field, old, new) == told


def test_of_long_texts_the_part_that_differs_is_told() -> None:
    same = "x" * 500
    [(_, old, new)] = differing_paths("description", f"{same}old{same}", f"{same}new{same}")
    assert "old" in old
    assert "new" in new
    assert max(len(old), len(new)) <= LONGEST + 1
    [(_, old, new)] = differing_paths("description", same, f"{same}!")
    assert old != new
