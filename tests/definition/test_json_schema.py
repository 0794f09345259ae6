"""Schemas in definitions: what cannot be used is refused, nothing is fetched, and no pattern hangs."""

from __future__ import annotations

import pytest

from stepkeep.definition.json_schema import MAX_COMPLAINTS, InvalidSchema, Shape


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "nothing"},
        {"required": "invoiceId"},
        {"pattern": "("},
        {"$schema": "https://schemas.example/own"},
        {"$ref": "#/$defs/missing"},
    ],
)
def test_a_schema_that_is_none_is_refused_in_one_line(schema: dict[str, object]) -> None:
    with pytest.raises(InvalidSchema) as refused:
        Shape(schema)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("reference", ["file:///etc/hostname", "https://schemas.example/invoice.json"])
def test_nothing_outside_the_schema_is_ever_fetched(reference: str) -> None:
    with pytest.raises(InvalidSchema, match="Retrieval is disabled"):
        Shape({"properties": {"invoice": {"$ref": reference}}})


def test_patterns_that_would_need_backtracking_are_refused_and_others_take_linear_time() -> None:
    with pytest.raises(InvalidSchema):
        Shape({"pattern": "(?=a)b"})
    assert Shape({"pattern": "^(a+)+$"}).complaints("a" * 100_000 + "b")


def test_complaints_name_the_place_and_are_few_and_short() -> None:
    shape = Shape({"additionalProperties": {"maxLength": 2}})
    assert shape.complaints({"a": "12"}) == []
    assert shape.complaints({"name": "long"})[0].startswith("name: ")
    many = shape.complaints({f"k{n}": "x" * 1000 for n in range(100)})
    assert len(many) == MAX_COMPLAINTS
    assert all(len(said) < 300 for said in many)
