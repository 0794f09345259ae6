"""Values are read by declared types, and everything that is wrong with them is found at once, in one set of words."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Literal, TypedDict

import pytest
from msgspec import Meta

from stepkeep.operations.typed import Wrong, reader


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Where(TypedDict, total=False):
    state: list[Literal["a", "b"]]
    text: Annotated[str, Meta(max_length=3)] | None


class Needed(TypedDict):
    name: str


Name = Annotated[str, Meta(min_length=1, max_length=3)]
Few = Annotated[list[str], Meta(min_length=1, max_length=1)]
RIGHT: list[tuple[Any, Any, Any]] = [
    (Name, "abc", "abc"),
    (Name | None, None, None),
    (Annotated[int, Meta(ge=1, le=9)], 9, 9),
    (float, 1, 1),
    (bool, False, False),
    (Literal["x", "y"], "y", "y"),
    (Colour, "red", Colour.RED),
    (Colour, Colour.BLUE, Colour.BLUE),
    (list[Name], ("a", "b"), ["a", "b"]),
    (dict[str, int], {"a": 1}, {"a": 1}),
    (Where, {"state": ["a"], "text": None}, {"state": ["a"], "text": None}),
    (datetime, "2026-01-01T00:00:00Z", datetime(2026, 1, 1, tzinfo=UTC)),
    (Any, {"x": [1]}, {"x": [1]}),
]
WRONG: list[tuple[Any, Any, list[tuple[str, str]]]] = [
    (Name, "", [("v", "String should have at least 1 character")]),
    (Name, "abcd", [("v", "String should have at most 3 characters")]),
    (Name | None, 3, [("v", "Input should be a valid string")]),
    (Annotated[str, Meta(pattern="^a$")], "b", [("v", "String should match pattern '^a$'")]),
    (Annotated[int, Meta(ge=1)], 0, [("v", "Input should be greater than or equal to 1")]),
    (Annotated[int, Meta(le=9)], 10, [("v", "Input should be less than or equal to 9")]),
    (int, True, [("v", "Input should be a valid integer")]),
    (int, 3.0, [("v", "Input should be a valid integer")]),
    (float, float("nan"), [("v", "Input should be a finite number")]),
    (bool, 1, [("v", "Input should be a valid boolean")]),
    (Literal["x", "y", "z"], "q", [("v", "Input should be 'x', 'y' or 'z'")]),
    (Literal[1, 2], True, [("v", "Input should be 1 or 2")]),
    (Colour, "green", [("v", "Input should be 'red' or 'blue'")]),
    (list[str], "abc", [("v", "Input should be a valid list")]),
    (Few, ["a", "b"], [("v", "List should have at most 1 item after validation, not 2")]),
    (Few, [], [("v", "List should have at least 1 item after validation, not 0")]),
    (list[Name], ["a", 3], [("v.1", "Input should be a valid string")]),
    (dict[str, int], [], [("v", "Input should be a valid dictionary")]),
    (dict[str, int], {"a": "b"}, [("v.a", "Input should be a valid integer")]),
    (
        Where,
        {"state": ["c"], "text": "long text", "more": 1},
        [
            ("v.state.0", "Input should be 'a' or 'b'"),
            ("v.text", "String should have at most 3 characters"),
            ("v.more", "Extra inputs are not permitted"),
        ],
    ),
    (Needed, {}, [("v.name", "Field required")]),
    (datetime, 1767225600, [("v", "Value error, it is a time with a zone, as in 2026-01-01T00:00:00Z")]),
    (datetime, datetime(2026, 1, 1), [("v", "Value error, it is a time with a zone, as in 2026-01-01T00:00:00Z")]),  # noqa: DTZ001
]  # fmt: skip


@pytest.mark.parametrize(("annotation", "given", "expected"), RIGHT)
def test_a_value_of_the_declared_type_is_read(annotation: Any, given: Any, expected: Any) -> None:
    wrong: list[Wrong] = []
    assert reader(annotation)(given, ("v",), wrong) == expected
    assert wrong == []


@pytest.mark.parametrize(("annotation", "given", "expected"), WRONG)
def test_everything_that_is_wrong_is_said_with_its_place(annotation: Any, given: Any, expected: Any) -> None:
    wrong: list[Wrong] = []
    reader(annotation)(given, ("v",), wrong)
    assert [(".".join(map(str, one.at)), one.message) for one in wrong] == expected


@pytest.mark.parametrize(
    ("annotation", "text", "expected"),
    [(int, "12", 12), (float, "1.5", 1.5), (bool, "yes", True), (bool, "0", False), (list[str], ["a"], ["a"])],
)
def test_a_text_of_an_address_is_turned_into_its_value(annotation: Any, text: Any, expected: Any) -> None:
    wrong: list[Wrong] = []
    assert reader(annotation, from_text=True)(text, ("q",), wrong) == expected
    assert wrong == []


@pytest.mark.parametrize(
    ("annotation", "text", "message"),
    [
        (int, "x", "Input should be a valid integer, unable to parse string as an integer"),
        (float, "x", "Input should be a valid number, unable to parse string as a number"),
        (bool, "maybe", "Input should be a valid boolean, unable to interpret input"),
    ],
)
def test_a_text_that_stands_for_no_value_is_refused(annotation: Any, text: str, message: str) -> None:
    wrong: list[Wrong] = []
    reader(annotation, from_text=True)(text, ("q",), wrong)
    assert [one.message for one in wrong] == [message]


def test_a_type_that_nothing_reads_is_a_mistake_of_the_program() -> None:
    with pytest.raises(LookupError, match="are not read"):
        reader(bytes)
