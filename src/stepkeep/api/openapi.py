"""The OpenAPI 3.1 document: what FastAPI derives from routes and models, and the access to each of them.

The same table that admits a request (`access.ROUTES`) is written into the document. `app` calls it once.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from stepkeep.api.access import OPEN, ROUTES, scopes_of
from stepkeep.api.browsers import COOKIE, CSRF
from stepkeep.api.derived import described
from stepkeep.api.problems import Problem
from stepkeep.api.routing import ANSWERS
from stepkeep.operations.access import SCOPES
from stepkeep.operations.operation import routed

ABOUT = """A durable workflow engine: plans of steps that are kept, retried, approved and undone.

Send an API key as `Authorization: Bearer sk_ID_SECRET`. The tenant is the key's; everything of another tenant is 404.
Errors are RFC 9457 problems whose `type` is stable."""

SESSION = f"""The cookie of a session (`POST /session`), which acts with its key. A request that changes something also
needs the header `{CSRF}`."""


def describe(app: FastAPI) -> dict[str, Any]:
    """The document of this application."""
    if app.openapi_schema is None:
        found = get_openapi(
            title="Stepkeep", version=version("stepkeep"), openapi_version="3.1.0", description=ABOUT, routes=app.routes
        )
        parts = found.setdefault("components", {})
        schemas = parts.setdefault("schemas", {})
        schemas["Problem"] = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
        _, told = models_json_schema(
            [(model, "serialization") for model in ANSWERS.values()], ref_template="#/components/schemas/{model}"
        )
        schemas.update(told["$defs"])
        for unused in ("HTTPValidationError", "ValidationError"):
            schemas.pop(unused, None)
        parts["securitySchemes"] = {
            "key": {"type": "http", "scheme": "bearer", "bearerFormat": "sk_ID_SECRET", "description": _scopes()},
            "session": {"type": "apiKey", "in": "cookie", "name": COOKIE, "description": SESSION},
        }
        for path, operations in found["paths"].items():
            for method, operation in operations.items():
                _secure(operation, ROUTES[f"{method.upper()} {path}"])
        for operation in routed():
            path = found["paths"].setdefault(operation.path.replace(":path}", "}"), {})
            path[operation.method.lower()] = described(operation, schemas)
        parts["schemas"] = dict(sorted(schemas.items()))
        app.openapi_schema = found
    return app.openapi_schema


def _secure(operation: dict[str, Any], row: str) -> None:
    # The problems of a route are our own; the framework's 422 is never sent.
    told = operation["responses"].get("422", {})
    if "application/json" in told.get("content", {}):
        del operation["responses"]["422"]
    if row == OPEN:
        operation["security"] = []
        return
    names = [scope.value for scope in scopes_of(row)]
    operation["security"] = [{"key": names}, {"session": names}]
    needs = f"Needs a key with the scope {' and '.join(names)}." if names else "Needs a key; any scope will do."
    operation["description"] = f"{operation.get('description', '')}\n\n{needs}".strip()


def _scopes() -> str:
    return "An API key. Scopes: " + "; ".join(f"`{scope}` to {meaning}" for scope, meaning in SCOPES.items()) + "."
