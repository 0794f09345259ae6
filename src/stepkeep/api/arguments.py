"""Reads the arguments of a route's function from a request, as FastAPI has understood the function's signature.

FastAPI works out the same declaration again for each request, which takes longer than most operations. Here that is
done once for each route. Names, defaults, validators and the places of errors are FastAPI's own. It reads no body and
admits no caller; a declaration that it does not know stops the service from starting. `routing` calls it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import iscoroutinefunction
from typing import Any, NamedTuple, NoReturn

from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.requests import Request

NO_BODY = object()
"""In place of a body that was not sent."""

UNKNOWN = (
    "cookie_params",
    "http_connection_param_name",
    "websocket_param_name",
    "background_tasks_param_name",
    "response_param_name",
    "security_scopes_param_name",
)
"""What a function may ask FastAPI for, and no function here does."""


class Parameter(NamedTuple):
    """One argument, and where it comes from."""

    name: str
    alias: str
    place: tuple[str, ...]
    is_list: bool
    is_required: bool
    default: Any
    field: Any


class Arguments:
    """The arguments of one route. `engine_of` is the only dependency that its function may have."""

    def __init__(self, route: APIRoute, engine_of: Any) -> None:
        known = route.dependant
        self._route = route
        if not iscoroutinefunction(route.endpoint):
            self._refuse("is no coroutine function")
        if asked := [name for name in UNKNOWN if getattr(known, name)]:
            self._refuse(f"asks for {', '.join(asked)}")
        if any(one.call is not engine_of or one.name is None for one in known.dependencies):
            self._refuse("has a dependency other than the engine")
        if known.body_params != [route.body_field] * (route.body_field is not None):
            self._refuse("has a body of several parts")
        if route.response_field is not None:
            self._refuse("has a response model")
        self._engines = [str(one.name) for one in known.dependencies]
        self._request = known.request_param_name
        self._path = [self._parameter(one, "path") for one in known.path_params]
        self._query = [self._parameter(one, "query") for one in known.query_params]
        self._header = [self._parameter(one, "header") for one in known.header_params]
        self._body = [self._parameter(one) for one in known.body_params]
        self.query_names = frozenset(one.alias for one in self._query)
        """The parameters of the query."""
        self.lists = frozenset(one.alias for one in self._query if one.is_list)
        """Those that may be repeated."""

    def read(self, request: Request, engine: Any, body: Any = NO_BODY) -> dict[str, Any]:
        """The arguments by name; RequestValidationError with everything that is wrong."""
        values: dict[str, Any] = dict.fromkeys(self._engines, engine)
        errors: list[Any] = []
        if self._path:
            _take(self._path, request.path_params, values, errors)
        if self._query:
            _take(self._query, request.query_params, values, errors)
        if self._header:
            _take(self._header, request.headers, values, errors)
        for one in self._body:
            _check(one, body, values, errors)
        if errors:
            raise RequestValidationError(errors)
        if self._request is not None:
            values[self._request] = request
        return values

    def _parameter(self, field: Any, *place: str) -> Parameter:
        is_required = field.field_info.is_required()
        default = None if is_required else field.get_default()
        if field.field_info.validate_default or not isinstance(default, str | int | float | None):
            self._refuse(f"has a default of {field.name} that would have to be copied or checked")
        alias = str(field.validation_alias or field.alias)
        return Parameter(
            name=field.name,
            alias=alias,
            place=(*place, alias) if place else ("body",),
            is_list="list[" in str(field.field_info.annotation) and bool(place),
            is_required=is_required,
            default=default,
            field=field,
        )

    def _refuse(self, why: str) -> NoReturn:
        raise LookupError(f"the function of {self._route.path} {why}, which api/arguments.py does not read.")


def _take(wanted: Sequence[Parameter], given: Mapping[str, Any], values: dict[str, Any], errors: list[Any]) -> None:
    """Read parameters of one kind: a repeated one as a list, which is absent where it is empty."""
    for one in wanted:
        found = given.getlist(one.alias) or None if one.is_list else given.get(one.alias)  # type: ignore[attr-defined]
        _check(one, NO_BODY if found is None else found, values, errors)


def _check(one: Parameter, given: Any, values: dict[str, Any], errors: list[Any]) -> None:
    if given is not NO_BODY:
        value, wrong = one.field.validate(given, values, loc=one.place)
        errors += wrong
    elif one.is_required:
        value = None
        errors.append({"type": "missing", "loc": one.place, "msg": "Field required", "input": None})
    else:
        value = one.default
    values[one.name] = value
