"""Makes a method of the client from a method of the engine and a route: the same signature, and a request as its body.

A new route is one row: which method of the engine, and where its arguments go. Arguments of the path are filled in; the
others go to the query of GET and DELETE, and to the body of the rest. An argument that the service has no place for is
refused when it is given.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from datetime import datetime, timedelta
from enum import Enum
from functools import wraps
from os import PathLike
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast
from urllib.parse import quote

import msgspec

from stepkeep.definition.durations import format_duration
from stepkeep.kernel.errors import InvalidInput, Unreachable
from stepkeep.network.service import Service, again
from stepkeep.operations.operation import Operation

P = ParamSpec("P")
T = TypeVar("T")

LARGEST_PAGE = 200


class Served(Protocol):
    """An object whose methods are requests to a service."""

    @property
    def service(self) -> Service: ...


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """A route, and where the arguments of a method go.

    `names`: arguments that the service calls by another name. `headers`: arguments that are headers. `refused`:
    arguments that the service has no place for. `inner`: the field that all further keyword arguments go into.
    `pages`: the list of the answer that is gathered from all pages, with the parameter `cursor`. `kept`: fields of the
    first page that hold for all. `resumes`: the answer
    has `next`, where to go on. `repeatable`: the request may be sent again after a lost answer.
    """

    method: str
    path: str
    names: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}
    refused: tuple[str, ...] = ()
    inner: str | None = None
    pages: str | None = None
    kept: tuple[str, ...] = ()
    cursor: str = "cursor"
    resumes: bool = False
    repeatable: bool = True


def over_http(
    like: Callable[Concatenate[Any, P], Awaitable[T]], route: Route
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """The method of the client for a method of the engine."""
    signature = inspect.signature(like)

    @wraps(like)
    async def call(self: Served, *arguments: P.args, **named: P.kwargs) -> T:
        given = _given(signature, route, self, arguments, named)
        return cast(T, await perform(self.service, route, given, _limit(signature, given)))

    call.__route__ = route  # type: ignore[attr-defined]
    return cast(Callable[Concatenate[Any, P], Coroutine[Any, Any, T]], call)


class RemoteOperations:
    """Operations with a row, at a service: each is one request, and its answer is read as the type that the row has."""

    def __init__(self, service: Service) -> None:
        self.service = service

    async def perform(self, operation: Operation, given: Mapping[str, Any]) -> Any:
        """Ask the service for an operation with these arguments."""
        found = await perform(self.service, route_of(operation), given, _limit(operation.signature, dict(given)))
        return msgspec.convert(found, operation.answer)


def route_of(operation: Operation) -> Route:
    """The route of an operation."""
    row, path = operation.row, operation.path.replace(":path}", "}")
    for name, wire in row.names.items():
        path = path.replace(f"{{{wire}}}", f"{{{name}}}")
    return Route(
        method=operation.method,
        path=path,
        names=row.names,
        headers=row.headers,
        inner=row.rest,
        pages=row.pages,
        repeatable=row.repeatable,
    )


async def perform(service: Service, route: Route, given: Mapping[str, Any], limit: int | None = None) -> Any:
    """Make the request of a route with these arguments; returns its JSON."""
    left = dict(given)
    path = route.path
    for name in list(left):
        if f"{{{name}}}" in path:
            path = path.replace(f"{{{name}}}", segment(name, left.pop(name)))
    headers = {header: str(left.pop(name)) for name, header in route.headers.items() if left.get(name) is not None}
    for name in route.headers:
        left.pop(name, None)
    sent = {route.names.get(name, name): plain(value) for name, value in left.items() if value is not None}
    if route.pages is not None:
        return await _gathered(service, route, path, sent, limit)
    is_query = route.method in ("GET", "DELETE")

    async def send() -> Any:
        return await service.request(
            route.method,
            path,
            query=sent if is_query else None,
            body=None if is_query else sent,
            headers=headers,
        )

    if route.repeatable:
        return (await again(send)).json()
    try:
        return (await send()).json()
    except Unreachable:
        # It was not sent: once more cannot do it twice.
        return (await send()).json()


def plain(value: Any) -> Any:
    """A value of Python as JSON has it.

    >>> plain(timedelta(hours=2))
    '2h'
    """
    match value:
        case datetime():
            if value.tzinfo is None:
                raise InvalidInput("a time needs a zone: datetime.now(UTC).")
            return value.isoformat()
        case timedelta():
            return format_duration(value // timedelta(microseconds=1))
        case Enum():
            return value.value
        case PathLike():
            return str(value)
        case Mapping():
            return {str(name): plain(inner) for name, inner in value.items()}
        case str() | bytes():
            return value
        case Iterable():
            return [plain(one) for one in value]
    return value


def _given(
    signature: inspect.Signature, route: Route, of: object, arguments: tuple[Any, ...], named: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments that the caller gave, by name."""
    bound = signature.bind(of, *arguments, **named)
    given: dict[str, Any] = {}
    for name, value in list(bound.arguments.items())[1:]:
        parameter = signature.parameters[name]
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            given[route.inner or name] = dict(value)
        elif name in route.refused:
            if value != parameter.default:
                raise InvalidInput(f"`{name}` needs the database itself: a service has no place for it.")
        else:
            given[name] = value
    return given


def _limit(signature: inspect.Signature, given: dict[str, Any]) -> int | None:
    """How many the caller wants of a list; None for all."""
    if "limit" not in signature.parameters:
        return None
    limit = given.get("limit", signature.parameters["limit"].default)
    return limit if isinstance(limit, int) else None


async def _gathered(service: Service, route: Route, path: str, sent: dict[str, Any], limit: int | None) -> Any:
    """One list out of all its pages, up to the limit."""
    assert route.pages is not None
    found: list[Any] = []
    first: dict[str, Any] | None = None
    sent.pop("limit", None)
    while True:
        left = LARGEST_PAGE if limit is None else max(1, min(LARGEST_PAGE, limit - len(found)))
        page = await service.ask(route.method, path, query={**sent, "limit": left})
        found += page[route.pages]
        first = first or {name: page[name] for name in route.kept if name in page}
        following = page.pop("next", None)
        if following is None or "looked_at" in page or (limit is not None and len(found) >= limit):
            return {**page, **first, route.pages: found, **({"next": following} if route.resumes else {})}
        sent[route.cursor] = following


def segment(name: str, value: object) -> str:
    text = str(value)
    if not text or text in (".", ".."):
        raise InvalidInput(f"`{name}` must not be {text!r}.")
    return quote(text, safe="")
