"""Makes HTTP calls: one request per attempt, with an idempotency key; the status determines the category of a failure.

No redirects, proxies or cookies, no authentication except what the step names, no unbounded response, and a new
connection for each request: nothing passes from one attempt to another. The request goes only to an address that the
worker's policy allows. No error quotes a header value, a query, a password, or the text of the HTTP library.
"""

from __future__ import annotations

import base64
import os
import ssl
from typing import TYPE_CHECKING, Any

import msgspec

from stepkeep.definition.http_headers import complaints
from stepkeep.kernel.definition import Http
from stepkeep.kernel.outcomes import Failed
from stepkeep.kernel.plan import PlannedStep
from stepkeep.kernel.states import Category
from stepkeep.operations.payloads import MAX_PAYLOAD_BYTES
from stepkeep.redaction import public_url, secrets_of, secrets_of_url, without
from stepkeep.safe_text import type_name
from stepkeep.worker.classify import category_of_status, parse_retry_after
from stepkeep.worker.executor import Job, PoolKind
from stepkeep.worker.executors.addresses import Forbidden, Guard, Unresolved
from stepkeep.worker.payloads import encode, storable_text

if TYPE_CHECKING:
    from httpx2 import URL, AsyncHTTPTransport, Request, Response

KEPT_HEADERS = ("content-type", "date", "etag", "last-modified", "location", "retry-after", "x-request-id")
QUOTED = 500
SEARCHED = 8 * 1024
CONNECT_SECONDS = 10.0
TOKEN_HEADER = "stepkeep-completion-token"  # noqa: S105 - a header's name

_decode = msgspec.json.Decoder().decode


class HttpPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What this worker lets HTTP steps reach. By default: every public address, on every port.

    `allow` names further hosts, addresses and networks ("localhost", "10.0.0.0/8"); `allow_internal` opens everything.
    `ports` None means any; `max_response` is in bytes; `enabled` False leaves HTTP steps to other workers.
    """

    enabled: bool = True
    allow_internal: bool = False
    allow: tuple[str, ...] = ()
    ports: tuple[int, ...] | None = None
    max_response: int = 128 * 1024

    def __post_init__(self) -> None:
        # Refuses invalid entries before anything is started.
        Guard(allow_internal=self.allow_internal, allow=self.allow)


class Unsendable(ValueError):
    """A request that cannot be made: its URL or one of its headers is wrong."""


class HttpExecutor:
    """Runs `http:` steps."""

    spec = None

    def __init__(self, policy: HttpPolicy) -> None:
        self._policy = policy
        self._guard = Guard(allow_internal=policy.allow_internal, allow=policy.allow)
        self._transport: AsyncHTTPTransport | None = None

    def pool(self, planned: PlannedStep) -> PoolKind:
        return PoolKind.LOOP

    async def aclose(self) -> None:
        self._guard.close()
        if self._transport is not None:
            await self._transport.aclose()
            self._transport = None

    def forget_loop(self) -> None:
        """Its connections belong to an event loop that is gone; the next request opens new ones."""
        self._transport = None

    async def run(self, job: Job) -> Any:
        http = job.prepared.render_executor(job)
        assert isinstance(http, Http)
        body = job.prepared.render(job) if http.body is None else http.body
        content = None
        if body is not None and http.method.upper() not in ("GET", "HEAD"):
            content = encode(body, what="the body of the request", limit=MAX_PAYLOAD_BYTES)
        headers = headers_of(job, http, has_body=content is not None)
        shown = f"{http.method} {public_url(http.url)}"
        try:
            check_headers(http)
            url = self._url(http.url)
            addresses = await self._guard.addresses(url.raw_host.decode("ascii"), _port(url))
            return await self._exchange(http, shown, url, addresses, headers, content)
        except Forbidden as problem:
            return _failed(Category.GOVERNANCE, f"{shown}: {problem}", final=True)
        except Unsendable as problem:
            return _failed(Category.VALIDATION, f"{shown} cannot be sent: {problem}", final=True)
        except Unresolved as problem:
            return _failed(Category.TRANSIENT, f"{shown}: {problem}")
        except Exception as problem:  # noqa: BLE001 - the library's words may quote a secret; none of them are passed on
            return failure_of_exchange(shown, problem)

    def _url(self, text: str) -> URL:
        import httpx2

        try:
            url = httpx2.URL(text)
            port = _port(url)
        except (httpx2.InvalidURL, ValueError):
            raise Unsendable("its URL is malformed") from None
        if url.scheme not in ("http", "https") or not url.raw_host:
            raise Unsendable("it needs a URL that starts with http:// or https://")
        if not 0 < port < 65536:
            raise Unsendable(f"there is no port {port}")
        if self._policy.ports is not None and port not in self._policy.ports:
            raise Forbidden(f"port {port} is not among those this worker's HTTP steps may reach")
        return url

    async def _exchange(
        self, http: Http, shown: str, url: URL, addresses: list[str], headers: dict[str, str], content: bytes | None
    ) -> Any:
        import httpx2

        headers = {"host": url.netloc.decode("ascii"), **_authorization(url), **headers}
        extensions = {
            # The attempt's timeout limits the whole; connecting has a shorter limit, so that a dead host is found
            # early.
            "timeout": {"connect": CONNECT_SECONDS, "read": None, "write": None, "pool": None},
            "sni_hostname": url.raw_host.decode("ascii").rstrip("."),
        }
        requests = [
            httpx2.Request(
                http.method.upper(),
                url.copy_with(host=address),
                headers=headers,
                content=content,
                extensions=extensions,
            )
            for address in addresses
        ]
        response = await self._connected(requests)
        try:
            return await self._result(http, shown, headers, response)
        finally:
            await response.aclose()

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
            self._transport = httpx2.AsyncHTTPTransport(trust_env=False, limits=limits)
        return self._transport

    async def _result(self, http: Http, shown: str, headers: dict[str, str], response: Response) -> Any:
        status = response.status_code
        body, complete = await self._read(response)
        if 200 <= status < 300:
            if not complete:
                said = f"{shown}: the response is larger than {self._policy.max_response} bytes"
                return _failed(Category.VALIDATION, said, final=True)
            kept = {name: response.headers[name] for name in KEPT_HEADERS if name in response.headers}
            return {"status": status, "headers": kept, "body": _body(response, body)}
        if 300 <= status < 400:
            said = f"{shown} answered {status}; redirects are not followed"
        else:
            # Servers may quote the request that they refuse.
            secrets = (*secrets_of(_step_headers(http, headers)), *secrets_of_url(http.url))
            said = f"{shown} answered {status}: {without(_text(body[:SEARCHED]), secrets)[:QUOTED]}"
        category = category_of_status(status)
        asked = response.headers.get("retry-after") if category is Category.TRANSIENT else None
        return Failed(category=category, error=storable_text(said), delay=parse_retry_after(asked))

    async def _read(self, response: Response) -> tuple[bytes, bool]:
        body = bytearray()
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > self._policy.max_response:
                return bytes(body[: self._policy.max_response]), False
        return bytes(body), True


def check_headers(http: Http) -> None:
    """Refuse headers that cannot be sent, and name them; raises Unsendable."""
    wrong = [f"the header {name} {said}" for name, said in complaints(http.headers, rendered=True)]
    if wrong:
        raise Unsendable("; ".join(wrong))


def headers_of(job: Job, http: Http, *, has_body: bool = False) -> dict[str, str]:
    """The step's own headers, added to those of every attempt."""
    from stepkeep import __version__

    context = job.make_context()
    headers = {
        "accept": "application/json, */*;q=0.5",
        "accept-encoding": "gzip, deflate",
        "user-agent": f"stepkeep/{__version__}",
        "connection": "close",
        "idempotency-key": context.idempotency_key,
        "stepkeep-run-id": context.run_id,
        "stepkeep-step": context.step,
        "stepkeep-attempt": str(context.attempt),
    }
    if has_body:
        headers["content-type"] = "application/json"
    if context.completion_token is not None:
        headers[TOKEN_HEADER] = context.completion_token
    headers.update({name.lower(): value for name, value in http.headers.items()})
    return headers


