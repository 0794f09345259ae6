"""Whatever is written, the answer is a definition or a list of problems, with a place each."""

import copy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example
from hypothesis import strategies as st
from tests.suites import drawn

from stepkeep.definition.native.reader import check_text, examine
from stepkeep.definition.python.registry import Registry
from stepkeep.definition.text.document import parse_document
from stepkeep.kernel.definition import decode_definition, encode_definition
from stepkeep.kernel.errors import Problem

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
WHOLE: list[Any] = [parse_document(path.read_text()).data for path in sorted(EXAMPLES.glob("*.yaml"))]
NATIVE = [whole for whole in WHOLE if "workflow" in whole and "steps" in whole]

WORDS = st.sampled_from(
    [
        "",
        "a",
        "steps",
        "create-account",
        "reserve",
        "manual",
        "skip",
        "5s",
        "-1",
        "${{",
        "${{ input.x }}",
        "${{ output }}",
    ]
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | WORDS | st.text(max_size=8)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3), max_leaves=6
)


class Nowhere:
    def problem(
        self, path: tuple[str | int, ...], message: str, hint: str = "", *, key: bool = False, inside: int = 0
    ) -> Problem:
        assert message
        return Problem(file="f", line=1, column=1, path=str(path), message=message, hint=hint)


def places(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, part in inner for place in places(part, (*path, key)))]


def judge(data: Any) -> None:
    for handlers in (None, Registry()):
        report = examine(data, Nowhere(), handlers)
        assert (report.definition is None) == bool(report.problems)
        if report.definition is not None:
            assert decode_definition(encode_definition(report.definition)) == report.definition


@drawn(16, 100, VALUES)
@example({"workflow": "a", "steps": [{"name": "a", "uses": "x", "command": []}]})
def test_of_any_data(data: Any) -> None:
    judge(data)


@drawn(25, 150, st.data())
def test_of_an_example_with_one_part_replaced(data: st.DataObject) -> None:
    whole = copy.deepcopy(data.draw(st.sampled_from(WHOLE)))
    *way, last = data.draw(st.sampled_from(places(whole)[1:]))
    holder: Any = whole
    for part in way:
        holder = holder[part]
    holder[last] = data.draw(VALUES)
    judge(whole)


@drawn(25, 150, st.data())
def test_of_an_example_with_one_key_added(data: st.DataObject) -> None:
    whole = copy.deepcopy(data.draw(st.sampled_from(NATIVE)))
    keys = ["if", "with", "rules", "validate", "undo", "wait", "approval", "http", "agent", "action", "depends_on", "x"]
    block = data.draw(st.sampled_from(whole["steps"]))
    block[data.draw(st.sampled_from(keys))] = data.draw(VALUES)
    judge(whole)


@drawn(16, 100, st.data())
def test_of_an_example_with_a_piece_of_text_cut_out(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(sorted(EXAMPLES.glob("*.yaml")))).read_text()
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 40)))
    report = check_text(text[:start] + text[end:], "cut.yaml")
    assert (report.definition is None) == bool(report.problems)
    lines = text.count("\n") + 2
    assert all(1 <= problem.line <= lines for problem in report.problems)


@pytest.mark.parametrize(
    "text", ["", "{", "[", "\x00", "a: &a [*a]", "- " * 5_000, "{a: " * 5_000, "!!python/object:os.system {}"]
)
def test_of_hostile_text(text: str) -> None:
    report = check_text(text, "hostile.yaml")
    assert report.definition is None
    assert report.problems
