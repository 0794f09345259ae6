"""The arguments of every route are those that FastAPI would read, and so is everything that is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import urlencode

import pytest
from fastapi import APIRouter, Cookie, Depends
from fastapi._compat import Undefined
from fastapi.dependencies.utils import solve_dependencies
from fastapi.exceptions import RequestValidationError

from stepkeep.api.app import create_app
from stepkeep.api.arguments import NO_BODY, Arguments
from stepkeep.api.requests import BoundedRequest
from stepkeep.api.routing import Route, engine_of
from stepkeep.engine import AsyncEngine

VALUES = ("1", "-1", "a", "2026-01-01T00:00:00Z", "true", "")
BODIES: tuple[Any, ...] = (NO_BODY, None, {}, [], 7, {"workflow": "w", "input": {"a": 1}}, {"name": "n", "unknown": 1})


def routes() -> list[Route]:
    return [one for one in create_app(AsyncEngine("sqlite:///unused.db")).http.routes if isinstance(one, Route)]


def queries(route: Route) -> Iterator[list[tuple[str, str]]]:
    names = [one.alias for one in route.dependant.query_params]
    yield []
    for value in VALUES:
        yield [(name, value) for name in names]
    for name in names:
        yield [(name, "1"), (name, "2")]


def read(route: Route, request: BoundedRequest, body: Any) -> tuple[Any, list[Any]]:
    try:
        found = Arguments(route, engine_of).read(request, "the engine", body)
    except RequestValidationError as problem:
        return None, [(one["type"], one["loc"], one["msg"]) for one in problem.errors()]
    return found, []


async def framework(route: Route, request: BoundedRequest, body: Any) -> tuple[Any, list[Any]]:
    async with AsyncExitStack() as stack:
        request.scope |= {"fastapi_inner_astack": stack, "fastapi_function_astack": stack}
        solved = await solve_dependencies(
            request=request,
            dependant=route.dependant,
            body=Undefined if body is NO_BODY else body,
            async_exit_stack=stack,
            embed_body_fields=False,
        )
    if solved.errors:
        return None, [(one["type"], one["loc"], one["msg"]) for one in solved.errors]
    return solved.values, []


async def test_the_arguments_of_every_route_are_those_of_the_framework() -> None:
    async def go() -> tuple[int, int]:
        good = bad = 0
        for route in routes():
            bodies = BODIES if route.body_field is not None else (NO_BODY,)
            for number, query in enumerate(queries(route)):
                for body in bodies if number < 2 else bodies[:1]:
                    headers = [] if number == 0 else [(b"idempotency-key", b"k"), (b"last-event-id", b"a")]
                    scope = {
                        "type": "http",
                        "method": "POST",
                        "path_params": {one.alias: VALUES[number % 3] for one in route.dependant.path_params},
                        "query_string": urlencode(query).encode(),
                        "headers": headers,
                        "state": {"caller": Caller()},
                    }
                    request = BoundedRequest(scope)
                    ours = read(route, request, body)
                    assert ours == await framework(route, request, body), (route.path, query, body)
                    good, bad = good + (not ours[1]), bad + bool(ours[1])
        return good, bad

    good, bad = await go()
    assert good > 200
    assert bad > 200


class Caller:
    engine = "the engine"


async def other() -> int:
    return 1


async def asks_for_a_cookie(session: str = Cookie(default="")) -> None: ...


async def has_another_dependency(number: int = Depends(other)) -> None: ...


def is_no_coroutine() -> None: ...


@pytest.mark.parametrize("endpoint", [asks_for_a_cookie, has_another_dependency, is_no_coroutine])
def test_a_function_that_asks_for_more_than_is_read_stops_the_service(endpoint: Any) -> None:
    router = APIRouter(route_class=Route)
    with pytest.raises(LookupError, match=r"the function of /runs .* does not read"):
        router.add_api_route("/runs", endpoint, methods=["POST"])
