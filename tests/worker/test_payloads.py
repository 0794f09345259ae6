"""Results are stored as they are, or refused with a reason that can be stored (faults B27, B28)."""

from __future__ import annotations

import dataclasses
import enum

import msgspec
import pytest
from hypothesis import strategies as st
from pydantic import BaseModel
from tests.suites import drawn

from stepkeep.worker.attempts.payloads import MAX_DEPTH, Unstorable, encode, storable_text


def nested(levels: int) -> list[object]:
    value: list[object] = []
    for _ in range(levels - 1):
        value = [value]
    return value


class Colour(enum.StrEnum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int


class Model(BaseModel):
    name: str


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (None, b"null"),
        ({"a": [1, 2.5, True, None, "é"]}, '{"a":[1,2.5,true,null,"é"]}'.encode()),
        ((1, 2), b"[1,2]"),
        (Point(3), b'{"x":3}'),
        ({"p": Point(3)}, b'{"p":{"x":3}}'),
        (Model(name="Ada"), b'{"name":"Ada"}'),
        (Colour.RED, b'"red"'),
        ({Colour.RED: 1}, b'{"red":1}'),
        ("\\u0000 as text is no NUL", b'"\\\\u0000 as text is no NUL"'),
        (10**30, b"1" + b"0" * 30),
    ],
)
def test_what_json_can_say_is_stored(value: object, stored: bytes) -> None:
    assert encode(value) == stored


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (float("nan"), "nan"),
        ({"deep": [float("-inf")]}, "-inf"),
        ("a\x00b", "NUL"),
        ({"a\x00b": 1}, "NUL"),
        ("\ud800", "not valid Unicode"),
        ({"k\udfff": 1}, "not valid Unicode"),
        ({1: "one"}, "key 1 is not text"),
        ({"inner": {2.5: "x"}}, "key 2.5 is not text"),
        ({(1, 2): "x"}, "type tuple"),
        ({"o": object()}, "object"),
        (nested(MAX_DEPTH + 1), "nested deeper"),
        (nested(100_000), "nested deeper"),
        ("x" * 300_000, "262144 are the limit"),
        ({"n": 10**5000}, "digits"),
    ],
)
def test_what_no_row_can_hold_is_refused_with_its_reason(value: object, reason: str) -> None:
    with pytest.raises(Unstorable, match=reason):
        encode(value)


def test_the_deepest_allowed_value_is_stored() -> None:
    assert encode(nested(MAX_DEPTH)) == b"[" * MAX_DEPTH + b"]" * MAX_DEPTH


def test_the_limit_can_be_moved() -> None:
    assert encode("x" * 98, limit=100) == b'"' + b"x" * 98 + b'"'
    with pytest.raises(Unstorable):
        encode("x" * 99, limit=100)


@drawn(
    25,
    100,
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters()) | st.integers(), inner),
    ),
)
def test_whatever_is_accepted_comes_back_the_same(value: object) -> None:
    try:
        stored = encode(value)
    except Unstorable as refusal:
        storable_text(str(refusal)).encode()
        return
    assert msgspec.json.decode(stored) == value
    assert b"\\u0000" not in stored or "\\u0000" in str(value)


@drawn(25, 100, st.text(st.characters()))
def test_any_error_text_can_be_made_storable(text: str) -> None:
    clean = storable_text(text, limit=100)
    assert "\x00" not in clean
    assert len(clean) <= 100
    clean.encode()


@pytest.mark.parametrize("value", ["a\x00", ["\ud800"], nested(MAX_DEPTH + 1), {"a": "x" * 300_000}])
def test_what_json_has_and_a_database_has_not_is_refused_of_decoded_values_too(value: object) -> None:
    with pytest.raises(Unstorable):
        encode(value, is_json=True)
    assert encode({"a": [1, 2.5, "ü"]}, is_json=True) == encode({"a": [1, 2.5, "ü"]})
