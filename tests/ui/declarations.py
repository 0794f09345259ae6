"""Writes tests/ui/answers.d.ts, the types of what the service answers, from its OpenAPI document.

`get` and `post` of the pages look an address up in it, so that `tsc` finds fields that no answer has.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from stepkeep.api.app import create_app
from stepkeep.engine import AsyncEngine

FILE = Path(__file__).parent / "answers.d.ts"
HEAD = "// Written by tests/ui/declarations.py from the OpenAPI document.\n\n"
PLAIN = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}


def declarations() -> str:
    """Every schema as an interface or a type, and the answer of each address by method."""
    document = create_app(AsyncEngine("sqlite:///unused.db")).openapi()
    schemas = document["components"]["schemas"]
    parts = [f"{_declared(name, schema)}\n\n" for name, schema in schemas.items()]
    parts += (_addresses(method, document["paths"]) for method in ("get", "post"))
    return f"{HEAD}declare namespace Answers {{\n\n{''.join(parts)}}}\n"


def _declared(name: str, schema: Mapping[str, Any]) -> str:
    if "properties" in schema:
        return f"interface {name} {_object(schema)}"
    return f"type {name} = {_type(schema)};"


def _object(schema: Mapping[str, Any]) -> str:
    needed = schema.get("required", ())
    more = " [more: string]: any;" if schema.get("additionalProperties") is True else ""
    fields = (
        f"{name if name.isidentifier() else json.dumps(name)}{'' if name in needed else '?'}: {_type(one)};"
        for name, one in schema["properties"].items()
    )
    return f"{{ {' '.join(fields)}{more} }}"


def _type(schema: Mapping[str, Any]) -> str:
    match schema:
        case {"$ref": str(name)}:
            return name.rpartition("/")[2]
        case {"anyOf": [*kinds]} | {"oneOf": [*kinds]}:
            return " | ".join(dict.fromkeys(map(_type, kinds)))
        case {"enum": [*words]}:
            return " | ".join(map(json.dumps, words))
        case {"const": word}:
            return json.dumps(word)
        case {"type": [*kinds]}:
            return " | ".join(_type({**schema, "type": kind}) for kind in kinds)
        case {"type": "array"}:
            return f"({_type(schema.get('items', {}))})[]"
        case {"type": "object", "properties": _}:
            return _object(schema)
        case {"type": "object"}:
            inner = schema.get("additionalProperties", True)
            return f"Record<string, {_type(inner) if isinstance(inner, dict) else 'any'}>"
        case {"type": kind}:
            return PLAIN[kind]
    return "any"


def _addresses(method: str, paths: Mapping[str, Any]) -> str:
    """A type that finds the answer of an address: the longest path first, because a parameter may have slashes."""
    rows = "".join(f"\tA extends {_pattern(path)} ? {answer} :\n" for path, answer in _answers(method, paths))
    return f"type {method.capitalize()}<A extends string> =\n{rows}\tany;\n\n"


def _answers(method: str, paths: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for path in sorted(paths, key=lambda path: (-path.count("/"), path.count("{"), path)):
        if method in paths[path]:
            responses = paths[path][method]["responses"]
            content = next((one for status, one in responses.items() if status < "3"), {}).get("content", {})
            yield path, _type(content.get("application/json", {}).get("schema", {}))


def _pattern(path: str) -> str:
    return f"`{re.sub(r'{[^}]*}', '${string}', path)}`" if "{" in path else json.dumps(path)
