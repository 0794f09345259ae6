"""Routes and their part of the OpenAPI document, derived from the rows of operations.

A request is read by the operation's own types: path, query, header and body. Everything that is wrong is told at once.
It decides nothing and calls one operation. `app` makes the routes, `openapi` the document.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias, TypedDict, get_args, is_typeddict

import msgspec
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from stepkeep.api.access import OPEN, scopes_of
from stepkeep.api.problems import MOST_ERRORS
from stepkeep.api.requests import BoundedRequest
from stepkeep.api.routing import Admitting, JsonAnswer, check_query, problems_of, service_of, under_way, wrong_request
from stepkeep.engine.groups import ActingEngine
from stepkeep.kernel.errors import InvalidInput, NotFound
from stepkeep.operations.operation import NOTHING, Cursor, IdempotencyKey, Operation, PageLimit, Parameter
from stepkeep.operations.typed import NOT_AN_OBJECT, Wrong, read_fields, reader

NO_QUERY = QueryParams()
JsonSchema: TypeAlias = Mapping[str, Any]
"""A JSON Schema. Nobody changes one."""
Schemas: TypeAlias = dict[str, JsonSchema]
"""The schemas of a document, by name. Those that a route refers to are added."""
REFS = "#/components/schemas/{name}"

PAGE = tuple(
    Parameter(name, name, "query", annotation, reader(annotation, from_text=True), True, default, False)
    for name, annotation, default in (("cursor", Cursor, None), ("limit", PageLimit, 50))
)
"""The parameters of a list that is read as a whole and answered in pages."""


def or_key(of: Operation) -> list[Parameter]:
    """The header of a request that counts where its body lacks an argument."""
    if (name := of.row.or_key) is None:
        return []
    read = reader(IdempotencyKey, from_text=True)
    return [Parameter(name, "Idempotency-Key", "header", IdempotencyKey, read, True, None, False)]


class OperationDocument(TypedDict, total=False):
    """An operation in the OpenAPI document."""

    tags: list[str]
    summary: str
    operationId: str
    security: list[dict[str, list[str]]]
    description: str
    parameters: list[Mapping[str, Any]]
    requestBody: Mapping[str, Any]
    responses: dict[str, Mapping[str, Any]]


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
        self._or_key = or_key(of)
        if of.row.page_key is not None:
            self._query += PAGE
        self._defaults: dict[str, Any] = {one.name: None for one in self._query if one.default is None}
        if of.row.pages and not of.row.page_key:
            self._defaults["limit"] = of.row.page_size
        self._names = frozenset(one.wire for one in self._query)
        self._lists = frozenset(one.wire for one in self._query if _is_list(one))

    async def _unused(self, request: Request) -> JsonAnswer:
        raise LookupError("a derived route is handled by `_act`")

    def described(self, schemas: Schemas) -> OperationDocument:
        """The route in the document; the schemas that it refers to are added."""
        return described(self.of, schemas)

    async def _act(self, request: BoundedRequest, engine: ActingEngine | None) -> Response:
        assert engine is not None
        if request.scope["query_string"]:
            check_query(request, self._names, self._lists)
        body = await request.read_json(NOTHING) if self._body else NOTHING
        values = self._read(request, body)
        page = {one.name: values.get(one.name, one.default) for one in PAGE} if self.of.row.page_key else {}
        if page:
            values = {name: values[name] for name in values if name not in page}
        if (key := values.get("idempotency_key")) is None:
            found = await self._call(engine, values)
        else:
            with under_way(request, engine, self.of.name, key):
                found = await self._call(engine, values)
        if page:
            found = self._page(found, **page)
        if self.of.row.ends_access:
            service_of(request).callers.forget()
        if self.of.row.creates is None:
            return JsonAnswer(found, self.of.row.status)
        if "created" not in found:
            return JsonAnswer(found)  # a dry run
        status = self.of.row.status if found.created else 200
        return JsonAnswer(found, status, {"Location": self.of.row.creates.format_map(found)})

    async def _call(self, engine: ActingEngine, values: Mapping[str, Any]) -> Any:
        try:
            return await self.of.called_on(engine, values, is_read=True)
        except NotFound as missing:
            if not self.of.row.asks:
                raise
            raise InvalidInput(str(missing)) from None

    def _read(self, request: Request, body: Any) -> Mapping[str, Any]:
        """The arguments by their names in Python; a problem with everything that is wrong."""
        wrong: list[Wrong] = []
        values: dict[str, Any] = dict(self._defaults)
        # Only what is asked for is parsed: many a request has neither.
        if self._path:
            self._take(self._path, request.path_params, values, wrong)
        if self._query:
            self._take(self._query, request.query_params if request.scope["query_string"] else NO_QUERY, values, wrong)
        if self._header:
            self._take(self._header, request.headers, values, wrong)
        if self._body:
            self._read_body(body, values, wrong)
        for one in self._or_key:
            if values.get(one.name) is None and one.wire in request.headers:
                values[one.name] = one.read(request.headers[one.wire], (one.place, one.wire), wrong)
        if wrong:
            raise wrong_request(wrong[:MOST_ERRORS])
        return values

    def _take(
        self, wanted: Iterable[Parameter], given: Mapping[str, Any], values: dict[str, Any], wrong: list[Wrong]
    ) -> None:
        for one in wanted:
            if one.wire in self._lists:
                found: Any = given.getlist(one.wire) or None  # type: ignore[attr-defined]
            else:
                found = given.get(one.wire)
            if found is not None:
                values[one.name] = one.read(found, (one.place, one.wire), wrong)
            elif one.is_required:
                wrong.append(Wrong((one.place, one.wire), "Field required"))

    def _read_body(self, body: Any, values: dict[str, Any], wrong: list[Wrong]) -> None:
        if isinstance(body, Mapping):
            found = read_fields(self._fields, body, ("body",), wrong)
            values |= {one.name: found[one.wire] for one in self._body if one.wire in found}
        elif any(one.is_required for one in self._body) or body not in (NOTHING, None):
            wrong.append(Wrong(("body",), "Field required" if body is NOTHING else NOT_AN_OBJECT))

    def _page(self, found: Any, cursor: str | None, limit: int) -> Any:
        """One page of a list that is read as a whole, after the item that the cursor names, and the next cursor."""
        name, key = self.of.row.pages, self.of.row.page_key
        assert name is not None
        assert key is not None

        def named(one: Any) -> str:
            return "@".join(str(one[field]) for field in key.split("@"))

        items, start = found[name], 0
        if cursor is not None:
            start = next((place + 1 for place, one in enumerate(items) if named(one) == cursor), len(items))
        shown = items[start : start + limit]
        following = named(shown[-1]) if shown and start + limit < len(items) else None
        told: dict[str, Any] = msgspec.to_builtins(found)
        return {**told, name: msgspec.to_builtins(shown), "next": following}


def _is_list(one: Parameter) -> bool:
    return "list[" in str(one.annotation)


def described(
    of: Operation, schemas: Schemas, of_body: Callable[[Schemas], Mapping[str, Any] | None] | None = None
) -> OperationDocument:
    """An operation in the document; the schemas that it refers to are added. `of_body` describes another body than one
    of arguments."""
    row, (needs, security) = of.row, access_of(of.name)
    told = OperationDocument(tags=[of.tag], summary=row.summary, operationId=row.id, security=security)
    if description := f"{of.description}\n\n{needs}".strip():
        told["description"] = description
    placed = [one for one in of.parameters.values() if one.place in ("path", "query", "header")]
    if parameters := [_parameter(one, schemas) for one in (*placed, *or_key(of), *(PAGE if row.page_key else ()))]:
        told["parameters"] = parameters
    if body := of_body(schemas) if of_body else _body(of, schemas):
        told["requestBody"] = body
    schema = schema_of(of.answer, schemas)
    answer = {"application/json": {"schema": {"anyOf": [schema, {"type": "object"}]} if row.words else schema}}
    done = {row.status: row.done} | ({200: "Created before"} if row.creates else {})
    told["responses"] = {str(one): {"description": said, "content": answer} for one, said in done.items()}
    told["responses"] |= {str(status): one for status, one in problems_of(of.method, of.path, of.name).items()}
    return told


def _body(of: Operation, schemas: Schemas) -> Mapping[str, Any] | None:
    body = [one for one in of.parameters.values() if one.place == "body"]
    if not body:
        return None
    needed = [one.wire for one in body if one.is_required]
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {one.wire: _schema(one, schemas) for one in body},
        "additionalProperties": False,
    }
    schema |= {"required": needed} if needed else {}
    schema |= {"examples": [dict(of.row.example)]} if of.row.example is not None else {}
    content = {"application/json": {"schema": schema if needed else {"anyOf": [schema, {"type": "null"}]}}}
    return {"content": content, **({"required": True} if needed else {})}


def access_of(operation: str) -> tuple[str, list[dict[str, list[str]]]]:
    """What a caller of an operation needs, in words and as the document has it."""
    if operation == OPEN:
        return "", []
    names = [scope.value for scope in scopes_of(operation)]
    needs = f"Needs a key with the scope {' and '.join(names)}." if names else "Needs a key; any scope will do."
    return needs, [{"key": names}, {"session": names}]


def _parameter(one: Parameter, schemas: Schemas) -> Mapping[str, Any]:
    schema = _schema(one, schemas)
    if one.place == "path" and "anyOf" in schema:
        # What Python may leave out.
        schema = {**{name: schema[name] for name in schema if name != "anyOf"}, **schema["anyOf"][0]}
    told = {"name": one.wire, "in": one.place, "required": one.place == "path" or one.is_required, "schema": schema}
    if "description" in schema:
        told["description"] = schema["description"]
    if "examples" in schema:
        told["examples"] = {str(place): {"value": value} for place, value in enumerate(schema["examples"])}
    return told


def _schema(one: Parameter, schemas: Schemas) -> JsonSchema:
    default = {} if one.default in (NOTHING, None, ()) or one.is_rest else {"default": msgspec.to_builtins(one.default)}
    return {**schema_of(one.annotation, schemas), **default}


def schema_of(annotation: Any, schemas: Schemas) -> JsonSchema:
    """The JSON Schema of a type; those of the structs in it are added to the components."""
    [found], parts = msgspec.json.schema_components([annotation], ref_template=REFS)
    for name in _closed(annotation):
        parts[name]["additionalProperties"] = False
    for name, part in parts.items():
        known = schemas.setdefault(name, _plain(part))
        # A hand-written route has the words of an enumeration in another order.
        if known != _plain(part) and sorted(known.get("enum", ())) != part.get("enum"):
            raise LookupError(f"two answers are named {name}")
    plain: JsonSchema = _plain(found)
    return plain


def _closed(annotation: Any) -> Iterator[str]:
    """The typed dictionaries in a type: bodies have those, and they take no other fields."""
    if is_typeddict(annotation):
        yield annotation.__name__
    for one in get_args(annotation):
        yield from _closed(one)


def _plain(schema: Any) -> Any:
    """A schema without titles, which only repeat names, and with the type of the words of an enumeration."""
    if isinstance(schema, list):
        return [_plain(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: _plain(one) for name, one in schema.items() if name != "title" or not isinstance(one, str)}
    words = all(isinstance(one, str) for one in found["enum"]) if "enum" in found else False
    return {**found, "type": "string"} if words else found
