"""The route of every resource: authentication, scopes, limits and problems around one call.

A route handles a request in this order: headers, key, scope, query, body, operation. No later part sees what an earlier
one refused. `derived` makes the routes of operations, `handwritten` those with a function of their own.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from starlette._utils import get_route_path
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.routing import Route as PlainRoute
from starlette.types import Receive, Scope, Send

from stepkeep.api.access import OPEN
from stepkeep.api.load import Seat
from stepkeep.api.problems import IN_FLIGHT, PROBLEMS, TIMEOUT, ApiError, ProblemKind, problem_of
from stepkeep.api.problems import OWN as OWN_PROBLEMS
from stepkeep.api.requests import BoundedRequest, check_headers
from stepkeep.edges.safe_text import inert_line
from stepkeep.engine.groups import ActingEngine
from stepkeep.kernel.errors import InvalidInput, NotAllowed, QuotaExceeded
from stepkeep.operations.runs.spans import INCOMING, parse_trace

if TYPE_CHECKING:
    from stepkeep.api.service import Service

INVALID: ProblemKind = next(kind for of, kind in PROBLEMS if of is InvalidInput)

STATUSES: dict[int, str] = {kind.status: kind.title for kind in (*(kind for _, kind in PROBLEMS), *OWN_PROBLEMS)}
"""One title for each status that a problem can have, for the OpenAPI document."""


NAMES = ("/workflows/check",)
"""Paths whose last part is also a name that people may give."""


class JsonAnswer(Response):
    """A JSON body."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return msgspec.json.encode(content)


def service_of(request: Request) -> Service:
    """What all requests of the process share."""
    return request.app.state.service  # type: ignore[no-any-return]


def seat_of(request: Request) -> Seat | None:
    """The place that the request has in the load of the process."""
    return request.scope["state"].get("seat")  # type: ignore[no-any-return]


def waiting(request: Request, seconds: float | None) -> AbstractAsyncContextManager[None]:
    """Around a wait for something else than the database: a long poll has a place of its own kind."""
    seat = seat_of(request)
    return seat.moved("waits") if seconds and seat is not None else nullcontext()


