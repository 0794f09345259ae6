"""Around every answer: a request id, security headers, one log line, and a problem where anything else failed.

Pure ASGI, because it also surrounds streams. It reads no body and knows no route. `app` installs it outermost.
"""

from __future__ import annotations

import logging
import random
import re
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from stepkeep.api.load import route_of
from stepkeep.api.problems import problem_of
from stepkeep.api.service import Service
from stepkeep.edges.safe_text import inert_line
from stepkeep.operations.aside import RESTING
from stepkeep.operations.people.audit import REQUEST, AuditedRequest

log = logging.getLogger("stepkeep.api")

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

REQUEST_ID: Final = b"x-request-id"
_is_request_id = re.compile(rb"[A-Za-z0-9._:-]{1,100}").fullmatch

SECURITY: Final[tuple[tuple[bytes, bytes], ...]] = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
"""Headers of every answer. A route that sets one of them keeps its own."""


class Envelope:
    """The outermost layer of the application."""

    def __init__(self, app: App, service: Service) -> None:
        self._app, self._service = app, service

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _request_id(scope)
        told_id = scope.setdefault("state", {})["request_id"] = request_id.decode()
        client = scope.get("client")
        address = client[0] if client else None
        asked, resting = REQUEST.set(AuditedRequest(told_id, address)), None
        began, status, is_stream = time.monotonic(), 0, False
        measures = self._service.measures
        measures.in_flight += 1

        async def wrapped(message: Message) -> None:
            nonlocal status, is_stream
            if message["type"] == "http.response.start":
                status = message["status"]
                is_stream = _is_stream(message)
                measures.in_flight -= is_stream
                message["headers"] = self._headers(message.get("headers", ()), request_id)
            await send(message)

        seat = None
        try:
            seat = scope["state"]["seat"] = self._service.load.seat(scope["path"], address or "")
            if seat is not None:
                resting = RESTING.set(seat.resting)
                await seat.take_turn(self._service.callers.tenant_of(scope["headers"]))
            await self._app(scope, receive, wrapped)
        except Exception as problem:
            if status:
                raise  # the answer has begun: the connection is cut, and the server logs why
            await problem_of(problem)(scope, receive, wrapped)
        finally:
            if seat is not None:
                seat.leave()
            seconds, route = time.monotonic() - began, route_of(scope)
            measures.in_flight -= not is_stream
            measures.answered(scope["method"], route, status, seconds, is_stream)
            self._service.load.answered(scope["method"], status)
            if log.isEnabledFor(logging.INFO):
                log.handle(_record(scope, route, status, seconds))
            REQUEST.reset(asked)
            if resting is not None:
                RESTING.reset(resting)

    def _headers(self, given: Any, request_id: bytes) -> list[tuple[bytes, bytes]]:
        own = list(given)
        names = {name.lower() for name, _ in own}
        own += [(name, value) for name, value in SECURITY if name not in names]
        own.append((REQUEST_ID, request_id))
        if self._service.stopping.is_set() and b"connection" not in names:
            own.append((b"connection", b"close"))
        return own


def _record(scope: MutableMapping[str, Any], route: str, status: int, seconds: float) -> logging.LogRecord:
    """The line about a request. `log.info` would look for its caller on the stack, for each request."""
    method = inert_line(scope["method"], 20)
    said = (method, route, status, seconds * 1000)
    about = _about(scope, method, route, status, seconds)
    return log.makeRecord(log.name, logging.INFO, __file__, 0, "%s %s %d %.1f ms", said, None, extra=about)


def _about(scope: MutableMapping[str, Any], method: str, route: str, status: int, seconds: float) -> dict[str, object]:
    """The fields of the line about a request. No address that a client made up is among them."""
    given = scope.get("path_params") or {}
    caller = getattr(scope.get("state", {}), "get", lambda _: None)("caller")
    told: dict[str, object] = {
        "method": method,
        "route": route,
        "status": status,
        "duration_ms": round(seconds * 1000, 1),
        "run_id": given.get("run_id"),
        "step": given.get("step"),
    }
    if caller is not None:
        told |= {"tenant": caller.access.tenant, "actor": caller.access.actor}
    return told


def _is_stream(message: Message) -> bool:
    return any(name == b"content-type" and value.startswith(b"text/event-stream") for name, value in message["headers"])


def _request_id(scope: MutableMapping[str, Any]) -> bytes:
    """The id that the client gave, if it is one; else a new one."""
    given = next((value for name, value in scope["headers"] if name == REQUEST_ID), b"")
    return given if _is_request_id(given) else b"%032x" % random.getrandbits(128)
