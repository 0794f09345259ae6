"""The WorkflowV1 format as a JSON Schema, made from the models, never by hand.

    python -m stepkeep.dialects.action.schema > src/stepkeep/dialects/action/schema.json

It describes shapes; order, tiers, edges and compensations are checked by the front end. A test keeps the file fresh.
"""

from __future__ import annotations

import json
import sys
from importlib.resources import files
from typing import Any

PUBLISHED = "schema.json"


def published_schema() -> dict[str, Any]:
    """The schema that comes with the package."""
    text = files("stepkeep.dialects.action").joinpath(PUBLISHED).read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


def schema_text() -> str:
    """The schema as the models have it now."""
    from stepkeep.definition.schema import tidied
    from stepkeep.dialects.action.written import WorkflowV1

    schema = tidied(WorkflowV1.model_json_schema(by_alias=True, mode="validation"))
    schema["$defs"]["Action"]["anyOf"] = [{"required": ["operation"]}, {"required": ["capability"]}]
    whole = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "WorkflowV1 with runtime metadata and a capability section",
        **schema,
    }
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(schema_text())
