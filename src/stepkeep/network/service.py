"""Requests to a Stepkeep service: JSON in, JSON out, and problems as the errors that an engine raises.

It knows addresses and answers, and nothing of runs or workers. A connection that breaks is an error of its own kind,
because what was asked for may have happened. The client and remote workers call it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from stepkeep.edges.safe_text import inert_line
from stepkeep.kernel import errors

if TYPE_CHECKING:
    import ssl

    from httpx2 import AsyncClient, Response

SECONDS = 30.0
CONNECT_SECONDS = 10.0
MAX_ANSWER_BYTES = 128 * 1024 * 1024
MAX_SAID = 2000
TRIES = 4
"""How often an idempotent request is sent."""
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0

CODES: dict[str, type[errors.StepkeepError]] = {
    **{
        kind.code: kind
        for kind in (
            errors.Refused,
            errors.InvalidInput,
            errors.NotFound,
            errors.Conflict,
            errors.WrongToken,
            errors.TokenUsed,
            errors.TokenExpired,
            errors.NotAllowed,
            errors.KeyReused,
            errors.QuotaExceeded,
            errors.Fenced,
            errors.Quarantined,
        )
    },
    "expression": errors.ExpressionError,
    "unauthenticated": errors.NotAllowed,
    "in_flight": errors.Conflict,
    "too_large": errors.InvalidInput,
    "headers_too_large": errors.InvalidInput,
    "unsupported_media_type": errors.InvalidInput,
    "method_not_allowed": errors.InvalidInput,
    "definition_changed": errors.DefinitionChanged,
    "contended": errors.Contended,
    "permission_denied": errors.PermissionDenied,
    "schema_mismatch": errors.SchemaMismatch,
    "broken": errors.Broken,
}
"""The error of each problem by its code. Any other with a status of 500 or more is StoreUnavailable."""


class ServiceAnswer(msgspec.Struct, frozen=True):
    """One answer that is no problem."""

    status: int
    body: bytes
    headers: Mapping[str, str]

    def json(self) -> Any:
        return decode(self.body)


class RemoteService:
    """One service: its address and the key for it. The key is asked for with each request, so that it can change."""

    def __init__(self, url: str, key: str | Callable[[], str], *, seconds: float = SECONDS) -> None:
        self.url = service_url(url)
        self._key = key if callable(key) else lambda: key
        self._seconds = seconds
        self._http: AsyncClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def close(self) -> None:
        """Close what is open."""
        http, self._http = self._http, None
        if http is not None:
            await http.aclose()

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        content: bytes | None = None,
        media_type: str = "application/json",
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        seconds: float | None = None,
    ) -> ServiceAnswer:
        """Send one request once. Raises the error that its problem stands for, or ConnectionLost or Unreachable."""
        import httpx2

        if content is None and body is not None:
            content = msgspec.json.encode(body)
        sent = {"Authorization": f"Bearer {self._key()}", "Accept": "application/json", **(headers or {})}
        if content is not None:
            sent["Content-Type"] = media_type
        try:
            response = await self._client().request(
                method,
                path,
                content=content,
                params=_query(query),
                headers=sent,
                timeout=httpx2.Timeout(seconds or self._seconds, connect=CONNECT_SECONDS),
            )
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as problem:
            raise errors.Unreachable(f"the service at {self.url} cannot be reached: {_words(problem)}.") from None
        except (httpx2.TransportError, httpx2.DecodingError) as problem:
            raise errors.ConnectionLost(
                f"the connection to the service at {self.url} broke: {_words(problem)}. It may have happened."
            ) from None
        return _answer(response.status_code, response.content, response.headers)

    async def ask(self, method: str, path: str, **options: Any) -> Any:
        """Send an idempotent request, again after a failure of the connection or the database; returns its JSON."""
        return (await again(lambda: self.request(method, path, **options))).json()

    @asynccontextmanager
    async def events(
        self, path: str, *, last_id: str | None = None, query: Mapping[str, Any] | None = None, silence: float = 45.0
    ) -> AsyncIterator[AsyncIterator[ServerEvent]]:
        """The server-sent events of one connection. It ends after `silence` seconds without a heartbeat."""
        import httpx2

        headers = {"Authorization": f"Bearer {self._key()}", "Accept": "text/event-stream"}
        if last_id is not None:
            headers["Last-Event-ID"] = last_id
        timeout = httpx2.Timeout(silence, connect=CONNECT_SECONDS)
        try:
            async with self._client().stream(
                "GET", path, params=_query(query), headers=headers, timeout=timeout
            ) as response:
                if response.status_code != 200:
                    _answer(response.status_code, await response.aread(), response.headers)
                yield _events(response)
        except httpx2.ConnectError as problem:
            raise errors.Unreachable(f"the service at {self.url} cannot be reached: {_words(problem)}.") from None
        except httpx2.TransportError as problem:
            raise errors.ConnectionLost(f"the stream of {self.url} broke: {_words(problem)}.") from None

    def _client(self) -> AsyncClient:
        import httpx2

        loop = asyncio.get_running_loop()
        if self._http is None or self._loop is not loop:
            limits = httpx2.Limits(max_connections=None, max_keepalive_connections=50, keepalive_expiry=30)
            self._http = httpx2.AsyncClient(base_url=self.url, limits=limits, follow_redirects=False, verify=_tls())
            self._loop = loop
        return self._http


@cache
def _tls() -> ssl.SSLContext:
    """Shared by all clients: reading the certificates of authorities takes tens of milliseconds."""
    import httpx2

    return httpx2.create_ssl_context()


class ServerEvent(msgspec.Struct, frozen=True):
    """One server-sent event."""

    name: str
    data: bytes
    id: str | None = None

    def json(self) -> Any:
        return decode(self.data)


async def again(
    send: Callable[[], Awaitable[ServiceAnswer]],
    *,
    tries: int = TRIES,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> ServiceAnswer:
    """Send a request that may be repeated, until it is answered or `tries` are used."""
    for attempt in range(tries):
        try:
            return await send()
        except (errors.StoreUnavailable, errors.Contended):
            if attempt == tries - 1:
                raise
            longest = min(LONGEST_PAUSE, FIRST_PAUSE * 3**attempt)
            await sleep(longest * random.uniform(0.5, 1.0))  # noqa: S311
    raise AssertionError("unreachable")


def service_url(url: object) -> str:
    """The base address of a service.

    >>> service_url("https://flows.example.org/")
    'https://flows.example.org'
    """
    said = "the service is named by its address, such as https://flows.example.org"
    if not isinstance(url, str):
        raise errors.InvalidInput(f"{said}.")
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise errors.InvalidInput(f"{said}.") from None
    if parts.scheme not in ("http", "https") or not host:
        raise errors.InvalidInput(f"{said}.")
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise errors.InvalidInput(f"{said}, without a user, a password, a query or a fragment.")
    return url.rstrip("/")


def is_service_url(url: object) -> bool:
    """Whether this names a service, and no database."""
    return isinstance(url, str) and url.startswith(("http://", "https://"))


def decode(body: bytes, kind: Any = Any) -> Any:
    """The value of an answer."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, RecursionError):
        raise errors.StoreUnavailable("the answer of the service is no JSON: is it Stepkeep?") from None


