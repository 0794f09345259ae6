"""Just enough of JSON Schema to hold examples to a published schema; it refuses to guess at words it does not know."""

from __future__ import annotations

import re
from typing import Any

KINDS: dict[str, Any] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
}
QUIET = {"$schema", "$defs", "title", "description", "default", "examples", "required", "additionalProperties"}


def errors_of(data: Any, schema: Any, root: Any = None, at: str = "") -> list[str]:
    """Everything in the data that the schema does not allow."""
    root = schema if root is None else root
    found: list[str] = []
    for word, value in schema.items():
        found += _check(word, value, data, schema, root, at)
    return found


def _check(word: str, value: Any, data: Any, schema: Any, root: Any, at: str) -> list[str]:
    match word:
        case "$ref":
            return errors_of(data, root["$defs"][value.rsplit("/", 1)[-1]], root, at)
        case "type":
            fits = isinstance(data, KINDS[value]) and not (isinstance(data, bool) and value in {"integer", "number"})
            return [] if fits else [f"{at}: not {value}"]
        case "enum":
            return [] if data in value else [f"{at}: not among {value}"]
        case "const":
            return [] if data == value else [f"{at}: not {value}"]
        case "anyOf":
            return [] if any(not errors_of(data, one, root, at) for one in value) else [f"{at}: fits none"]
        case "required" if "properties" not in schema:
            return [f"{at}/{name}: missing" for name in value if name not in _keys(data)]
        case "properties":
            return _properties(data, schema, root, at) if isinstance(data, dict) else []
        case "propertyNames":
            return [fault for name in _keys(data) for fault in errors_of(name, value, root, f"{at}/{name}")]
        case "items":
            items = enumerate(data) if isinstance(data, list) else ()
            return [fault for place, item in items for fault in errors_of(item, value, root, f"{at}/{place}")]
        case "minItems" | "minLength":
            return [f"{at}: too short"] if isinstance(data, list | str) and len(data) < value else []
        case "maxItems" | "maxLength":
            return [f"{at}: too long"] if isinstance(data, list | str) and len(data) > value else []
        case "minimum":
            return [f"{at}: too small"] if isinstance(data, int | float) and data < value else []
        case "maximum":
            return [f"{at}: too large"] if isinstance(data, int | float) and data > value else []
        case "pattern":
            return [] if not isinstance(data, str) or re.search(value, data) else [f"{at}: another form"]
    assert word in QUIET, f"unknown word {word} in a schema"
    return []


def _keys(data: Any) -> list[str]:
    return list(data) if isinstance(data, dict) else []


def _properties(data: dict[str, Any], schema: Any, root: Any, at: str) -> list[str]:
    found = [f"{at}: {name} is missing" for name in schema.get("required", ()) if name not in data]
    known = schema["properties"]
    for name, value in data.items():
        if name in known:
            found += errors_of(value, known[name], root, f"{at}/{name}")
        elif schema.get("additionalProperties") is False:
            found.append(f"{at}: unknown {name}")
    return found
