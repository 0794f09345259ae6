"""Schemas in definitions: what cannot be used is refused, nothing is fetched, and no pattern hangs."""

from __future__ import annotations

import json
from functools import reduce
from random import Random
from typing import Any

import pytest

from stepkeep.definition.expressions.json_schema import MAX_COMPLAINTS, InvalidSchema, Shape
from stepkeep.definition.expressions.schema_cost import MAX_STEPS, CostBound, TooCostly


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


@pytest.mark.parametrize(
    "patterns",
    [
        [r"[\p{L}\p{N}]{200}"],
        [r"\p{L}{60}", r"(\P{L}a?){60}"],
        [r"((.{30}){20}){20}"],
        [r"((a{99}){99}){99}"],
        [r"\S{999}"] * 10,
        [f"a{n}" for n in range(2_500)],
        ["|".join(f"word{n}" for n in range(20_000))],
    ],
)
def test_patterns_that_take_long_to_compile_are_refused_before_they_are_compiled(
    patterns: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jsonschema_rs.validator_for", lambda *given, **named: pytest.fail("it was compiled"))
    named = {"properties": {f"p{n}": {"allOf": [{"pattern": one}]} for n, one in enumerate(patterns)}}
    for schema in (named, {"items": {"patternProperties": {f"{one}{n}": {} for n, one in enumerate(patterns)}}}):
        with pytest.raises(InvalidSchema, match=r"patterns take [0-9,]+ steps to compile"):
            Shape(schema)


@pytest.mark.parametrize(
    "pattern", [r"^[\p{L}\p{N} '-]{1,99}$", r"^\S+@\S+$", r"^.{0,255}$", "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"]
)
def test_ordinary_patterns_are_compiled(pattern: str) -> None:
    assert Shape({"pattern": pattern}).complaints(7) == []


def test_a_message_with_hundreds_of_short_fields_is_compiled() -> None:
    Shape({"properties": {f"field{n}": {"pattern": "^[A-Z0-9]{1,35}$"} for n in range(200)}})


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


def doubling(levels: int, **last: Any) -> dict[str, Any]:
    """A schema whose checks double with each level."""
    parts: dict[str, Any] = {f"d{level}": {"allOf": [{"$ref": f"#/$defs/d{level + 1}"}] * 2} for level in range(levels)}
    return {"$defs": {**parts, f"d{levels}": last}, "$ref": "#/$defs/d0"}


def nested_unevaluated(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"properties": {"a": {"type": "integer"}}}
    for _ in range(levels):
        schema = {"anyOf": [schema], "unevaluatedProperties": {"type": "integer"}}
    return schema


BOMBS: dict[str, dict[str, Any]] = {
    "references to references": doubling(60),
    "choices of choices": json.loads(json.dumps(doubling(60)).replace("allOf", "anyOf")),
    "what other parts left": nested_unevaluated(60),
    "itself at the same place": {"allOf": [{"$ref": "#"}]},
    "itself by an anchor": {"$dynamicAnchor": "n", "anyOf": [{"$dynamicRef": "#n"}, {"type": "null"}]},
    "children of children": {"properties": {"a": doubling(12)["$defs"]["d0"]}, "$defs": doubling(20)["$defs"]},
    "by address": {"$id": "https://x.example/s", "$ref": "s#/$defs/d0", "$defs": doubling(40)["$defs"]},
}


@pytest.mark.parametrize("schema", BOMBS.values(), ids=BOMBS)
def test_a_schema_whose_checks_multiply_is_refused_before_any_value_is_checked(schema: dict[str, Any]) -> None:
    with pytest.raises(InvalidSchema, match="takes too long to check a value"):
        Shape(schema)


def nested(levels: int) -> Any:
    value: Any = {}
    for _ in range(levels):
        value = {"a": value}
    return value


TOO_MUCH: dict[str, tuple[dict[str, Any], Any]] = {
    "a tree": ({"properties": {"a": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}}}, nested(40)),
    "a pattern": ({"items": {"pattern": "[ab]*a[ab]{2000}$"}}, ["ab" * 50_000]),
    "names": ({"patternProperties": {f"^x{n}[0-9]*y": {} for n in range(900)}}, {f"k{n}": 1 for n in range(20_000)}),
    "objects to compare": ({"items": {"enum": [{"a": n} for n in range(900)]}}, [{"a": 1}] * 20_000),
    "numbers": ({"items": {"multipleOf": 0.01}}, [1e300] * 40_000),
    "required": ({"items": {"required": [f"p{n}" for n in range(5000)]}}, [{}] * 1000),
    "items of items": (
        {"$ref": "#/$defs/a", "$defs": {"a": {"uniqueItems": True, "items": {"$ref": "#/$defs/a"}}}},
        reduce(lambda inner, _: [inner], range(40), list(range(20_000))),
    ),
}


