"""Sends operations to a service: arguments go where their row says, and answers are read as the type that it has.

A list is gathered from its pages. It decides nothing; `AsyncClient` and the groups of the engine, as its `remote`, use
it.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from enum import Enum
from functools import wraps
from os import PathLike
from typing import Any, NoReturn, TypeVar, cast
from urllib.parse import quote
from uuid import uuid4

import msgspec

from stepkeep.definition.durations import format_duration
from stepkeep.kernel.errors import InvalidInput, Unreachable
from stepkeep.network.service import RemoteService, again
from stepkeep.operations.operation import MOST_ON_A_PAGE, Operation, needs_database

K = TypeVar("K", bound=type)
F = TypeVar("F", bound=Callable[..., Any])


class RemoteOperations:
    """Operations with a row, at a service: each is one request."""

    def __init__(self, service: RemoteService) -> None:
        self.service = service

    async def perform(self, operation: Operation, given: Mapping[str, Any]) -> Any:
        """Ask the service for an operation with these arguments. With a key of its own, the request may be repeated."""
        has_own_key = "idempotency_key" in operation.parameters and given.get("idempotency_key") is None
        if has_own_key:
            given = {**given, "idempotency_key": str(uuid4())}
        found = await self._answer(operation, given)
        if operation.row.words is not None and given.get(operation.row.words) is not None:
            return found
        if has_own_key and "created" in found:
            found["created"] = True
        return msgspec.convert(found, operation.answer)

    async def _answer(self, operation: Operation, given: Mapping[str, Any]) -> Any:
        """The JSON that the service answers."""
        path = operation.path.replace(":path}", "}")
        sent: dict[str, Any] = {}
        headers: dict[str, str] = {}
        for name, value in given.items():
            one = operation.parameters[name]
            if one.place == "path":
                path = path.replace(f"{{{one.wire}}}", segment(name, value))
            elif value is not None and one.place == "header":
                headers[one.wire] = str(value)
            elif value is not None:
                sent[one.wire] = _in_address(plain(value)) if one.place == "query" else plain(value)
        if operation.row.pages is not None:
            return await self._gathered(operation, path, sent)
        placed: dict[str, Any] = {"query" if operation.method in ("GET", "DELETE") else "body": sent}

        async def send() -> Any:
            return await self.service.request(operation.method, path, headers=headers, **placed)

        if operation.row.repeatable:
            return (await again(send)).json()
        try:
            return (await send()).json()
        except Unreachable:
            # It was not sent: once more cannot do it twice.
            return (await send()).json()

    async def _gathered(self, operation: Operation, path: str, sent: dict[str, Any]) -> Any:
        """One list out of all its pages, up to the limit; without one, all of it."""
        row = operation.row
        assert row.pages is not None
        known = operation.signature.parameters.get("limit")
        limit = None if known is None else sent.pop("limit", known.default)
        most = math.inf if limit is None else limit
        place = "cursor" if row.page_key or "cursor" in (one.wire for one in operation.parameters.values()) else "after"
        found: list[Any] = []
        first: dict[str, Any] | None = None
        while True:
            left = max(1, min(MOST_ON_A_PAGE, most - len(found)))
            page = await self.service.ask(operation.method, path, query={**sent, "limit": left})
            found += page[row.pages]
            first = first or {name: page[name] for name in row.kept if name in page}
            following = page.pop("next", None)
            if following is None or "looked_at" in page or len(found) >= most:
                return {**page, **first, row.pages: found, **({} if row.page_key else {"next": following})}
            sent[place] = following


def at_a_service(kind: K) -> K:
    """A client that inherits the parts of the engine. Their methods without a row, that it does not write anew, are
    refused: they need the database itself."""
    for name in dir(kind):
        method = getattr(kind, name)
        is_inherited = not name.startswith("_") and name not in vars(kind)
        if is_inherited and inspect.iscoroutinefunction(method) and not hasattr(method, "operation"):
            setattr(kind, name, _refused(method))
    return kind


def as_at_an_engine(method: Callable[..., Any]) -> Callable[[F], F]:
    """A method that takes the parameters of the engine's, and no others."""
    signature = inspect.signature(method)

    def made(own: F) -> F:
        @wraps(own)
        async def call(*given: Any, **named: Any) -> Any:
            signature.bind(*given, **named)
            return await own(*given, **named)

        call.__signature__ = signature  # type: ignore[attr-defined]
        return cast(F, call)

    return made


def _refused(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    async def call(self: Any, *given: Any, **named: Any) -> NoReturn:
        raise needs_database(method.__name__)

    return call


def _in_address(value: Any) -> Any:
    """A value of a query: a mapping is a list of `NAME=TEXT`."""
    return [f"{name}={text}" for name, text in value.items()] if isinstance(value, dict) else value


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


def segment(name: str, value: object) -> str:
    text = str(value)
    if not text or text in (".", ".."):
        raise InvalidInput(f"`{name}` must not be {text!r}.")
    return quote(text, safe="")
