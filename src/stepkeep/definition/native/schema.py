"""The native format as a JSON Schema, for editors and other programs: made from the models, never by hand.

    python -m stepkeep.definition.native.schema > docs/reference/native.schema.json

It describes shapes; names, cycles and expressions are checked by the front end. A test keeps the published
file fresh.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel

from stepkeep.definition.native.written import WorkflowBlock

_WORK = ("uses", "command", "http", "agent")
_KINDS = {"StepBlock": (*_WORK, "approval", "wait", "sleep", "workflow", "switch"), "UndoBlock": _WORK}


def native_schema() -> dict[str, Any]:
    """The schema as data.

    >>> native_schema()["required"]
    ['workflow', 'steps']
    """
    schema: dict[str, Any] = json.loads(schema_text())
    return schema


def schema_text() -> str:
    """The schema as it is published."""
    return published(WorkflowBlock, "Stepkeep workflow, native format", _one_kind_of_work)


def _one_kind_of_work(schema: dict[str, Any]) -> None:
    for name, kinds in _KINDS.items():
        schema["$defs"][name]["oneOf"] = [{"required": [kind]} for kind in kinds]
        schema["$defs"][name]["dependentRequired"] = {"agent": ["action"], "action": ["agent"]}


def published(model: type[BaseModel], title: str, amend: Callable[[dict[str, Any]], None]) -> str:
    """A model as the text of a JSON Schema; `amend` adds what the model cannot express."""
    schema = tidied(model.model_json_schema(by_alias=True, mode="validation"))
    amend(schema)
    whole = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **schema}
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


def tidied(node: Any, *, names: bool = False) -> Any:
    """Without titles that repeat each key, and without optional nulls."""
    if isinstance(node, list):
        return [tidied(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {
        key: tidied(value, names=key in {"properties", "$defs"})
        for key, value in node.items()
        if names or not (key == "title" or (key == "default" and value is None))
    }


if __name__ == "__main__":
    sys.stdout.write(schema_text())
