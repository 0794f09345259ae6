"""The webhook of a single run (seed 001): checks the address of a start, and makes the cursor that delivers it.

The template of the `run` format may name an address, and a start may name another. Sending is the relay's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from stepkeep.definition.secrets import is_secret_name
from stepkeep.errors import InvalidInput
from stepkeep.kernel.rows import Run
from stepkeep.network.failures import RequestFailed
from stepkeep.network.urls import parse
from stepkeep.safe_text import plain_text
from stepkeep.store.deliveries import RUN_WEBHOOK, WHOLE, Takes
from stepkeep.store.delivery_rows import Delivery

if TYPE_CHECKING:
    from stepkeep.operations.start import StartRequest


def check_webhook(url: object, secret: object) -> None:
    """Refuse an address that no request could go to, and a secret that is no name."""
    if url is None and secret is not None:
        raise InvalidInput("webhook_secret signs what goes to webhook_url: give that too.")
    if url is not None:
        text = plain_text(url)
        if text is None:
            raise InvalidInput("webhook_url is a text, as in https://shop.example/runs.")
        try:
            parse(text)
        except RequestFailed as problem:
            raise InvalidInput(f"webhook_url: {problem}") from None
    if secret is not None and not is_secret_name(plain_text(secret)):
        raise InvalidInput("webhook_secret is the name of a secret of the workers, with letters, digits and _.")


def run_webhook(request: StartRequest, run: Run, now: int) -> tuple[Delivery, ...]:
    """The cursor of a run with an address of its own; none for the others."""
    about: dict[str, Any] = request.plan.definition.about
    if request.webhook_url is not None:
        url, secret = request.webhook_url, request.webhook_secret
    elif request.plan.definition.dialect == "run" and "webhook_url" in about:
        url, secret = about["webhook_url"], about.get("webhook_secret")
    else:
        return ()
    target = {"url": url} if secret is None else {"url": url, "secret": secret}
    has_ended = run.ended_at is not None
    return (
        Delivery(
            tenant=run.tenant,
            run_id=run.id,
            sink=RUN_WEBHOOK,
            takes=int(Takes.ENDINGS),
            last=run.seq if has_ended else 0,
            sent=0,
            sent_number=WHOLE,
            ready_at=now if has_ended else None,
            target=msgspec.json.encode(target),
        ),
    )
