"""What one tenant may use up: work that is bounded before it runs, and places that others keep."""

from __future__ import annotations

import json
from typing import Any

import pytest

import stepkeep as sk
from stepkeep.definition.expressions import json_schema, schema_cost
from tests.api.stage import on, told
from tests.definition.test_json_schema import doubling


def workflow(name: str, **schemas: Any) -> dict[str, Any]:
    step = {"name": "a", "uses": "api.greet", "timeout": "5s"} | {k: v for k, v in schemas.items() if k != "whole"}
    return {"workflow": name, "timeout": "1h", "steps": [step]} | (
        {"input_schema": schemas["whole"]} if "whole" in schemas else {}
    )


async def test_a_schema_whose_checks_multiply_is_published_nowhere(database_url: str) -> None:
    async with on(database_url) as stage, stage.client(await stage.key()) as client:
        for place in ("whole", "input_schema", "output_schema"):
            said = await client.post("/workflows", json=workflow("bomb", **{place: doubling(28)}))
            assert "takes too long to check a value" in told(said, 422, "definition")["detail"], place
        said = await client.put("/schemas/bomb", json={"document": doubling(28)})
        assert "takes too long to check a value" in told(said, 400, "invalid_input")["detail"]


async def test_a_schema_that_was_published_before_the_bound_is_refused_at_use(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with on(database_url) as stage, stage.client(await stage.key()) as client:
        with monkeypatch.context() as before:
            before.setattr(schema_cost, "MAX_RULES", 1 << 60)
            before.setattr(schema_cost, "MAX_STEPS", 1 << 60)
            made = await client.post("/workflows", json=workflow("bomb", whole=doubling(28)))
            assert made.status_code == 201, made.text
        json_schema._kept.clear()
        refused = told(await client.post("/runs", json={"workflow": "bomb"}), 400, "invalid_input")
        assert "its schema cannot be used" in refused["detail"]
        assert "Publish a version with a simpler schema" in refused["detail"]
        assert (await client.get("/runs")).json()["runs"] == []


async def test_a_large_input_is_checked_beside_the_event_loop(database_url: str) -> None:
    """While the schema library holds a thread, the loop is free: the check is handed to another thread."""
    declared = sk.Workflow("declared", input_schema={"properties": {"many": {"items": {"type": "integer"}}}})
    declared.step("greet", "api.greet")

    async with on(database_url) as stage:
        await stage.publish(declared)
        async with stage.client(await stage.key()) as client:
            body = json.dumps({"workflow": "declared", "input": {"many": [1] * 200_000}})
            made = await client.post("/runs", content=body, headers={"Content-Type": "application/json"})
            assert made.status_code == 201, made.text
            wrong = await client.post("/runs", json={"workflow": "declared", "input": {"many": ["one"]}})
            assert "many.0" in told(wrong, 400, "invalid_input")["detail"]
