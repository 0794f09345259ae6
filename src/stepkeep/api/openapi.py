"""The OpenAPI 3.1 document: every route as its row and signature say, with the access that it needs.

`app` calls it once.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import version
from typing import Any

from starlette.routing import BaseRoute

from stepkeep.api.browsers import COOKIE, CSRF
from stepkeep.api.derived import DerivedRoute, schema_of
from stepkeep.api.problems import EXAMPLE, Problem
from stepkeep.operations.access import SCOPES

ABOUT = """A durable workflow engine: plans of steps that are kept, retried, approved and undone.

Send an API key as `Authorization: Bearer sk_ID_SECRET`. The tenant is the key's; everything of another tenant is 404.
Errors are RFC 9457 problems whose `type` is stable."""

SESSION = f"""The cookie of a session (`POST /session`), which acts with its key. A request that changes something also
needs the header `{CSRF}`."""


def describe(routes: Iterable[BaseRoute]) -> dict[str, Any]:
    """The document of these routes."""
    paths: dict[str, dict[str, Any]] = {}
    schemas: dict[str, Any] = {}
    schema_of(Problem, schemas)
    schemas["Problem"]["examples"] = [EXAMPLE]
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