def error_of(status: int, body: bytes) -> errors.StepkeepError:
    """The error that a problem stands for."""
    try:
        told = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        told = None
    if not isinstance(told, dict) or not isinstance(told.get("code"), str):
        return errors.StoreUnavailable(f"the service answers {status} without a problem: is it Stepkeep?")
    if told["code"] == "definition":
        return errors.DefinitionError([_problem(one) for one in told.get("problems") or ()])
    said = inert_line(str(told.get("detail") or told.get("title") or told["code"]), MAX_SAID)
    kind = CODES.get(told["code"])
    if kind is None:
        return errors.StoreUnavailable(said) if status >= 500 or status in (408, 429) else errors.Refused(said)
    return _refusal(kind, said, told)


def _refusal(kind: type[errors.StepkeepError], said: str, told: Mapping[str, Any]) -> errors.StepkeepError:
    if issubclass(kind, errors.Conflict | errors.KeyReused):
        other = told.get("winner" if issubclass(kind, errors.Conflict) else "earlier")
        return kind(said, other if isinstance(other, dict) else None)
    if issubclass(kind, errors.NotAllowed):
        rule = str(told.get("rule") or ("key_invalid" if told["code"] == "unauthenticated" else ""))
        return kind(said, rule, told.get("person"), str(told.get("reason") or ""))
    return kind(said)


def _problem(told: Any) -> errors.Problem:
    given = told if isinstance(told, dict) else {}
    texts: Any = {name: str(given.get(name) or "") for name in ("file", "path", "message", "hint")}
    places: Any = {name: value if isinstance(value := given.get(name), int) else 0 for name in ("line", "column")}
    return errors.Problem(**texts, **places)


def _answer(status: int, body: bytes, headers: Mapping[str, str]) -> ServiceAnswer:
    if 200 <= status < 300:
        return ServiceAnswer(status, body, headers)
    raise error_of(status, body)


async def _events(response: Response) -> AsyncIterator[ServerEvent]:
    name, data, last = "message", list[str](), None
    async for line in response.aiter_lines():
        if not line:
            if data:
                yield ServerEvent(name, "\n".join(data).encode(), last)
            name, data = "message", []
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            name = value
        elif field == "data":
            data.append(value)
        elif field == "id":
            last = value
        if sum(map(len, data)) > MAX_ANSWER_BYTES:
            raise errors.ConnectionLost("an event of the stream is too large.")


def _query(given: Mapping[str, Any] | None) -> Mapping[str, Any]:
    found: dict[str, Any] = {}
    for name, value in (given or {}).items():
        if value is not None:
            found[name] = str(value).lower() if isinstance(value, bool) else value
    return found


def _words(problem: Exception) -> str:
    """The library's words without anything that a URL or a header could carry."""
    return inert_line(str(problem).partition("http")[0] or type(problem).__name__, 200)