def failure_of_exchange(shown: str, problem: Exception) -> Failed:
    """The failure for an exception of the HTTP library, in our own words."""
    import httpx2

    table: tuple[tuple[type[Exception] | tuple[type[Exception], ...], Category, str], ...] = (
        (httpx2.ConnectTimeout, Category.TRANSIENT, f"no connection within {CONNECT_SECONDS:g} s"),
        (httpx2.ConnectError, Category.TRANSIENT, "no connection"),
        (
            (httpx2.LocalProtocolError, httpx2.UnsupportedProtocol, httpx2.InvalidURL),
            Category.VALIDATION,
            "the request breaks the rules of HTTP",
        ),
        (httpx2.RemoteProtocolError, Category.TRANSIENT, "the answer breaks the rules of HTTP, or ended too early"),
        (httpx2.DecodingError, Category.EXTERNAL, "the body of the answer cannot be unpacked"),
        ((httpx2.TransportError, OSError), Category.TRANSIENT, "the connection broke"),
    )
    for kinds, category, words in table:
        if isinstance(problem, kinds):
            final = category is Category.VALIDATION
            return _failed(category, f"{shown}: {words}{_reason(problem)}", final=final)
    return _failed(Category.UNKNOWN, f"{shown}: the request failed with {type_name(problem)}")


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


def _failed(category: Category, said: str, *, final: bool = False) -> Failed:
    return Failed(category=category, error=storable_text(said), final=final)


def _step_headers(http: Http, headers: dict[str, str]) -> dict[str, str]:
    token = headers.get(TOKEN_HEADER)
    return http.headers if token is None else {**http.headers, TOKEN_HEADER: token}


def _port(url: URL) -> int:
    return url.port if url.port is not None else (443 if url.scheme == "https" else 80)


def _authorization(url: URL) -> dict[str, str]:
    """Basic authentication from a URL with a name and a password; a header of the step takes precedence."""
    if not url.userinfo:
        return {}
    pair = base64.b64encode(f"{url.username}:{url.password}".encode()).decode("ascii")
    return {"authorization": f"Basic {pair}"}


def _body(response: Response, body: bytes) -> Any:
    if not body:
        return None
    if "json" in response.headers.get("content-type", ""):
        try:
            return _decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return _text(body)
    return _text(body)


def _text(body: bytes) -> str:
    return body.decode("utf-8", "replace").replace("\x00", "\ufffd")
