"""The webhook of a single run, as seed 001 has it: `{run_id, status, finished_at}`, signed in `X-Signature`.

The relay opens it for a cursor whose run was started with an address of its own; it is no kind that can be added. The
signature is the HMAC-SHA256 of the body in hexadecimal. Requests go through the guarded client, as for `webhook`.
"""

from __future__ import annotations

import hashlib
import hmac

import msgspec

from stepkeep.network.client import Client
from stepkeep.network.guard import Guard
from stepkeep.sinks.event import OutgoingEvent, time_text
from stepkeep.sinks.interface import Sink, SinkContext, SinkKind
from stepkeep.sinks.webhook import MAX_ANSWER, check_url, post, traced

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
        client = Client(Guard(self._context.reach), max_answer=MAX_ANSWER, seconds=SECONDS)
        try:
            await post(client, self._options.url, headers, body)
        finally:
            await client.aclose()

    async def close(self) -> None:
        """Nothing is open between two requests."""


async def _open(options: RunWebhookOptions, context: SinkContext) -> Sink:
    return RunWebhookSink(options, context)


KIND = SinkKind(
    name="run_webhook",
    summary="the end of one run (seed 001)",
    options=RunWebhookOptions,
    open=_open,
    check=lambda options: check_url(options.url),
    secrets=lambda options: () if options.secret is None else (options.secret,),
)
