"""Routes with a function of their own: what is no plain operation, such as streams, sessions and the work protocol.

The row stands above the function and the signature says the rest, as in operations: an argument in the path is found by
its name, some are headers, `body` is a struct, and all others are in the query. `request` and `engine` are
given. A function answers with a value or a response. `Routes` has the routes of one module, for `app` and `openapi`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta
from starlette.responses import Response

from stepkeep.api.access import ROUTES, operation_of
from stepkeep.api.derived import DerivedRoute, OperationDocument, Schemas, described, schema_of
from stepkeep.api.requests import BoundedRequest
from stepkeep.api.routing import JsonAnswer, check_query, problem_responses
from stepkeep.dialects.registry import names
from stepkeep.engine.groups import ActingEngine
from stepkeep.operations.answers import says
from stepkeep.operations.operation import NOTHING, Operation, Parameter, make_row
from stepkeep.operations.typed import Wrong, reader

F = TypeVar("F", bound=Callable[..., Any])

GIVEN = ("request", "engine")
"""Arguments that no request has."""
HEADERS = {"last_event_id": "Last-Event-ID", "accept": "accept"}
"""Arguments that are headers, beside those of operations."""
SAID = ("status", "done", "example", "names")
"""What the row of such a route has of the row of an operation."""

As = Annotated[
    Annotated[str, Meta(pattern=f"^({'|'.join(names())})$")] | None,
    says(f"In the words of a dialect: {', '.join(names())}."),
]


class RequestBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A body that a client sends. Unknown fields are refused."""


class Handwritten(Operation):
    """One such route, which needs the scopes of an operation.

    Beside what an operation says: `answers`, the type of the answer, where the function returns a response; `also`,
    what 200 means beside the usual status; `media`, that of an answer that is no JSON, None without a body; `problems`,
    further statuses; `reads`, the description of a body that the function reads itself; `bodies`, the types of a body
    that may be one of several.
    """

    def __init__(self, tag: str, route: str, of: str, id: str, summary: str, function: Any, **more: Any) -> None:  # noqa: A002
        row = make_row(frozenset(), route, id, summary, {name: more[name] for name in SAID if name in more})
        super().__init__("", tag, function, row)
        self.name, self._more = of, more

    @property
    def address(self) -> str:
        """Method and path, as in the document."""
        return f"{self.method} {self.path.replace(':path}', '}')}"

    @property
    def answer(self) -> Any:
        return str if "media" in self._more else self._more.get("answers", self.hints["return"])

    @cached_property
    def parameters(self) -> dict[str, Parameter]:
        taken = [one for one in self.signature.parameters.values() if one.name not in GIVEN]
        return {one.name: self._parameter(one) for one in taken}

    def _parameter(self, given: inspect.Parameter) -> Parameter:
        found = super()._parameter(given)
        if found.name == "body" or found.place not in ("query", "body"):
            return found
        place, wire = ("header", HEADERS[found.name]) if found.name in HEADERS else ("query", found.wire)
        return found._replace(place=place, wire=wire, read=reader(found.annotation, from_text=True))

    @cached_property
    def given(self) -> tuple[bool, ...]:
        """Whether the function takes the request, and the engine."""
        return tuple(name in self.signature.parameters for name in GIVEN)

    def described(self, schemas: Schemas) -> OperationDocument:
        """The route in the document; the schemas that it refers to are added."""
        more, told = self._more, described(self, schemas, self._described_body)
        responses = told["responses"]
        usual = responses[str(self.row.status)]
        if "media" in more:
            plain = {"content": {more["media"]: {"schema": {"type": "string"}}}} if more["media"] else {}
            usual = responses[str(self.row.status)] = {"description": usual["description"], **plain}
        if "also" in more:
            responses["200"] = {**usual, "description": more["also"]}
        responses.update({str(status): one for status, one in problem_responses(*more.get("problems", ())).items()})
        return told

    def _described_body(self, schemas: Schemas) -> Mapping[str, Any] | None:
        body = self.parameters.get("body")
        if body is None:
            found: Mapping[str, Any] | None = self._more.get("reads")
            return found
        kinds = [schema_of(one, schemas) for one in self._more.get("bodies", (body.annotation,))]
        schema = kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
        if self.row.example is not None:
            name, *_ = [str(one["$ref"]).rpartition("/")[2] for one in schema.get("anyOf", [schema]) if "$ref" in one]
            schemas[name] = {**schemas[name], "examples": [dict(self.row.example)]}
        return {"content": {"application/json": {"schema": schema}}, **({"required": True} if body.is_required else {})}


class HandwrittenRoute(DerivedRoute):
    """The route of one function."""

    def __init__(self, of: Handwritten) -> None:
        super().__init__(of)
        self.handwritten = of
        operation_of(*of.address.split(" "))  # refuses one that names no operation

    def described(self, schemas: Schemas) -> OperationDocument:
        return self.handwritten.described(schemas)

    async def _act(self, request: BoundedRequest, engine: ActingEngine | None) -> Response:
        if request.scope["query_string"]:
            check_query(request, self._names, self._lists)
        values = dict(self._read(request, await request.read_json(NOTHING) if self._body else NOTHING))
        takes_request, takes_engine = self.handwritten.given
        if takes_request:
            values["request"] = request
        if takes_engine:
            values["engine"] = engine
        found = await self.of.function(**values)
        return found if isinstance(found, Response) else JsonAnswer(found, self.of.row.status)

    def _read_body(self, body: Any, values: dict[str, Any], wrong: list[Wrong]) -> None:
        [one] = self._body
        if body is not NOTHING:
            values["body"] = one.read(body, ("body",), wrong)
        elif one.is_required:
            wrong.append(Wrong(("body",), "Field required"))


class Routes:
    """The routes of one module; `tag` is their part of the document."""

    def __init__(self, tag: str) -> None:
        self._tag, self._made = tag, list[Handwritten]()

    @property
    def routes(self) -> list[HandwrittenRoute]:
        return [HandwrittenRoute(one) for one in self._made]

    def __call__(self, route: str, of: str, id: str, summary: str, **more: Any) -> Callable[[F], F]:  # noqa: A002
        """Add a route: its method and path, the operation whose scopes it needs, its name and what it does."""

        def add(function: F) -> F:
            made = Handwritten(more.pop("tag", self._tag), route, of, id, summary, function, **more)
            ROUTES[made.address] = of
            self._made.append(made)
            return function

        return add
