"""Makes HTTP calls: one request per attempt, with an idempotency key; the status determines the category of a failure.

The client of `network` sends them: only to addresses that the worker's policy or the tenant's allow list allows,
without redirects, proxies or cookies, and with a bounded answer. No error quotes a header value, a query or a password.
"""

from __future__ import annotations

import base64
from typing import Any

import msgspec

from stepkeep.definition.native.validators import complaints
from stepkeep.edges.redaction import public_url, secrets_of, secrets_of_url, without
from stepkeep.kernel.definition import Http
from stepkeep.kernel.machine.outcomes import Failed
from stepkeep.kernel.machine.states import Category, ErrorClass
from stepkeep.kernel.plan import PlannedStep
from stepkeep.network import failures, urls
from stepkeep.network.allowing import AllowList
from stepkeep.network.client import MAX_ANSWER, GuardedClient, HttpAnswer
from stepkeep.network.guard import Guard, Reach
from stepkeep.operations.pipeline.payloads import MAX_PAYLOAD_BYTES
from stepkeep.worker.attempts.classify import category_of_status, class_of_status, parse_retry_after
from stepkeep.worker.attempts.executor import Job, PoolKind
from stepkeep.worker.attempts.payloads import encode, storable_text

KEPT_HEADERS = ("content-type", "date", "etag", "last-modified", "location", "retry-after", "x-request-id")
QUOTED = 500
SEARCHED = 8 * 1024
TOKEN_HEADER = "stepkeep-completion-token"  # noqa: S105 - a header's name
HOW_TO_ALLOW = "An operator can allow it: stepkeep network allow, or stepkeep worker --http-allow."

_decode = msgspec.json.Decoder().decode

# One row per failure of the client: its category, and whether another attempt is useless.
_CATEGORIES: tuple[tuple[type[failures.RequestFailed], Category, bool], ...] = (
    (failures.AddressForbidden, Category.GOVERNANCE, True),
    (failures.CannotSend, Category.VALIDATION, True),
    (failures.Unresolved, Category.TRANSIENT, False),
    (failures.NoConnection, Category.TRANSIENT, False),
    (failures.ConnectionBroke, Category.TRANSIENT, False),
    (failures.TooSlow, Category.TIMEOUT, False),
    (failures.BadAnswer, Category.EXTERNAL, False),
    (failures.RequestFailed, Category.UNKNOWN, False),
)


class HttpPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What this worker lets HTTP steps reach. By default: every public address, on the ports 80 and 443.

    `allow` names further hosts, addresses and networks ("localhost", "10.0.0.0/8", "search.internal:9200");
    `allow_internal` opens everything. `ports` None means every port of what is allowed, and 80 and 443 of the rest;
    given ports are the only ones. `max_response` is in bytes and `max_seconds` is for one request;
    `enabled` False leaves HTTP steps to other workers.
    """

    enabled: bool = True
    allow_internal: bool = False
    allow: tuple[str, ...] = ()
    ports: tuple[int, ...] | None = None
    max_response: int = MAX_ANSWER
    max_seconds: float = 3600.0

    def __post_init__(self) -> None:
        # Refuses invalid entries before anything is started.
        AllowList.of(self.allow)

    def reach(self) -> Reach:
        """The same as a value of the guard."""
        return Reach(
            allow=AllowList.of(self.allow), allow_internal=self.allow_internal, ports=self.ports, hint=HOW_TO_ALLOW
        )


class HttpExecutor:
    """Runs `http:` steps."""

    spec = None

    def __init__(self, policy: HttpPolicy) -> None:
        self._max_response = policy.max_response
        self._client = GuardedClient(Guard(policy.reach()), max_answer=policy.max_response, seconds=policy.max_seconds)

    def pool(self, planned: PlannedStep) -> PoolKind:
        return PoolKind.LOOP

    async def aclose(self) -> None:
        await self._client.aclose()

    def forget_loop(self) -> None:
        """Its connections belong to an event loop that is gone; the next request opens new ones."""
        self._client.forget_loop()

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
            url, authorization = without_credentials(http.url)
            answer = await self._client.send(
                http.method, url, headers={**authorization, **headers}, content=content, also=job.loaded.allowed
            )
        except failures.RequestFailed as problem:
            return _failure_of(shown, problem)
        return self._result(http, shown, headers, answer)

    def _result(self, http: Http, shown: str, headers: dict[str, str], answer: HttpAnswer) -> Any:
        status = answer.status
        if 200 <= status < 300:
            if not answer.complete:
                said = f"{shown}: the response is larger than {self._max_response} bytes"
                return _failed(Category.VALIDATION, said, final=True)
            kept = {name: answer.headers[name] for name in KEPT_HEADERS if name in answer.headers}
            return {"status": status, "headers": kept, "body": _body(answer)}
        if 300 <= status < 400:
            said = f"{shown} answered {status}; redirects are not followed"
        else:
            # Servers may quote the request that they refuse.
            secrets = (*secrets_of(_step_headers(http, headers)), *secrets_of_url(http.url))
            said = f"{shown} answered {status}: {without(_text(answer.body[:SEARCHED]), secrets)[:QUOTED]}"
        category = category_of_status(status)
        asked = answer.headers.get("retry-after") if category is Category.TRANSIENT else None
        return Failed(
            category=category,
            error=storable_text(said),
            delay=parse_retry_after(asked),
            error_class=class_of_status(status),
        )


def check_headers(http: Http) -> None:
    """Refuse headers that cannot be sent, and name them; raises CannotSend."""
    wrong = [f"the header {name} {said}" for name, said in complaints(http.headers, rendered=True)]
    if wrong:
        raise failures.CannotSend("; ".join(wrong))


def headers_of(job: Job, http: Http, *, has_body: bool = False) -> dict[str, str]:
    """The step's own headers, added to those of every attempt."""
    from stepkeep import __version__

    context = job.make_context()
    headers = {
        "accept": "application/json, */*;q=0.5",
        "user-agent": f"stepkeep/{__version__}",
        "idempotency-key": context.idempotency_key,
        "stepkeep-run-id": context.run_id,
        "stepkeep-step": context.step,
        "stepkeep-attempt": str(context.attempt),
    }
    if has_body:
        headers["content-type"] = "application/json"
    if context.trace is not None:
        headers["traceparent"] = context.trace
    if context.completion_token is not None:
        headers[TOKEN_HEADER] = context.completion_token
    headers.update({name.lower(): value for name, value in http.headers.items()})
    return headers


def without_credentials(text: str) -> tuple[str, dict[str, str]]:
    """A URL without its name and password, and the header that has them instead: the client refuses them in a URL.

    A header of the step takes precedence.
    """
    url = urls.read(text)
    if not url.userinfo:
        return text, {}
    pair = base64.b64encode(f"{url.username}:{url.password}".encode()).decode("ascii")
    return str(url.copy_with(userinfo=b"")), {"authorization": f"Basic {pair}"}


def _failure_of(shown: str, problem: failures.RequestFailed) -> Failed:
    category, final = next((category, final) for kind, category, final in _CATEGORIES if isinstance(problem, kind))
    by_transport = category in (Category.TRANSIENT, Category.EXTERNAL)
    cannot = " cannot be sent" if isinstance(problem, failures.CannotSend) else ""
    said = storable_text(f"{shown}{cannot}: {problem}")
    error_class = ErrorClass.TRANSPORT if by_transport else None
    return Failed(category=category, error=said, final=final, error_class=error_class)


def _failed(category: Category, said: str, *, final: bool = False) -> Failed:
    return Failed(category=category, error=storable_text(said), final=final)


def _step_headers(http: Http, headers: dict[str, str]) -> dict[str, str]:
    token = headers.get(TOKEN_HEADER)
    return http.headers if token is None else {**http.headers, TOKEN_HEADER: token}


def _body(answer: HttpAnswer) -> Any:
    if not answer.body:
        return None
    if "json" in answer.headers.get("content-type", ""):
        try:
            return _decode(answer.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return _text(answer.body)
    return _text(answer.body)


def _text(body: bytes) -> str:
    return body.decode("utf-8", "replace").replace("\x00", "\ufffd")
