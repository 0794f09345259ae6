"""Routes and their part of the OpenAPI document, derived from the rows of operations.

A request is read by the operation's own types: path, query, header and body. Everything that is wrong is told at once.
It decides nothing and calls one operation. `app` makes the routes, `openapi` the document.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.requests import Request

from stepkeep.api.access import scopes_of
from stepkeep.api.problems import MOST_ERRORS
from stepkeep.api.requests import BoundedRequest
from stepkeep.api.routing import Admitting, Answer, check_query, problems_of, service_of, wrong_request
from stepkeep.engine import AsyncEngine
from stepkeep.kernel.errors import InvalidInput, NotFound
from stepkeep.operations.answers import says
from stepkeep.operations.operation import NOTHING, Operation, PageLimit, Parameter
from stepkeep.operations.typed import Wrong, read_fields, reader

NOT_AN_OBJECT = "Input should be a valid dictionary or object to extract fields from"
REFS = "#/components/schemas/{name}"

PAGE = tuple(
    Parameter(name, name, "query", annotation, reader(annotation, from_text=True), True, default, False)
    for name, annotation, default in (
        ("cursor", Annotated[Annotated[str, Meta(max_length=255)] | None, says("`next` of the page before.")], None),
        ("limit", PageLimit, 50),
    )
)
"""The parameters of a list that is read as a whole and answered in pages."""


class DerivedRoute(Admitting):
    """The route of one operation."""

    def __init__(self, of: Operation) -> None:
        super().__init__(of.path, self._unused, methods=[of.method], name=of.row.id)
        self.methods = {of.method}  # without HEAD, as everywhere in this service
        self.operation, self.of = of.name, of
        self._path, self._query, self._header, self._body = (
            [one for one in of.parameters.values() if one.place == place]
            for place in ("path", "query", "header", "body")
        )
        self._fields = {one.wire: (one.read, one.is_required) for one in self._body}
        if of.row.page_key is not None:
            self._query += PAGE
        self._names = frozenset(one.wire for one in self._query)
        self._lists = frozenset(one.wire for one in self._query if _is_list(one))

    async def _unused(self, request: Request) -> Answer:
        raise LookupError("a derived route is handled by `_act`")

    async def _act(self, request: BoundedRequest, engine: AsyncEngine | None) -> Answer:
        assert engine is not None
        if request.scope["query_string"]:
            check_query(request, self._names, self._lists)
        body = await request.read_json(NOTHING) if self._body else NOTHING
        values = self._read(request, body)
        page = {one.name: values.pop(one.name, one.default) for one in PAGE} if self.of.row.page_key else {}
        found = await self._call(engine, values)
        if page:
            found = self._page(found, **page)
        if self.of.row.ends_access:
            service_of(request).callers.forget()
        return Answer(found, self.of.row.status)

    async def _call(self, engine: AsyncEngine, values: dict[str, Any]) -> Any:
        try:
            return await self.of.called_on(engine, values)
        except NotFound as missing:
            if not self.of.row.asks:
                raise
            raise InvalidInput(str(missing)) from None

    def _read(self, request: Request, body: Any) -> dict[str, Any]:
        """The arguments by their names in Python; a problem with everything that is wrong."""
        wrong: list[Wrong] = []
        values: dict[str, Any] = {}
        sources: dict[str, Any] = {
            "path": request.path_params,
            "query": request.query_params,
            "header": request.headers,
        }
        for one in (*self._path, *self._query, *self._header):
            given = sources[one.place]
            found = (given.getlist(one.wire) or None) if one.wire in self._lists else given.get(one.wire)
            if found is not None:
                values[one.name] = one.read(found, (one.place, one.wire), wrong)
            elif one.is_required:
                wrong.append(Wrong((one.place, one.wire), "Field required"))
        if self._body:
            if isinstance(body, Mapping):
                found = read_fields(self._fields, body, ("body",), wrong)
                values |= {one.name: found[one.wire] for one in self._body if one.wire in found}
            elif any(one.is_required for one in self._body) or body not in (NOTHING, None):
                wrong.append(Wrong(("body",), "Field required" if body is NOTHING else NOT_AN_OBJECT))
        if wrong:
            raise wrong_request(wrong[:MOST_ERRORS])
        return values

    def _page(self, found: Any, cursor: str | None, limit: int) -> Any:
        """One page of a list that is read as a whole, after the item that the cursor names, and the next cursor."""
        name, key = self.of.row.pages, self.of.row.page_key
        assert name is not None
        assert key is not None
        items, start = found[name], 0
        if cursor is not None:
            start = next((place + 1 for place, one in enumerate(items) if str(one[key]) == cursor), len(items))
        shown = items[start : start + limit]
        following = str(shown[-1][key]) if shown and start + limit < len(items) else None
        told: dict[str, Any] = msgspec.to_builtins(found)
        return {**told, name: msgspec.to_builtins(shown), "next": following}


def _is_list(one: Parameter) -> bool:
    return "list[" in str(one.annotation)


def described(of: Operation, schemas: dict[str, Any]) -> dict[str, Any]:
    """An operation in the document; the schemas that it refers to are added."""
    row, names = of.row, [scope.value for scope in scopes_of(of.name)]
    needs = f"Needs a key with the scope {' and '.join(names)}." if names else "Needs a key; any scope will do."
    told: dict[str, Any] = {
        "tags": [of.tag],
        "summary": row.summary,
        "description": f"{of.description}\n\n{needs}".strip(),
        "operationId": row.id,
        "security": [{"key": names}, {"session": names}],
    }
    placed = [one for one in of.parameters.values() if one.place in ("path", "query", "header")]
    if parameters := [_parameter(one, schemas) for one in (*placed, *(PAGE if row.page_key else ()))]:
        told["parameters"] = parameters
    if body := [one for one in of.parameters.values() if one.place == "body"]:
        needed = [one.wire for one in body if one.is_required]
        schema: dict[str, Any] = {
            "type": "object",
            "properties": {one.wire: _schema(one, schemas) for one in body},
            "additionalProperties": False,
        }
        schema |= {"required": needed} if needed else {}
        schema |= {"examples": [dict(row.example)]} if row.example is not None else {}
        content = {"application/json": {"schema": schema if needed else {"anyOf": [schema, {"type": "null"}]}}}
        told["requestBody"] = {"content": content, **({"required": True} if needed else {})}
    answer = {"application/json": {"schema": schema_of(of.answer, schemas)}}
    problems = {str(status): one for status, one in problems_of(of.method, of.path, of.name).items()}
    told["responses"] = {str(row.status): {"description": row.done, "content": answer}, **problems}
    return told


def _parameter(one: Parameter, schemas: dict[str, Any]) -> dict[str, Any]:
    schema = _schema(one, schemas)
    told = {"name": one.wire, "in": one.place, "required": one.place == "path" or one.is_required, "schema": schema}
    if "description" in schema:
        told["description"] = schema["description"]
    if "examples" in schema:
        told["examples"] = {str(place): {"value": value} for place, value in enumerate(schema["examples"])}
    return told


def _schema(one: Parameter, schemas: dict[str, Any]) -> dict[str, Any]:
    default = {} if one.default in (NOTHING, None) or one.is_rest else {"default": msgspec.to_builtins(one.default)}
    return {**schema_of(one.annotation, schemas), **default}


def schema_of(annotation: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    """The JSON Schema of a type; those of the structs in it are added to the components."""
    [found], parts = msgspec.json.schema_components([annotation], ref_template=REFS)
    for name, part in parts.items():
        known = schemas.setdefault(name, _plain(part))
        if known != _plain(part):
            raise LookupError(f"two answers are named {name}")
    return dict(_plain(found))


def _plain(schema: Any) -> Any:
    """A schema without titles, which only repeat names, and with the type of the words of an enumeration."""
    if isinstance(schema, list):
        return [_plain(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: _plain(one) for name, one in schema.items() if name != "title" or not isinstance(one, str)}
    words = all(isinstance(one, str) for one in found["enum"]) if "enum" in found else False
    return {**found, "type": "string"} if words else found
