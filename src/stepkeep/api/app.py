"""The application: an open engine in, an ASGI application out.

It puts the parts together and holds no rule of its own. The caller opens and closes the engine. `server` runs it; a
host program may mount it. A new resource is one file with `routes`, a line in `RESOURCES` and a row per route in
`access.ROUTES`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.routing import Route as PlainRoute
from starlette.types import ASGIApp

from stepkeep.api import (
    action_service,
    action_workflows,
    approvals,
    audit,
    continuations,
    definitions,
    health,
    hooks,
    interventions,
    jobs,
    keys,
    links,
    messages,
    metrics,
    migrations,
    network,
    oidc,
    outbox,
    pages,
    people,
    policies,
    records,
    run_actions,
    run_service,
    runs,
    schemas,
    session,
    simulation,
    sinks,
    steps,
    stream,
    system,
    triggers,
    work,
    work_data,
)
from stepkeep.api.access import ROUTES
from stepkeep.api.browsers import Browsers
from stepkeep.api.derived import DerivedRoute
from stepkeep.api.envelope import Envelope
from stepkeep.api.openapi import describe
from stepkeep.api.problems import METHOD, NOT_FOUND, UNEXPECTED, problem
from stepkeep.api.routing import Admitting, Index
from stepkeep.api.service import Service
from stepkeep.engine import AsyncEngine
from stepkeep.engine.hosted import AsyncHostedWorker
from stepkeep.operations.operation import routed
from stepkeep.operations.quotas import NONE as NO_QUOTAS
from stepkeep.operations.quotas import Quotas

RESOURCES = (
    health,
    oidc,
    session,
    metrics,
    links,
    runs,
    run_actions,
    interventions,
    continuations,
    migrations,
    jobs,
    steps,
    records,
    stream,
    approvals,
    messages,
    triggers,
    hooks,
    sinks,
    outbox,
    network,
    simulation,
    definitions,
    system,
    schemas,
    policies,
    people,
    keys,
    audit,
    work,
    work_data,
    run_service,
    action_service,
    action_workflows,
)
"""One module per resource, in the order of the document."""


class Application:
    """An ASGI application with its service."""

    def __init__(
        self, engine: AsyncEngine, browsers: Browsers | None = None, workers: Sequence[AsyncHostedWorker] = ()
    ) -> None:
        self.service = Service(engine, browsers, workers)
        self.http = _application(self.service)
        self.index = Index(self.http)
        self._app: ASGIApp = Envelope(self.index, self.service)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self._app(scope, receive, send)


def create_app(
    engine: AsyncEngine,
    *,
    browsers: Browsers | None = None,
    workers: Sequence[AsyncHostedWorker] = (),
    quotas: Quotas = NO_QUOTAS,
) -> Application:
    """The service over this engine, which is open. `browsers` says under which address browsers reach it; metrics tell
    of these workers of the process, too; `quotas` count for keys without quotas of their own."""
    engine.quotas.default = quotas
    return Application(engine, browsers, workers)


def _application(service: Service) -> FastAPI:
    app = FastAPI(title="Stepkeep", openapi_url=None, redirect_slashes=False)
    app.state.service = service
    for resource in RESOURCES:
        app.router.routes.extend(resource.routes.routes)
    app.router.routes.extend(map(DerivedRoute, routed()))
    app.router.routes.extend(pages.routes)
    ours = [route for route in app.routes if isinstance(route, Admitting)]
    for route in ours:
        route.find_rivals(ours)
    app.add_exception_handler(HTTPException, _unrouted)
    app.openapi = lambda: describe(app)  # type: ignore[method-assign]
    _require_all_rows(app)
    return app


def _require_all_rows(app: FastAPI) -> None:
    """A row without a route is a mistake, too: a test or a document would count on it."""
    ours = [route for route in app.routes if isinstance(route, Admitting)]
    there = {f"{method} {route.path_format}" for route in ours for method in route.methods or ()}
    if unknown := sorted(set(ROUTES) - there):
        raise LookupError(f"the table of routes has rows without a route: {', '.join(unknown)}")


async def _unrouted(request: Request, error: Exception) -> Response:
    """What the framework itself refuses: no such address, or another method."""
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        return problem(METHOD, f"{request.method} is not for this address.", headers={"Allow": _allowed(request)})
    return problem(NOT_FOUND if error.status_code == 404 else UNEXPECTED, "")


def _allowed(request: Request) -> str:
    """The methods of the path that says most about this address."""
    found: dict[str, set[str]] = {}
    for route in request.app.routes:
        if isinstance(route, PlainRoute) and route.matches(request.scope)[0] is not Match.NONE:
            found.setdefault(route.path_format, set()).update(route.methods or ())
    most = min(found, key=lambda path: (path.count("{"), -len(path)))
    return ", ".join(sorted(found[most]))
