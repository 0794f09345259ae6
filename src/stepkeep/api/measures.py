"""Counts requests by route template and status, streams, and refusals, for metrics.

Labels come from the table of routes, never from what a client sent. `envelope` calls it for each request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, Final

from stepkeep.operations.pipeline.measures import SECONDS, Histogram

if TYPE_CHECKING:
    from stepkeep.metrics.families import Family

METHODS: Final = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"})
UNROUTED: Final = "(none)"
"""In place of a route: no route has this address."""


def route_of(scope: MutableMapping[str, Any]) -> str:
    """The template of the route that took a request."""
    return getattr(scope.get("route"), "path_format", UNROUTED)


class HttpMeasures:
    """The requests of one process. `streams` counts those that are open, by kind."""

    def __init__(self, streams: Callable[[], Mapping[str, int]]) -> None:
        self._streams = streams
        self.requests: Counter[tuple[str, ...]] = Counter()
        self.seconds: dict[str, Histogram] = {}
        self.in_flight = 0
        self.refused: Counter[str] = Counter()
        self.cut = 0

    def answered(self, method: str, route: str, status: int, seconds: float, is_stream: bool) -> None:
        """A request has ended. Status 0: its connection broke before the answer began."""
        self.requests[method if method in METHODS else "(other)", route, str(status)] += 1
        if not is_stream:
            found = self.seconds.get(route)
            if found is None:
                found = self.seconds[route] = Histogram(SECONDS)
            found.observe(seconds)

    def families(self) -> list[Family]:
        """All of it."""
        from stepkeep.metrics.families import counter, gauge, histogram

        return [
            counter("stepkeep_http_requests_total", self.requests),
            histogram("stepkeep_http_request_seconds", {(route,): found for route, found in self.seconds.items()}),
            gauge("stepkeep_http_in_flight", {(): self.in_flight}),
            counter("stepkeep_http_refused_total", {(reason,): count for reason, count in self.refused.items()}),
            gauge("stepkeep_streams", {(kind,): count for kind, count in self._streams().items()}),
            counter("stepkeep_streams_cut_total", {(): self.cut}),
        ]
