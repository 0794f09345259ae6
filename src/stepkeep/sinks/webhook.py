"""The sink `webhook`: sends each event as a signed HTTP request, as Standard Webhooks describes it.

The request goes through the guarded client: no internal address unless the worker allows it, no redirects, an answer
bounded in size and time. A status from 200 to 299 is the acknowledgement. Every secret of the endpoint signs, so that
one is replaced without a gap. Secrets are named, and read for each request.
"""

from __future__ import annotations

from email.utils import parsedate_to_datetime

import msgspec

from stepkeep.kernel.errors import InvalidInput
from stepkeep.network.client import Answer, Client
from stepkeep.network.failures import CannotSend, RequestFailed
from stepkeep.network.guard import Guard
from stepkeep.network.signatures import read_key, sign
from stepkeep.network.urls import parse
from stepkeep.sinks.event import OutgoingEvent
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
        self._client = Client(Guard(context.reach), max_answer=MAX_ANSWER, seconds=options.seconds)

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


async def post(client: Client, url: str, headers: dict[str, str], body: bytes) -> None:
    """Send one request; raises SinkFailed unless the answer acknowledges it."""
    try:
        answer = await client.send("POST", url, headers=headers, content=body)
    except RequestFailed as problem:
        raise SinkFailed(str(problem), is_final=isinstance(problem, CannotSend)) from None
    if not 200 <= answer.status < 300:
        raise SinkFailed(
            f"the receiver answered {answer.status}", retry_after=retry_after(answer), is_final=answer.status == GONE
        )


def retry_after(answer: Answer) -> float | None:
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


KIND = SinkKind(
    name="webhook",
    summary="signed HTTP requests (Standard Webhooks)",
    options=WebhookOptions,
    open=_open,
    check=_check,
    secrets=lambda options: options.secrets,
)