class Admitting(PlainRoute):
    """A route that handles a request in the order above; `_answer` does the work of an admitted one."""

    operation: str
    rivals: tuple[re.Pattern[str], ...] = ()

    def find_rivals(self, others: Iterable[Admitting]) -> None:
        """Find the paths that say more about some addresses of this one: `/runs/bulk` beside `/runs/{run_id}`."""
        self.rivals = tuple(
            {
                one.path_format: one.path_regex
                for one in others
                if one.path_format not in (self.path_format, *NAMES) and self.path_regex.match(one.path_format)
            }.values()
        )

    async def _admit(self, request: Request) -> tuple[ActingEngine, tuple[int, int] | None]:
        """The engine of the caller, and its rate. A caller that may not call this route is refused, and the refusal is
        added to the audit log."""
        service = service_of(request)
        request.state.caller = None
        try:
            caller = request.state.caller = await service.browsers.authenticate(service.callers, request)
            if (seat := seat_of(request)) is not None:
                seat.known(caller.access.tenant, None if caller.access.key is None else caller.access.key.id)
            rate = await service.callers.admit(caller, self.operation)
            return caller.engine(self.operation), rate
        except (ApiError, NotAllowed, QuotaExceeded) as problem:
            target = "/".join(map(str, request.path_params.values()))
            await service.callers.note_refusal(
                request.state.caller, request.headers.get("authorization"), self.operation, target, problem
            )
            raise

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """No match for an address that is of another route, whose path says more about it."""
        found = super().matches(scope)
        if found[0] is not Match.NONE and any(one.match(get_route_path(scope)) for one in self.rivals):
            return Match.NONE, {}
        return found

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request. Everything that goes wrong before the answer begins is a problem."""
        if scope["method"] not in (self.methods or ()):
            await super().handle(scope, receive, send)
            return
        request = BoundedRequest(scope, receive, send)
        given = parse_trace(request.headers.get("traceparent"))
        trace = INCOMING.set(None if given is None else str(given))
        try:
            answer = await self._answer(request)
        except asyncio.CancelledError:
            raise
        except Exception as problem:  # noqa: BLE001 - every error becomes a problem; what is unexpected is logged
            is_late = isinstance(problem, ApiError) and problem.kind is TIMEOUT
            if (is_late or isinstance(problem, QuotaExceeded)) and (seat := seat_of(request)) is not None:
                await seat.refuse()  # many bodies time out at once, too
            answer = problem_of(problem)
        finally:
            INCOMING.reset(trace)
        await answer(scope, receive, send)

    async def _answer(self, request: BoundedRequest) -> Response:
        check_headers(request)
        engine, rate = None, None
        if self.operation == OPEN:
            if (seat := seat_of(request)) is not None:
                seat.move("requests")
        else:
            engine, rate = await self._admit(request)
            request.charge = partial(service_of(request).callers.charge, request.state.caller, self.operation)
        answer = await self._act(request, engine)
        if rate is not None:
            limit, left = rate
            answer.headers.update({"X-RateLimit-Limit": str(limit), "X-RateLimit-Remaining": str(left)})
        return answer

    async def _act(self, request: BoundedRequest, engine: ActingEngine | None) -> Response:
        raise NotImplementedError


def problems_of(method: str, path: str, operation: str) -> dict[int | str, dict[str, Any]]:
    """The problems that any route of this kind may answer with."""
    statuses = {400, 431, 500, 503}
    if operation != OPEN:
        statuses |= {401, 403, 404, 429}
    if "{" in path:
        statuses |= {404, 409}  # the state of what is named may refuse a read, too: evidence of a live run
    if method not in ("GET", "DELETE"):
        statuses |= {408, 409, 413, 415, 422}
    return problem_responses(*statuses)


class Index:
    """Finds the route of a request by its method, first part and number of parts, and hands the request to it.

    The router of the framework asks its routes in turn, which takes longer than many a request. It answers what the
    index does not know: another method, no such address, a name with slashes, a page."""

    def __init__(self, app: Starlette) -> None:
        self._app = app
        self._routes: dict[tuple[str, str, int], list[Admitting]] = {}
        for route in app.routes:
            if isinstance(route, Admitting) and ":path}" not in route.path:
                for method in route.methods or ():
                    self._routes.setdefault((method, *_shape(route.path)), []).append(route)

    def find(self, scope: Scope) -> tuple[Admitting, Scope] | None:
        """The route of a request, and what the route adds to its scope."""
        for route in self._routes.get((scope["method"], *_shape(get_route_path(scope))), ()):
            match, added = route.matches(scope)
            if match is Match.FULL:
                return route, added
        return None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = self.find(scope) if scope["type"] == "http" else None
        if found is None:
            await self._app(scope, receive, send)
            return
        route, added = found
        scope.update(added, app=self._app, route=route)
        await route.handle(scope, receive, send)


def _shape(path: str) -> tuple[str, int]:
    """The first part of a path, and how many it has.

    >>> _shape("/runs/{run_id}/steps")
    ('runs', 3)
    """
    parts = path.split("/", 2)
    return parts[1] if len(parts) > 1 else "", path.count("/")


def problem_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The documented problems of a route."""
    return {
        status: {
            "description": STATUSES[status],
            "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
        for status in sorted(statuses)
    }


def check_query(request: Request, names: Collection[str], lists: Collection[str] = ()) -> None:
    """Refuse parameters that the route does not have, or that are given twice: nothing is ignored."""
    given = [name for name, _ in request.query_params.multi_items()]
    for name in given:
        if name not in names:
            there = ", ".join(sorted(names)) or "none"
            raise InvalidInput(f"the address has no parameter {inert_line(name, 60)!a}. It has: {there}.")
        if given.count(name) > 1 and name not in lists:
            raise InvalidInput(f"the parameter {name} is given {given.count(name)} times. Give it once.")


def wrong_request(found: Iterable[tuple[Iterable[str | int], str]]) -> ApiError:
    """What is wrong with which part of a request. Values are not repeated: one may be a secret."""
    shown = [{"at": inert_line(".".join(map(str, at)), 300), "message": inert_line(said, 300)} for at, said in found]
    return ApiError(INVALID, "; ".join(f"{one['at']}: {one['message']}" for one in shown[:3]), errors=shown)


@contextmanager
def under_way(request: Request, engine: ActingEngine, operation: str, key: str | None) -> Iterator[None]:
    """Hold the key of this caller and operation while the request is under way."""
    if key is None:
        yield
        return
    held, mine = service_of(request).in_flight, (engine.tenant, operation, key, engine.access.key_scope)
    if mine in held:
        raise ApiError(IN_FLIGHT, "The first request with this key has not ended yet. Send the same request again.")
    held.add(mine)
    try:
        yield
    finally:
        held.discard(mine)
