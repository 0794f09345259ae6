"""Sends one request to a checked address and reads one bounded answer.

No redirects, proxies, cookies or passwords of the environment, no unbounded answer, and a new connection for each
request: nothing passes from one request to the next. The name is in `Host` and in TLS; the connection goes to the
address that the guard checked. HTTP steps and sinks call it.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING

import msgspec

from stepkeep.edges.safe_text import type_name
from stepkeep.network.allowing import AllowList
from stepkeep.network.failures import BadAnswer, CannotSend, ConnectionBroke, NoConnection, RequestFailed, TooSlow
from stepkeep.network.guard import Guard, Target

if TYPE_CHECKING:
    from httpx2 import AsyncHTTPTransport, Request, Response


CONNECT_SECONDS = 10.0
MAX_ANSWER = 128 * 1024
_SET_HERE = ("host", "connection", "content-length", "transfer-encoding")


class HttpAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What the server said. The names of headers are in small letters; `complete` is False for a body cut at the limit.

    The status is not judged here: 404 and 503 are answers too.
    """

    status: int
    headers: dict[str, str]
    body: bytes
    complete: bool


class GuardedClient:
    """Sends requests to where its guard allows. One per event loop at a time."""

    def __init__(
        self,
        guard: Guard,
        *,
        max_answer: int = MAX_ANSWER,
        seconds: float | None = 30.0,
        connect_seconds: float = CONNECT_SECONDS,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._guard, self._max_answer, self._seconds = guard, max_answer, seconds
        self._connect_seconds, self._tls = connect_seconds, tls
        self._transport: AsyncHTTPTransport | None = None

    async def send(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
        also: AllowList | None = None,
        seconds: float | None = None,
    ) -> HttpAnswer:
        """Send a request and read its answer; raises RequestFailed.

        `also` opens more addresses for this request; `seconds` is a shorter limit of time for the whole exchange, from
        the resolution of the name to the last byte of the answer.
        """
        limits = [each for each in (seconds, self._seconds) if each is not None]
        try:
            async with asyncio.timeout(min(limits) if limits else None):
                target = await self._guard.check(url, also=also)
                return await self._exchange(method, target, dict(headers or {}), content)
        except TimeoutError:
            raise TooSlow(f"no complete answer within {min(limits, default=0):g} s") from None

    async def aclose(self) -> None:
        """Close what is open."""
        self._guard.close()
        if self._transport is not None:
            await self._transport.aclose()
            self._transport = None

    def forget_loop(self) -> None:
        """Its connections belong to an event loop that is gone; the next request opens new ones."""
        self._transport = None

    async def _exchange(
        self, method: str, target: Target, headers: dict[str, str], content: bytes | None
    ) -> HttpAnswer:
        try:
            response = await self._connected(_requests(method, target, headers, content, self._connect_seconds))
            try:
                encoding = response.headers.get("content-encoding", "")
                body, complete = await read_body(response.aiter_raw(), encoding, self._max_answer)
                said = {name.lower(): value for name, value in response.headers.items()}
                return HttpAnswer(status=response.status_code, headers=said, body=body, complete=complete)
            finally:
                await response.aclose()
        except (RequestFailed, TimeoutError):
            raise
        except Exception as problem:  # noqa: BLE001 - the library's words may quote a secret; none of them are passed on
            raise failure_of(problem, self._connect_seconds) from None

    async def _connected(self, requests: list[Request]) -> Response:
        """The response of the first address that accepts a connection; nothing was sent to any before."""
        import httpx2

        transport = self._open()
        for request in requests[:-1]:
            try:
                return await transport.handle_async_request(request)
            except (httpx2.ConnectError, httpx2.ConnectTimeout):
                continue
        return await transport.handle_async_request(requests[-1])

    def _open(self) -> AsyncHTTPTransport:
        if self._transport is None:
            import httpx2

            # Not a client, which keeps cookies and logs URLs. A connection is never reused: some servers authenticate
            # connections, and one that was verified for one name would serve another at its address.
            limits = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
            self._transport = httpx2.AsyncHTTPTransport(
                verify=self._tls or _default_tls(), trust_env=False, limits=limits
            )
        return self._transport


@cache
def _default_tls() -> ssl.SSLContext:
    """Shared by all clients: reading the certificates of authorities takes tens of milliseconds."""
    import httpx2

    return httpx2.create_ssl_context(trust_env=False)


def _requests(
    method: str, target: Target, headers: dict[str, str], content: bytes | None, connect_seconds: float
) -> list[Request]:
    """The same request for each address, in the order in which they are tried."""
    import httpx2

    place = target.place
    wrong = [name for name in headers if name.lower() in _SET_HERE]
    if wrong:
        raise CannotSend(f"the header {wrong[0]} is set by the client itself")
    own = {name.lower(): value for name, value in headers.items()}
    sent = {"host": place.authority, "accept-encoding": ACCEPTED, "connection": "close", **own}
    extensions = {
        # The limit of the whole exchange is in `send`; connecting has a shorter one, to find a dead host early.
        "timeout": {"connect": connect_seconds, "read": None, "write": None, "pool": None},
        "sni_hostname": place.host.rstrip("."),
    }
    return [
        httpx2.Request(
            method.upper(),
            httpx2.URL(scheme=place.scheme, host=address, port=place.port, raw_path=place.target.encode("ascii")),
            headers=sent,
            content=content,
            extensions=extensions,
        )
        for address in target.addresses
    ]


def failure_of(problem: Exception, connect_seconds: float = CONNECT_SECONDS) -> RequestFailed:
    """The failure for an exception of the HTTP library, in our own words."""
    import httpx2

    table: tuple[tuple[type[Exception] | tuple[type[Exception], ...], type[RequestFailed], str], ...] = (
        (httpx2.ConnectTimeout, NoConnection, f"no connection within {connect_seconds:g} s"),
        (httpx2.ConnectError, NoConnection, "no connection"),
        (
            (httpx2.LocalProtocolError, httpx2.UnsupportedProtocol, httpx2.InvalidURL),
            CannotSend,
            "the request breaks the rules of HTTP",
        ),
        (httpx2.RemoteProtocolError, ConnectionBroke, "the answer breaks the rules of HTTP, or ended too early"),
        (httpx2.DecodingError, BadAnswer, "the body of the answer cannot be unpacked"),
        ((httpx2.TransportError, OSError), ConnectionBroke, "the connection broke"),
    )
    for kinds, failure, words in table:
        if isinstance(problem, kinds):
            return failure(f"{words}{_reason(problem)}")
    return RequestFailed(f"the request failed with {type_name(problem)}")


def _reason(problem: BaseException) -> str:
    """The operating system's or TLS's name of the error beneath an exception, if there is one."""
    beneath: BaseException | None = problem
    for _ in range(10):
        if isinstance(beneath, ssl.SSLCertVerificationError):
            return f": the server's certificate was refused ({beneath.verify_message})"
        if isinstance(beneath, ssl.SSLError):
            return f": TLS failed ({beneath.reason})"
        if isinstance(beneath, OSError) and beneath.errno is not None:
            return f": {os.strerror(beneath.errno)}"
        if beneath is None:
            return ""
        beneath = beneath.__cause__ or beneath.__context__
    return ""


ACCEPTED = "gzip, deflate"
"""What the client says that it accepts."""

_PLAIN = frozenset({"", "identity"})
_PACKED = frozenset({"gzip", "x-gzip", "deflate"})
_GZIP_OR_ZLIB = 47
_BARE = -15


async def read_body(pieces: AsyncIterator[bytes], encoding: str, limit: int) -> tuple[bytes, bool]:
    """The body, and whether it is whole; a longer one is cut at `limit` bytes. Raises BadAnswer."""
    unpack = _unpacker(encoding)
    body = bytearray()
    async for piece in pieces:
        body += unpack(piece, limit + 1 - len(body))
        if len(body) > limit:
            return bytes(body[:limit]), False
    return bytes(body), True


def _unpacker(encoding: str) -> Callable[[bytes, int], bytes]:
    name = encoding.strip().lower()
    if name in _PLAIN:
        return lambda piece, _: piece
    if name not in _PACKED:
        raise BadAnswer("the body of the answer is packed in a way that was not asked for")
    return _Unpacker(bare=name == "deflate")


class _Unpacker:
    """Unpacks piece by piece. Some servers send deflate without its header, which only the first piece shows."""

    def __init__(self, *, bare: bool) -> None:
        self._inflate = zlib.decompressobj(_GZIP_OR_ZLIB)
        self._may_be_bare = bare

    def __call__(self, piece: bytes, most: int) -> bytes:
        try:
            found = self._inflate.decompress(piece, most)
        except zlib.error:
            if not self._may_be_bare:
                raise BadAnswer("the body of the answer cannot be unpacked") from None
            self._inflate, self._may_be_bare = zlib.decompressobj(_BARE), False
            return self(piece, most)
        self._may_be_bare = self._may_be_bare and not found
        return found
