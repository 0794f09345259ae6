"""Writes tests/ui/answers.d.ts, the types of what the service answers and takes, from its OpenAPI document.

`get` and `post` of the pages look an address up in it, so that `tsc` finds fields that no answer has, and parameters
that no operation takes. `python -m tests.ui.declarations` writes the file anew.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from stepkeep.api.app import create_app
from stepkeep.engine import AsyncEngine

FILE = Path(__file__).parent / "answers.d.ts"
HEAD = "// Written by tests/ui/declarations.py from the OpenAPI document.\n\n"
AS_TEXT = {"number": "number | string", "boolean": 'boolean | "true" | "false"'}
"""An address is text."""
PLAIN = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}


def declarations() -> str:
    """Every schema as an interface or a type, and the answer of each address by method."""
    document = create_app(AsyncEngine("sqlite:///unused.db")).openapi()
    schemas = document["components"]["schemas"]
    parts = [f"{_declared(name, schema)}\n\n" for name, schema in schemas.items()]
    paths = document["paths"]
    parts += [_addresses("Get", "get", paths, _answer), _addresses("Post", "post", paths, _answer)]
    parts += [_addresses("Query", "get", paths, _query), _addresses("Body", "post", paths, _body)]
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


def _addresses(name: str, method: str, paths: Mapping[str, Any], type_of: Callable[[Mapping[str, Any]], str]) -> str:
    """A type that finds what belongs to an address: the longest path first, because a parameter may have slashes."""
    longest = sorted(paths, key=lambda path: (-path.count("/"), path.count("{"), path))
    found = ((path, type_of(paths[path][method])) for path in longest if method in paths[path])
    rows = "".join(f"\tA extends {_pattern(path)} ? {type_} :\n" for path, type_ in found)
    return f"type {name}<A extends string> =\n{rows}\tany;\n\n"


def _answer(operation: Mapping[str, Any]) -> str:
    content = next((one for status, one in operation["responses"].items() if status < "3"), {}).get("content", {})
    return _type(content.get("application/json", {}).get("schema", {}))


def _query(operation: Mapping[str, Any]) -> str:
    """The parameters of an address. One that is null or false is left out of it, so that these are right as well."""
    fields = (
        f"{one['name']}{'' if one['required'] else '?'}: {_in_address(_type(one['schema']))};"
        for one in operation.get("parameters", ())
        if one["in"] == "query"
    )
    return f"{{ {' '.join(fields)} }}"


def _in_address(type_: str) -> str:
    kinds = [kind for one in type_.split(" | ") for kind in AS_TEXT.get(one, one).split(" | ")]
    return " | ".join(dict.fromkeys((*kinds, "null", "false")))


def _body(operation: Mapping[str, Any]) -> str:
    content = operation.get("requestBody", {}).get("content", {})
    return _type(content["application/json"]["schema"]) if "application/json" in content else "{}"


def _pattern(path: str) -> str:
    return f"`{re.sub(r'{[^}]*}', '${string}', path)}`" if "{" in path else json.dumps(path)


if __name__ == "__main__":
    FILE.write_text(declarations(), encoding="utf-8")
