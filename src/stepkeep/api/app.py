"""The application: an open engine in, an ASGI application out.

It puts the parts together and holds no rule of its own. The caller opens and closes the engine. `server` runs it; a
host program may mount it. An operation with a row has its route already. A module of routes with functions of their own
has `routes` and a line in `RESOURCES`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from typing import Any, TypedDict

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match
from starlette.routing import Route as PlainRoute
from starlette.types import ASGIApp

from stepkeep.api import definitions, health, messages, oidc, pages, run_service, runs, session, stream, work
from stepkeep.api.browsers import COOKIE, CSRF, Browsers
from stepkeep.api.derived import DerivedRoute, OperationDocument, Schemas, schema_of
from stepkeep.api.envelope import Envelope
from stepkeep.api.packing import Packing
from stepkeep.api.problems import EXAMPLE, METHOD, NOT_FOUND, UNEXPECTED, Problem, problem
from stepkeep.api.routing import Admitting, Index
from stepkeep.api.service import Service
from stepkeep.engine import AsyncEngine
from stepkeep.engine.hosted import AsyncHostedWorker
from stepkeep.operations.access import SCOPES
from stepkeep.operations.operation import routed
from stepkeep.operations.people.quotas import NONE as NO_QUOTAS
from stepkeep.operations.people.quotas import Quotas

RESOURCES = (
    *(one.routes for one in (health, oidc, session, runs, stream, messages, definitions, work, run_service)),
    runs.records,
)
"""The routes with functions of their own."""


class Application:
    """An ASGI application with its service."""

    def __init__(
        self, engine: AsyncEngine, browsers: Browsers | None = None, workers: Sequence[AsyncHostedWorker] = ()
    ) -> None:
        self.service = Service(engine, browsers, workers)
        self.http = _application(self.service)
        self.index = Index(self.http)
        self._app: ASGIApp = Envelope(Packing(self.index), self.service)

    def openapi(self) -> OpenApiDocument:
        """The OpenAPI document."""
        found: OpenApiDocument = self.http.state.document()
        return found

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


def _application(service: Service) -> Starlette:
    ours: list[Admitting] = [route for resource in RESOURCES for route in resource.routes]
    ours += map(DerivedRoute, routed())
    for route in ours:
        route.find_rivals(ours)
    app = Starlette(routes=[*ours, *pages.routes], exception_handlers={HTTPException: _unrouted})
    app.router.redirect_slashes = False
    app.state.service = service
    app.state.document = cache(lambda: describe(app.routes))
    return app


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


ABOUT = """A durable workflow engine: plans of steps that are kept, retried, approved and undone.

Send an API key as `Authorization: Bearer sk_ID_SECRET`. The tenant is the key's; everything of another tenant is 404.
Errors are RFC 9457 problems whose `type` is stable."""

SESSION = f"""The cookie of a session (`POST /session`), which acts with its key. A request that changes something also
needs the header `{CSRF}`."""


class OpenApiDocument(TypedDict):
    """The OpenAPI document of the service."""

    openapi: str
    info: Mapping[str, str]
    paths: Mapping[str, Mapping[str, OperationDocument]]
    components: Mapping[str, Any]


def describe(routes: Iterable[BaseRoute]) -> OpenApiDocument:
    """The document of these routes."""
    paths: dict[str, dict[str, OperationDocument]] = {}
    schemas: Schemas = {}
    schema_of(Problem, schemas)
    schemas["Problem"] = {**schemas["Problem"], "examples": [EXAMPLE]}
    for route in routes:
        if isinstance(route, DerivedRoute):
            paths.setdefault(route.path_format, {})[route.of.method.lower()] = route.described(schemas)
    security = {
        "key": {"type": "http", "scheme": "bearer", "bearerFormat": "sk_ID_SECRET", "description": _scopes()},
        "session": {"type": "apiKey", "in": "cookie", "name": COOKIE, "description": SESSION},
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "Stepkeep", "description": ABOUT, "version": version("stepkeep")},
        "paths": dict(sorted(paths.items())),
        "components": {"schemas": dict(sorted(schemas.items())), "securitySchemes": security},
    }


def _scopes() -> str:
    return "An API key. Scopes: " + "; ".join(f"`{scope}` to {meaning}" for scope, meaning in SCOPES.items()) + "."
