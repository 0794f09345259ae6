"""Requests of browsers: the session cookie, the defence against requests that other sites forge, and sign-in attempts.

A request with an Authorization header is a program's, and its cookies are ignored. A request with the cookie alone is a
browser's: to change something it needs the token of the session in a header, and an Origin of this service, if it has
one. Answers never allow another origin (no CORS). `routing` and `session` call it; it calls no operation.
"""

from __future__ import annotations

import hmac
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from stepkeep.api.access import Callers, KeyHolder
from stepkeep.api.problems import FORGED, TOO_MANY, UNAUTHENTICATED, ApiError
from stepkeep.kernel.errors import InvalidInput
from stepkeep.operations.access import Credential
from stepkeep.operations.people.keys import LIFETIME, csrf_token, parse_session

COOKIE: Final = "stepkeep_session"
CSRF: Final = "X-CSRF-Token"
SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing."""

MOST_FAILURES: Final = 10
"""Failed sign-ins with one key or from one address within `WINDOW_SECONDS`; further ones wait."""
WINDOW_SECONDS: Final = 60.0
MOST_NAMES: Final = 10_000
"""How many keys and addresses with failures are remembered."""

AGAIN = "Sign in again: POST /session."


class SignInAttempts:
    """Failed sign-ins of this process, counted per key id and per address."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._failed: OrderedDict[str, list[float]] = OrderedDict()

    def check(self, names: Iterable[str]) -> None:
        """Refuse an attempt after too many failures, before the database is asked."""
        for name in names:
            recent = self._recent(name)
            if len(recent) >= MOST_FAILURES:
                wait = int(recent[0] + WINDOW_SECONDS - self._monotonic()) + 1
                said = f"Too many sign-ins have failed. Try again in {wait} s."
                raise ApiError(TOO_MANY, said, headers={"Retry-After": str(wait)})

    def failed(self, names: Iterable[str]) -> None:
        for name in names:
            self._failed[name] = [*self._recent(name), self._monotonic()]
            self._failed.move_to_end(name)
        while len(self._failed) > MOST_NAMES:
            self._failed.popitem(last=False)

    def _recent(self, name: str) -> list[float]:
        begins = self._monotonic() - WINDOW_SECONDS
        return [one for one in self._failed.get(name, ()) if one > begins]


class Browsers:
    """How browsers reach this service. `public_url` is the address in front of it, where that is not its own."""

    def __init__(self, public_url: str | None = None, *, lifetime_us: int = LIFETIME) -> None:
        self.public_url = None if public_url is None else read_public_url(public_url)
        self.lifetime_us = lifetime_us
        self.attempts = SignInAttempts()
        self.provider: Any = None
        """Where people sign in by OIDC (`api.oidc.Provider`), if it is set up."""

    async def authenticate(self, callers: Callers, request: Request) -> KeyHolder:
        """The caller of a request: a key, or the session of a browser that proves that its own page asks."""
        authorization = request.headers.get("authorization")
        if authorization is not None or COOKIE not in request.cookies:
            return await callers.authenticate(authorization)
        credential = cookie_of(request)
        caller = request.state.caller = await callers.authenticate_session(credential)
        if request.method not in SAFE:
            self.check_origin(request)
            given = request.headers.get(CSRF, "")
            if not hmac.compare_digest(given.encode(), csrf_token(credential).encode()):
                raise ApiError(
                    FORGED, f"A request with the session cookie needs the header {CSRF}: GET /session tells it."
                )
        return caller

    def check_origin(self, request: Request) -> None:
        """Refuse a request that a page of another origin sends. Programs send no Origin."""
        given = request.headers.get("origin")
        if given is not None and given != self.origin(request):
            raise ApiError(FORGED, "The request comes from a page of another origin, which may not use this service.")

    def origin(self, request: Request) -> str:
        """The origin of this service's own pages."""
        return self.public_url or f"{request.url.scheme}://{request.headers.get('host', '')}"

    def is_secure(self, request: Request) -> bool:
        """Whether browsers reach the service by TLS."""
        return self.origin(request).startswith("https://")

    def set_cookie(self, request: Request, answer: Response, credential: Credential) -> None:
        """Give the browser its session. Scripts cannot read the cookie, and other sites cannot send it."""
        answer.set_cookie(
            COOKIE,
            f"{credential.id}_{credential.secret}",
            max_age=self.lifetime_us // 1_000_000,
            path="/",
            secure=self.is_secure(request),
            httponly=True,
            samesite="strict",
        )

    def clear_cookie(self, request: Request, answer: Response) -> None:
        answer.delete_cookie(COOKIE, path="/", secure=self.is_secure(request), httponly=True, samesite="strict")


def cookie_of(request: Request) -> Credential:
    """The parts of the session cookie."""
    try:
        return parse_session(request.cookies.get(COOKIE, ""))
    except InvalidInput as problem:
        raise ApiError(UNAUTHENTICATED, str(problem)) from None


def read_public_url(given: str) -> str:
    """The origin that browsers see.

    >>> read_public_url("https://flows.example.com/")
    'https://flows.example.com'
    """
    refused = InvalidInput("the public URL is the scheme, the host and the port alone: https://flows.example.com.")
    try:
        parts = urlsplit(given)
        port = parts.port
    except ValueError:
        raise refused from None
    usual = {"http": 80, "https": 443}.get(parts.scheme)
    extra = parts.path.removesuffix("/") or parts.query or parts.fragment or "@" in parts.netloc
    if usual is None or not parts.hostname or extra:
        raise refused
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}" + ("" if port in (None, usual) else f":{port}")
