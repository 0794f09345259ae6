"""The workflow resource as a JSON Schema, made from the models, never by hand.

    python -m stepkeep.dialects.ioa.schema > src/stepkeep/dialects/ioa/schema.json

It describes shapes; names, cycles and compensations are checked by the front end. A test keeps the file fresh.
"""

from __future__ import annotations

import json
import sys
from importlib.resources import files
from typing import Any

PUBLISHED = "schema.json"


def published_schema() -> dict[str, Any]:
    """The schema that comes with the package."""
    text = files("stepkeep.dialects.ioa").joinpath(PUBLISHED).read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


def schema_text() -> str:
    """The schema as the models have it now."""
    from stepkeep.dialects.ioa.written import WorkflowResource

    schema = _tidied(WorkflowResource.model_json_schema(by_alias=True, mode="validation"))
    whole = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Workflow resource, ioa.dev/v0.2",
        **schema,
        "additionalProperties": False,
    }
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


def _tidied(node: Any, *, names: bool = False) -> Any:
    """Without the titles that repeat each key, and without nulls that a file may not hold."""
    if isinstance(node, list):
        return [_tidied(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {
        key: _tidied(value, names=key in {"properties", "$defs"})
        for key, value in node.items()
        if names or not (key == "title" or (key == "default" and value is None))
    }


if __name__ == "__main__":
    sys.stdout.write(schema_text())