@pytest.mark.parametrize(("schema", "value"), TOO_MUCH.values(), ids=TOO_MUCH)
def test_a_value_that_would_take_too_long_is_refused_unchecked(schema: dict[str, Any], value: Any) -> None:
    assert Shape(schema).complaints(value) == [
        f"the value cannot be checked: it would take more than {MAX_STEPS:,} steps; use a smaller value"
    ]


def test_a_large_value_that_does_not_match_is_not_told_place_by_place() -> None:
    """The library makes every complaint before the first one is read: each takes as long as a thousand steps."""
    [said] = Shape({"items": {"type": "string"}}).complaints([1] * 300_000)
    assert said == "the value does not match; it is too large to name the places"


TREE = {"type": "object", "properties": {"name": {"type": "string"}, "of": {"items": {"$ref": "#"}}}}
UUIDS = {"items": {"pattern": "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"}}
ORDINARY: dict[str, tuple[dict[str, Any], Any]] = {
    "a tree": (TREE, {"name": "a", "of": [{"name": "b", "of": [{"name": "c"}]}] * 1000}),
    "many ids": (UUIDS, ["019b7e2c-5a10-7c3e-9d7b-2f6f0a4c81d5"] * 20_000),
    "a long text beside an id": (
        {"properties": {"id": {"pattern": "[a-z]*x[a-z]{60}"}, "text": {"type": "string"}}},
        {"id": "abcx" + "z" * 60, "text": "long " * 500_000},
    ),
    "prices": ({"items": {"multipleOf": 0.01}}, [19.99] * 10_000),
    "numbers": ({"items": {"type": "integer"}}, [1] * 1_000_000),
    "wide": (
        {"properties": {f"p{n}": {"type": "string", "maxLength": 9} for n in range(2000)}},
        {f"p{n}": "x" for n in range(900)},
    ),
}


@pytest.mark.parametrize(("schema", "value"), ORDINARY.values(), ids=ORDINARY)
def test_an_ordinary_schema_checks_large_values(schema: dict[str, Any], value: Any) -> None:
    assert Shape(schema).complaints(value) == []


def visits(schema: Any, root: dict[str, Any], value: Any) -> int:
    """The schemas that are applied, counted as a library without any memory applies them."""
    count = 1
    if "$ref" in schema:
        count += visits(root["$defs"][schema["$ref"].rpartition("/")[2]], root, value)
    for part in [*schema.get("allOf", ()), *schema.get("anyOf", ())]:
        count += visits(part, root, value)
    if isinstance(value, dict):
        for name, one in value.items():
            parts = [schema.get("properties", {}).get(name), schema.get("additionalProperties")]
            count += sum(visits(part, root, one) for part in parts if part is not None)
    if isinstance(value, list) and "items" in schema:
        count += sum(visits(schema["items"], root, one) for one in value)
    return count


def test_the_bound_is_never_below_the_schemas_that_are_applied() -> None:
    names = [f"d{number}" for number in range(4)]
    for seed in range(100):
        random = Random(seed)

        def part(level: int, later: list[str], random: Random = random) -> dict[str, Any]:
            made: dict[str, Any] = {"type": ["object", "array", "null"]}
            if later and random.random() < 0.5:
                made["$ref"] = f"#/$defs/{random.choice(later)}"
            if level and random.random() < 0.5:
                made[random.choice(["allOf", "anyOf"])] = [
                    part(level - 1, later) for _ in range(random.randrange(1, 4))
                ]
            if level and random.random() < 0.7:
                # Below a child, any part may be named: trees.
                made["properties"] = {name: part(level - 1, names) for name in random.sample("abc", 2)}
            if level and random.random() < 0.5:
                made[random.choice(["items", "additionalProperties"])] = part(level - 1, names)
            return made

        def value(level: int, random: Random = random) -> Any:
            if not level:
                return None
            below = [value(level - 1) for _ in range(2)]
            return below if random.random() < 0.4 else dict(zip(random.sample("abcd", 2), below, strict=True))

        schema = part(3, names)
        schema["$defs"] = {name: part(2, names[place + 1 :]) for place, name in enumerate(names)}
        given = value(3)
        try:
            bound = CostBound(schema)
        except TooCostly:
            continue
        applied = visits(schema, schema, given)
        assert bound.steps(given) >= applied, seed
        assert bound._walk(given, 10**12) >= applied, seed
