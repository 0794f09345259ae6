"""The webhook of a single run (seed 001): checks the address of a start, and makes the cursor that delivers it.

The template of the `run` format may name an address, and a start may name another. A start names only secrets that an
administrator released for signing: otherwise its caller could have anything signed by any secret of the workers. The
list is a setting of the tenant. Sending is the relay's.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from stepkeep.definition.expressions.scope import is_secret_name
from stepkeep.edges.safe_text import plain_text
from stepkeep.kernel.errors import InvalidInput, NotAllowed
from stepkeep.kernel.machine.rows import Run
from stepkeep.kernel.people.authority import Caller
from stepkeep.network.failures import RequestFailed
from stepkeep.network.urls import parse
from stepkeep.operations import validate
from stepkeep.operations.access import Access, Scope
from stepkeep.operations.answers import Answer
from stepkeep.operations.settings import SettingKind, change_setting, read_setting
from stepkeep.store.deliveries import RUN_WEBHOOK, WHOLE, Takes
from stepkeep.store.protocol import Store
from stepkeep.store.rows import Delivery

if TYPE_CHECKING:
    from stepkeep.operations.pipeline.start import StartRequest


NAME = "secrets"
MOST_SECRETS = 100
NO_NAME = "is the name of a secret of the workers, with letters, digits and _."


class TenantSigning(Answer, kw_only=True):
    """The secrets that starts may name to sign the webhooks of their runs."""

    tenant: str
    secrets: list[str]


async def release_secrets(store: Store, secrets: Iterable[str], *, caller: Caller) -> TenantSigning:
    """Let starts of the tenant name these secrets, and no others, to sign the webhooks of their runs."""
    named = sorted(set(validate.names("secrets", secrets)))
    if any(not is_secret_name(one) for one in named):
        raise InvalidInput(f"each of secrets {NO_NAME}")
    if len(named) > MOST_SECRETS:
        raise InvalidInput(f"a tenant has at most {MOST_SECRETS} secrets for signing.")
    await change_setting(store, SettingKind.SIGNING, NAME, lambda before: named or None, caller=caller)
    return TenantSigning(tenant=caller.tenant, secrets=named)


async def released_secrets(store: Store, tenant: str) -> TenantSigning:
    """The secrets that starts of the tenant may name."""
    found = await read_setting(store, tenant, SettingKind.SIGNING, NAME)
    return TenantSigning(tenant=tenant, secrets=found or [])


async def require_released(store: Store, access: Access, secret: str | None) -> None:
    """Refuse a start that names a secret which was not released, unless its caller could release it."""
    if secret is None or access.may(Scope.ADMIN) or not is_secret_name(plain_text(secret)):
        return
    if secret not in (await released_secrets(store, access.tenant)).secrets:
        said = f"webhook_secret: {secret} is not released for signing in tenant {access.tenant}."
        raise NotAllowed(
            f"{said} An administrator releases it: stepkeep tenants signing {access.tenant} --secret {secret}.",
            "secret_not_released",
            access.actor,
        )


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
        raise InvalidInput(f"webhook_secret {NO_NAME}")


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
