"""The quick reading of a line accepts only what the slow one accepts, and gives the same value."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from tests.conformance.logs import log_of
from tests.conformance.tellings import stories, walks

from stepkeep.conformance import line, opening
from stepkeep.conformance.encoding import parse
from stepkeep.conformance.quick import quick_line

CHANGES: dict[str, Callable[[bytes], bytes]] = {
    "a space": lambda raw: raw.replace(b'","', b'", "', 1),
    "a repeated key": lambda raw: raw.replace(b'"metadata":{', b'"metadata":{"tenant":"other",', 1),
    "an optional field that is null": lambda raw: raw[:-2] + b',"error":null}}',
    "an unknown field": lambda raw: raw[:-2] + b',"colour":"red"}}',
    "an escape": lambda raw: raw.replace(b'"trigger":"', b'"trigger":"\\u0061', 1),
    "an empty text": lambda raw: raw.replace(b'"tenant":"t"', b'"tenant":""', 1),
    "a fraction": lambda raw: raw.replace(b'"seq":1', b'"seq":1.0', 1),
    "another severity": lambda raw: raw.replace(b'"severity":"info"', b'"severity":"warning"', 1),
    "another time": lambda raw: raw.replace(b'"timestamp":"1970', b'"timestamp":"1971', 1),
    "bytes that are no text": lambda raw: raw.replace(b'"trigger":"', b'"trigger":"\xff', 1),
}


def canonical_lines() -> list[bytes]:
    return [raw for world in stories() for raw in log_of(world)]


@pytest.fixture
def slowly(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], Any]:
    """Calls a reader without the quick path."""

    def call(read: Callable[[], Any]) -> Any:
        with monkeypatch.context() as patch:
            for module, name in (
                (line, "quick_line"), (line, "read_quickly"), (opening, "quick_definition"),
            ):  # fmt: skip
                patch.setattr(module, name, lambda *given: None)
            return read()

    return call


def test_a_canonical_line_has_the_same_value_however_it_is_read(slowly: Callable[[Callable[[], Any]], Any]) -> None:
    taken = 0
    for raw in canonical_lines():
        taken += quick_line(raw) is not None
        quick, slow = line.read_line(raw), slowly(lambda raw=raw: line.read_line(raw))  # type: ignore[misc]
        assert quick == slow
    assert taken > 0.8 * len(canonical_lines())


@pytest.mark.parametrize("change", CHANGES)
def test_a_line_that_no_export_writes_is_read_field_by_field(
    change: str, slowly: Callable[[Callable[[], Any]], Any]
) -> None:
    changed = 0
    for raw in canonical_lines():
        other = CHANGES[change](raw)
        changed += other != raw
        assert line.read_line(other) == slowly(lambda other=other: line.read_line(other))  # type: ignore[misc]
    assert changed


def test_what_the_quick_reading_accepts_has_no_problem(slowly: Callable[[Callable[[], Any]], Any]) -> None:
    random = Random(7)
    lines = canonical_lines() + [raw for world in walks(20) for raw in log_of(world)]
    for raw in lines:
        place = random.randrange(len(raw))
        other = raw[:place] + bytes([random.choice(b'"{}[]:,.0123456789nulx \\e')]) + raw[place + 1 :]
        if quick_line(other) is not None:
            assert parse(other)
        assert line.read_line(other) == slowly(lambda other=other: line.read_line(other))  # type: ignore[misc]
