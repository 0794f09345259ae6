"""HTTP calls: one request per attempt, with an idempotency key, and a status that says what its failure means.

No redirects, no proxies from the environment, no response without a bound. Where the worker does not allow internal
targets, the request goes only to an address that was judged public.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from stepkeep.kernel.definition import Http
from stepkeep.kernel.outcomes import Failed
from stepkeep.kernel.plan import PlannedStep
from stepkeep.kernel.states import Category
from stepkeep.worker.classify import category_of_status, parse_retry_after
from stepkeep.worker.executor import Job, Where
from stepkeep.worker.executors.addresses import Forbidden, vetted
from stepkeep.worker.payloads import encode, storable_text

if TYPE_CHECKING:
    from httpx2 import URL, AsyncClient, Response

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
KEPT_HEADERS = ("content-type", "date", "etag", "last-modified", "location", "retry-after", "x-request-id")
QUOTED = 500

_decode = msgspec.json.Decoder().decode


class HttpPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What this worker lets HTTP steps reach. `ports` None means any; `max_response` is in bytes."""

    enabled: bool = True
    allow_internal: bool = True
    ports: tuple[int, ...] | None = None
    max_response: int = 128 * 1024


class HttpExecutor:
    """Runs `http:` steps."""

    spec = None

    def __init__(self, policy: HttpPolicy) -> None:
        self._policy = policy
        self._client: AsyncClient | None = None

    def where(self, planned: PlannedStep) -> Where:
        return Where.LOOP

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def run(self, job: Job) -> Any:
        http = job.code.render_executor(job)
        assert isinstance(http, Http)
        client = self._open()
        try:
            url, address = await self._target(http.url)
        except Forbidden as problem:
            return Failed(category=Category.GOVERNANCE, error=storable_text(str(problem)), final=True)
        except ValueError as problem:
            said = f"{http.method} {http.url!r} is no request: {problem}"
            return Failed(category=Category.VALIDATION, error=storable_text(said), final=True)
        headers = headers_of(job, http)
        body = job.code.render(job) if http.body is None else http.body
        content = None
        if body is not None and http.method.upper() not in ("GET", "HEAD"):
            content = encode(body, what="the body of the request")
            headers.setdefault("content-type", "application/json")
        extensions: dict[str, Any] = {}
        if address is not None:
            headers["host"] = url.netloc.decode("ascii")
            extensions["sni_hostname"] = url.host
            url = url.copy_with(host=address)
        async with client.stream(
            http.method.upper(), url, headers=headers, content=content, extensions=extensions
        ) as response:
            return await self._result(http, response)

    def _open(self) -> AsyncClient:
        if self._client is None:
            import httpx2

            # The attempt's own timeout bounds the whole; connecting is bounded sooner, so that a dead host shows early.
            timeout = httpx2.Timeout(None, connect=10.0)
            self._client = httpx2.AsyncClient(timeout=timeout, trust_env=False, follow_redirects=False)
        return self._client

    async def _target(self, text: str) -> tuple[URL, str | None]:
        import httpx2

        try:
            url = httpx2.URL(text)
        except httpx2.InvalidURL as problem:
            raise ValueError(str(problem)) from None
        if url.scheme not in ("http", "https") or not url.host:
            raise ValueError("it needs a URL that starts with http:// or https://")
        port = url.port or (443 if url.scheme == "https" else 80)
        if self._policy.ports is not None and port not in self._policy.ports:
            raise Forbidden(f"port {port} is not among those this worker's HTTP steps may reach")
        return url, None if self._policy.allow_internal else await vetted(url.host, port)

    async def _result(self, http: Http, response: Response) -> Any:
        status = response.status_code
        body, complete = await self._read(response)
        if 200 <= status < 300:
            if not complete:
                said = f"{http.method} {http.url}: the response is larger than {self._policy.max_response} bytes"
                return Failed(category=Category.VALIDATION, error=storable_text(said), final=True)
            kept = {name: response.headers[name] for name in KEPT_HEADERS if name in response.headers}
            return {"status": status, "headers": kept, "body": _body(response, body)}
        said = f"{http.method} {http.url} answered {status}: {_text(body[:QUOTED])}"
        if 300 <= status < 400:
            said = f"{http.method} {http.url} answered {status}; redirects are not followed"
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


def headers_of(job: Job, http: Http) -> dict[str, str]:
    """The step's own headers over what every attempt carries."""
    context = job.make_context()
    headers = {
        "accept": "application/json, */*;q=0.5",
        "idempotency-key": context.idempotency_key,
        "stepkeep-run-id": context.run_id,
        "stepkeep-step": context.step,
        "stepkeep-attempt": str(context.attempt),
    }
    if context.completion_token is not None:
        headers["stepkeep-completion-token"] = context.completion_token
    headers.update({name.lower(): value for name, value in http.headers.items()})
    return headers


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
