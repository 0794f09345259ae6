"""The metrics of this process for Prometheus.

They are numbers of all tenants together, so that only keys of the tenant `default` may read them. A port without a key
(`serve --metrics-port`) shows the same.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from stepkeep.api.handwritten import Routes
from stepkeep.api.routing import service_of
from stepkeep.engine.acting import ActingEngine
from stepkeep.kernel.errors import NotAllowed

routes = Routes("Service")

OPERATORS = "default"
"""The tenant whose keys may read numbers of the whole process."""


@routes(
    "GET /metrics",
    "metrics",
    "get_metrics",
    "The metrics of this process",
    done="Metrics in the text format of Prometheus, or OpenMetrics if the client accepts it",
    media="text/plain",
)
async def get_metrics(
    request: Request, engine: ActingEngine, accept: Annotated[str, Meta(max_length=1000)] = ""
) -> Response:
    """Numbers of all tenants: the key belongs to the tenant `default`. Values from the database may be 10 s old."""
    if engine.tenant != OPERATORS:
        raise NotAllowed(
            f"metrics are numbers of all tenants: use a key of the tenant {OPERATORS}, or the port of metrics.",
            "tenant",
            engine.actor,
        )
    body, media_type = await service_of(request).metrics.text(accept)
    return Response(body, headers={"Content-Type": media_type})
