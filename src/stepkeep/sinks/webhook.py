"""The sink `webhook`: sends each event as a signed HTTP request, as Standard Webhooks describes it.

The request goes through the guarded client: no internal address unless the worker allows it, no redirects, an answer
bounded in size and time. A status from 200 to 299 is the acknowledgement. Every secret of the endpoint signs, so that
one is replaced without a gap. Secrets are named, and read for each request.
"""

from __future__ import annotations

import hashlib
import hmac
from email.utils import parsedate_to_datetime

import msgspec

from stepkeep.kernel.errors import InvalidInput
from stepkeep.network.client import GuardedClient, HttpAnswer
from stepkeep.network.failures import CannotSend, RequestFailed
from stepkeep.network.guard import Guard
from stepkeep.network.signatures import read_key, sign
from stepkeep.network.urls import parse
from stepkeep.sinks.event import OutgoingEvent, time_text
from stepkeep.sinks.interface import SEND_SECONDS, Sink, SinkContext, SinkFailed, SinkKind

MAX_ANSWER = 16 * 1024
MAX_SECONDS = SEND_SECONDS - 1
MOST_SECRETS = 5
GONE = 410
"""The receiver wants no more: Standard Webhooks."""
TYPE = "application/cloudevents+json; charset=utf-8"


class WebhookOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`secrets` are names of secrets with the value `whsec_…`; the first one is the newest. `seconds` is the longest
    time of one request."""

    url: str
    secrets: tuple[str, ...]
    seconds: float = 10.0


class WebhookSink:
    """Posts to one address."""

    def __init__(self, options: WebhookOptions, context: SinkContext) -> None:
        self._options, self._context = options, context
        self._client = GuardedClient(Guard(context.reach), max_answer=MAX_ANSWER, seconds=options.seconds)

    async def send(self, event: OutgoingEvent) -> None:
        keys = [read_key(await self._context.secret(name)) for name in self._options.secrets]
        body = event.body()
        signed = sign(keys, id=event.id, timestamp=int(self._context.now()), body=body)
        await post(self._client, self._options.url, {"content-type": TYPE, **traced(event), **signed}, body)

    async def close(self) -> None:
        await self._client.aclose()


def traced(event: OutgoingEvent) -> dict[str, str]:
    """The header that carries the trace of the run on, if it has one."""
    trace = event.extensions.get("traceparent")
    return {} if trace is None else {"traceparent": trace}


async def post(client: GuardedClient, url: str, headers: dict[str, str], body: bytes) -> None:
    """Send one request; raises SinkFailed unless the answer acknowledges it."""
    try:
        answer = await client.send("POST", url, headers=headers, content=body)
    except RequestFailed as problem:
        raise SinkFailed(str(problem), is_final=isinstance(problem, CannotSend)) from None
    if not 200 <= answer.status < 300:
        raise SinkFailed(
            f"the receiver answered {answer.status}", retry_after=retry_after(answer), is_final=answer.status == GONE
        )


def retry_after(answer: HttpAnswer) -> float | None:
    """The pause that the receiver asks for with 429 or 503, as seconds or as a date."""
    said = answer.headers.get("retry-after", "").strip()
    if answer.status not in (429, 503) or not said:
        return None
    if said.isascii() and said.isdigit():
        return float(said[:9])
    try:
        sent = parsedate_to_datetime(answer.headers.get("date", ""))
        return max(0.0, (parsedate_to_datetime(said) - sent).total_seconds())
    except (ValueError, TypeError):
        return None


def check_url(url: str) -> None:
    """Refuse an address that no request could go to. Whether it may be reached is decided when it is."""
    try:
        place = parse(url)
    except RequestFailed as problem:
        raise InvalidInput(f"the url of a webhook: {problem}") from None
    if place.scheme not in ("http", "https"):
        raise InvalidInput("the url of a webhook begins with https:// or http://")


def _check(options: WebhookOptions) -> None:
    check_url(options.url)
    if not 1 <= len(options.secrets) <= MOST_SECRETS or len(set(options.secrets)) != len(options.secrets):
        raise InvalidInput(f"a webhook has 1 to {MOST_SECRETS} different secrets, by name: secrets=HOOK_SECRET")
    for name in options.secrets:
        if not name.isidentifier() or not name.isascii():
            raise InvalidInput("`secrets` has names of secrets, with letters, digits and _, and never their values.")
    if not 0 < options.seconds <= MAX_SECONDS:
        raise InvalidInput(f"the seconds of a webhook are more than 0 and at most {MAX_SECONDS:g}.")


async def _open(options: WebhookOptions, context: SinkContext) -> Sink:
    return WebhookSink(options, context)


WEBHOOK = SinkKind(
    name="webhook",
    summary="signed HTTP requests (Standard Webhooks)",
    options=WebhookOptions,
    open=_open,
    check=_check,
    secrets=lambda options: options.secrets,
)


SECONDS = 5.0
STATUS = {"run.succeeded": "SUCCEEDED", "run.cancelled": "CANCELED"}
"""The words of seed 001; every other end is FAILED."""


class RunWebhookOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`secret` is the name of the secret that signs; without one nothing is signed."""

    url: str
    secret: str | None = None


class RunWebhookSink:
    """Posts the end of one run."""

    def __init__(self, options: RunWebhookOptions, context: SinkContext) -> None:
        self._options, self._context = options, context

    async def send(self, event: OutgoingEvent) -> None:
        status = STATUS.get(event.type, "FAILED")
        body = msgspec.json.encode({"run_id": event.run_id, "status": status, "finished_at": time_text(event.at)})
        headers = {"content-type": "application/json", "x-event-id": event.id, **traced(event)}
        if self._options.secret is not None:
            key = (await self._context.secret(self._options.secret)).encode()
            headers["x-signature"] = hmac.new(key, body, hashlib.sha256).hexdigest()
        client = GuardedClient(Guard(self._context.reach), max_answer=MAX_ANSWER, seconds=SECONDS)
        try:
            await post(client, self._options.url, headers, body)
        finally:
            await client.aclose()

    async def close(self) -> None:
        """Nothing is open between two requests."""


async def _open_run_webhook(options: RunWebhookOptions, context: SinkContext) -> Sink:
    return RunWebhookSink(options, context)


RUN_WEBHOOK = SinkKind(
    name="run_webhook",
    summary="the end of one run (seed 001)",
    options=RunWebhookOptions,
    open=_open_run_webhook,
    check=lambda options: check_url(options.url),
    secrets=lambda options: () if options.secret is None else (options.secret,),
)
