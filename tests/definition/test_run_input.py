"""The input of a run is held to what its definition declares."""

from typing import Any

import pytest

from stepkeep.definition.expressions.json_schema import check_input
from stepkeep.definition.native.reader import load_text
from stepkeep.kernel.errors import InvalidInput

DECLARED = load_text(
    """
workflow: demo
input:
  email: { type: string }
  age: { type: integer, required: false }
  score: { type: number, required: false }
  ok: { type: boolean, required: false }
  tags: { type: array, required: false }
  extra: { type: object, required: false }
  anything: { required: false }
steps: [{ name: a, uses: x }]
""",
    "demo.yaml",
)


@pytest.mark.parametrize(
    "given",
    [
        {"email": "a@b.c"},
        {"email": "", "age": 3, "score": 1, "ok": False, "tags": [], "extra": {}, "anything": None},
        {"email": "x", "score": 1.5, "age": 3.0},
    ],
)
def test_what_fits_passes(given: dict[str, Any]) -> None:
    check_input(DECLARED, given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "`email` is missing."),
        ({"email": None}, "`email` must be string, not null."),
        ({"email": "x", "age": True}, "`age` must be integer, not boolean."),
        ({"email": "x", "age": 1.5}, "`age` must be integer, not number."),
        ({"email": "x", "ok": 1}, "`ok` must be boolean, not integer."),
        ({"email": "x", "tags": {}}, "`tags` must be array, not object."),
        ({"email": "x", "emial": "y"}, "`emial` is not declared. Did you mean `email`?"),
        ([], "must be an object with: email, age"),
        (None, "must be an object with"),
    ],
)
def test_what_does_not_fit_is_named(given: Any, said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_input(DECLARED, given)
    assert said in str(caught.value)


def test_a_workflow_that_declares_nothing_takes_anything() -> None:
    definition = load_text("workflow: demo\nsteps: [{ name: a, uses: x }]", "demo.yaml")
    check_input(definition, None)
    check_input(definition, [1, 2])


def test_names_alone_are_required_and_of_any_type() -> None:
    definition = load_text("workflow: demo\ninput: [day]\nsteps: [{ name: a, uses: x }]", "demo.yaml")
    check_input(definition, {"day": 5})
    with pytest.raises(InvalidInput, match="`day` is missing"):
        check_input(definition, {})
