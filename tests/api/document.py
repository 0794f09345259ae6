"""What the OpenAPI document says: its operations, example bodies, and the schema of each answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import jsonschema_rs

from stepkeep.api.access import ROUTES

METHODS = ("get", "post", "put", "patch", "delete")


class Operation(NamedTuple):
    """One method of one path."""

    method: str
    path: str
    about: dict[str, Any]

    @property
    def route(self) -> str:
        return f"{self.method.upper()} {self.path}"

    @property
    def row(self) -> str:
        return ROUTES[self.route]

    @property
    def parameters(self) -> list[dict[str, Any]]:
        return list(self.about.get("parameters", ()))

    @property
    def has_body(self) -> bool:
        return "requestBody" in self.about

    @property
    def takes_json(self) -> bool:
        return self.has_body and list(self.about["requestBody"]["content"]) == ["application/json"]


def operations(document: dict[str, Any]) -> Iterator[Operation]:
    for path, found in document["paths"].items():
        for method in METHODS:
            if method in found:
                yield Operation(method, path, found[method])


def resolve(document: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return schema


def example_body(document: dict[str, Any], operation: Operation) -> Any:
    """The first example of a body; an empty object where none is needed."""
    content = operation.about["requestBody"]["content"]
    if "application/yaml" in content:
        return content["application/yaml"]["example"]
    schema = content["application/json"]["schema"]
    chosen = next((one for one in schema.get("anyOf", [schema]) if one.get("type") != "null"), schema)
    found = resolve(document, chosen)
    if "examples" in found:
        return found["examples"][0]
    needed = found.get("required", ())
    return {name: found["properties"][name]["examples"][0] for name in needed}


def complaints(document: dict[str, Any], operation: Operation, status: int, media: str, body: Any) -> list[str]:
    """Where an answer differs from what the document says about it."""
    told = operation.about["responses"].get(str(status))
    if told is None:
        return [f"{operation.route} answers {status}, which is not documented"]
    if media not in told.get("content", {}):
        return [f"{operation.route} answers {status} as {media}, documented are {list(told.get('content', {}))}"]
    schema = told["content"][media].get("schema")
    if schema is None or not media.endswith("json"):
        return []
    judged = jsonschema_rs.Draft202012Validator({**schema, "components": document["components"]}, offline=True)
    return [f"{operation.route} {status}: {error.instance_path}: {error.message}" for error in judged.iter_errors(body)]
