"""Schemas by reference: published once, resolved when a definition is published, pinned in it, never fetched."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

import stepkeep as sk
from stepkeep.definition.expressions.json_schema import MAX_SCHEMA_BYTES, MAX_SCHEMA_DEPTH
from stepkeep.definition.native.reader import CheckReport, load_text
from stepkeep.definition.text.document import parse_document
from stepkeep.dialects.registry import examine
from stepkeep.kernel.definition import Definition, digest_of
from stepkeep.kernel.errors import Conflict, InvalidInput, NotFound

INVOICE = {"type": "object", "required": ["id"], "properties": {"id": {"$ref": "#/$defs/id"}}, "$defs": {"id": {}}}
TEXT = """
workflow: shop
timeout: 1h
input_schema: {ref: order/v1}
output_schema: {ref: invoice/v1}
steps:
  - name: pay
    uses: shop.pay
    timeout: 5s
    input_schema: {ref: order/v1}
    output_schema: {ref: invoice/v1}
"""


@pytest.fixture
def engine(database_url: str) -> Any:
    with sk.open(database_url) as opened:
        yield opened


def check_text(text: str, file: str) -> CheckReport:
    return examine(parse_document(text, file))


def shop() -> Definition:
    return load_text(TEXT, "shop.yaml")


def test_a_schema_is_published_once_listed_and_shown(engine: Any) -> None:
    first = engine.publish_schema("invoice/v1", INVOICE)["schema"]
    assert engine.publish_schema("invoice/v1", dict(reversed(INVOICE.items())))["schema"] == first
    with pytest.raises(Conflict, match="A published schema never changes: publish this one under another reference"):
        engine.publish_schema("invoice/v1", {"type": "array"})
    engine.publish_schema("a/v1", {})
    assert [one["ref"] for one in engine.schemas()["schemas"]] == ["a/v1", "invoice/v1"]
    shown = engine.schema("invoice/v1")["schema"]
    assert shown["document"] == INVOICE
    assert {key: value for key, value in shown.items() if key != "document"} == first
    with pytest.raises(NotFound, match="Publish it: stepkeep schemas publish FILE --ref nothing"):
        engine.schema("nothing")


def test_publishing_resolves_references_and_pins_the_schemas_with_their_digests(engine: Any) -> None:
    order = {"type": "object", "required": ["sku"]}
    digests = {
        ref: engine.publish_schema(ref, schema)["schema"]["digest"]
        for ref, schema in (("order/v1", order), ("invoice/v1", INVOICE))
    }
    plan = engine.publish(shop())
    [step] = plan.definition.steps
    assert (plan.definition.input_schema, step.input_schema) == (order, order)
    assert step.output_schema == INVOICE
    assert [rule.schema for rule in plan.definition.rules] == [INVOICE]
    assert plan.definition.schemas == digests
    assert digest_of(plan.document) == plan.digest
    assert engine.publish(shop()).digest == plan.digest, "the same file is the same definition"
    with pytest.raises(InvalidInput, match="does not fit its schema"):
        engine.start(plan, {"n": 1})
    assert engine.start(plan, {"sku": "a"}).created


def test_a_reference_that_is_not_published_is_refused_with_the_command(engine: Any) -> None:
    engine.publish_schema("order/v1", {})
    with pytest.raises(InvalidInput) as refused:
        engine.publish(shop())
    assert str(refused.value) == (
        "shop cannot be published: `output_schema` of the workflow: there is no schema invoice/v1. "
        "Publish it: stepkeep schemas publish FILE --ref invoice/v1"
    )
    assert engine.definitions()["definitions"] == []


def test_a_run_is_checked_by_the_schema_that_was_pinned(engine: Any) -> None:
    engine.publish_schema("order/v1", {})
    engine.publish_schema("invoice/v1", INVOICE)
    flow = sk.Workflow("shop", output_schema={"ref": "invoice/v1"}, output={"total": "${{ steps.pay.output.total }}"})
    flow.step("pay", pay)
    result = engine.run(flow, {})
    assert result.state == "failed"
    assert "output_schema: the output of the run does not fit its schema" in result.error


@sk.step("schemas.pay")
def pay() -> dict[str, int]:
    return {"total": 3}


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ([], "a JSON Schema is a mapping, not a list"),
        ("text", "a JSON Schema is a mapping, not text"),
        ({"type": "nonsense"}, "this is no usable JSON Schema at type"),
        ({"$ref": "https://example.com/x.json"}, "this is no usable JSON Schema"),
        ({"$ref": "file:///etc/passwd"}, "this is no usable JSON Schema"),
        ({"$ref": "other.json#/a"}, "this is no usable JSON Schema"),
        ({"ref": "other/v1"}, "a schema of the registry refers to no other one"),
        ({"description": "x" * MAX_SCHEMA_BYTES}, "bytes of JSON; at most"),
        ({"a": object()}, "this schema is no JSON"),
        ({1: 2}, "this schema is no JSON"),
    ],
)
def test_what_cannot_be_a_schema_is_refused(tmp_path: Path, schema: Any, said: str) -> None:
    with sk.open(f"sqlite:///{tmp_path}/s.db") as engine, pytest.raises(InvalidInput, match=said):
        engine.publish_schema("x", schema)


def test_a_schema_that_is_nested_too_deep_is_refused(tmp_path: Path) -> None:
    deep: dict[str, Any] = {}
    for _ in range(MAX_SCHEMA_DEPTH + 1):
        deep = {"not": deep}
    with sk.open(f"sqlite:///{tmp_path}/s.db") as engine, pytest.raises(InvalidInput, match="levels deep"):
        engine.publish_schema("x", deep)


@pytest.mark.parametrize("ref", ["", "x" * 256, "a\nb", 3])
def test_a_reference_is_a_short_printable_text(tmp_path: Path, ref: Any) -> None:
    with (
        sk.open(f"sqlite:///{tmp_path}/s.db") as engine,
        pytest.raises(InvalidInput, match=r"reference of a schema|ref:"),
    ):
        engine.publish_schema(ref, {})


@pytest.mark.parametrize("written", ["{ref: 3}", "{ref: a, type: object}", "{ref: ''}", "{ref: [a]}"])
def test_a_reference_in_a_definition_stands_alone(written: str) -> None:
    text = f"workflow: w\nsteps: [{{name: a, uses: x, input_schema: {written}}}]"
    [problem] = check_text(text, "w.yaml").problems
    assert problem.path == "steps[0].input_schema.ref"
    assert problem.message.startswith("A reference is `ref` alone")


def _actions(**action: Any) -> str:
    return json.dumps(
        {
            "schemaVersion": 1,
            "workflowId": "wf",
            "workspaceId": "ws",
            "name": "n",
            "version": 1,
            "active": True,
            "executionTier": "Auto",
            "actions": [{"actionId": "a", "order": 1, "portFamily": "CrmSales", "operation": "lead:write", **action}],
            "capabilities": {"lead:write": {"safety": {"idempotent": True}, "inputSchema": {"type": "object"}}},
        }
    )


def test_the_references_of_an_action_are_resolved_like_all_others(engine: Any) -> None:
    """003: inputSchemaRef and outputSchemaRef."""
    report = check_text(_actions(outputSchemaRef="lead/v1"), "wf.json")
    assert report.definition is not None, report.problems
    assert not [one for one in report.ignored if "SchemaRef" in one.message]
    with pytest.raises(InvalidInput, match="stepkeep schemas publish FILE --ref lead/v1"):
        engine.publish(report.definition)
    engine.publish_schema("lead/v1", {"required": ["lead"]})
    plan = engine.publish(report.definition)
    assert plan.definition.steps[0].output_schema == {"required": ["lead"]}
    assert plan.definition.about["actions"]["a"]["outputSchemaRef"] == "lead/v1"
    assert plan.definition.schemas is not UNSET


def test_an_action_has_its_schema_once() -> None:
    [problem] = check_text(_actions(inputSchemaRef="lead/v1"), "wf.json").problems
    assert problem.path == "actions[0].inputSchemaRef"
    assert "its capability has the schema inline" in problem.message
