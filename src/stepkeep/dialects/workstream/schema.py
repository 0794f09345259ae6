"""The workstream format as a JSON Schema, made from the models, never by hand.

    python -m stepkeep.dialects.workstream.schema > src/stepkeep/dialects/workstream/schema.json

It describes shapes; names, cycles, rules and expressions are checked by the front end. A test keeps the file fresh.
"""

from __future__ import annotations

import json
import sys
from importlib.resources import files
from typing import Any

PUBLISHED = "schema.json"


def published_schema() -> dict[str, Any]:
    """The schema that comes with the package."""
    text = files("stepkeep.dialects.workstream").joinpath(PUBLISHED).read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


def schema_text() -> str:
    """The schema as the models have it now."""
    from stepkeep.dialects.workstream.written import WorkstreamBlock

    schema = _tidied(WorkstreamBlock.model_json_schema(by_alias=True, mode="validation"))
    execution = schema["$defs"]["ExecutionBlock"]["properties"]
    # The models hold microseconds; the format has seconds.
    execution["timeout_seconds"]["default"] = 600
    execution["retry_delay_seconds"]["default"] = 2
    whole = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Workstream, seed 004",
        **schema,
    }
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


def _tidied(node: Any, *, names: bool = False) -> Any:
    """Without titles that repeat each key, and without optional nulls."""
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
