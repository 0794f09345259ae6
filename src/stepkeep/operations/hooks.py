"""Inbound webhooks of a tenant: saves and lists endpoints, and says what a delivery to one of them asks for.

It sends and starts nothing: the engine does what the decision says. Secrets are read by name where the delivery comes
in, and never stored.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from stepkeep.definition.hooks import Decision, Hook, read_hook, receive
from stepkeep.kernel.errors import InvalidInput, NotFound
from stepkeep.network.signatures import Headers, read_key
from stepkeep.operations import validate
from stepkeep.operations.access import Acting
from stepkeep.operations.aside import aside
from stepkeep.operations.instants import instant
from stepkeep.operations.settings import SettingKind, change_setting, list_kind, read_setting
from stepkeep.store.protocol import Store

ReadSecret = Callable[[str], Awaitable[str]]


async def save_hook(store: Store, tenant: str, document: Mapping[str, Any], *, acting: Acting) -> dict[str, Any]:
    """Save an endpoint; one of the same name is replaced, on record."""
    if not isinstance(document, Mapping):
        raise InvalidInput(
            "the definition of a hook is a mapping with the names hook, scheme, secrets and message or start."
        )
    hook = read_hook(document)
    content = msgspec.to_builtins(hook)
    actor = validate.key("the actor", acting["actor"])
    await change_setting(store, tenant, SettingKind.HOOK, hook.hook, lambda _: content, actor=actor)
    return {"hook": content}


async def remove_hook(store: Store, tenant: str, name: str, *, acting: Acting) -> dict[str, Any]:
    """Remove an endpoint; raises NotFound."""
    known = validate.key("the name of a hook", name)

    def remove(before: Any) -> None:
        if before is None:
            raise _unknown(known)

    actor = validate.key("the actor", acting["actor"])
    await change_setting(store, tenant, SettingKind.HOOK, known, remove, actor=actor)
    return {"removed": known}


async def list_hooks(store: Store, tenant: str) -> dict[str, Any]:
    """`{"hooks": [...]}`, by name."""
    found = await list_kind(store, tenant, SettingKind.HOOK)
    return {
        "hooks": [
            {**msgspec.json.decode(one.document), "saved_at": instant(one.saved_at), "saved_by": one.saved_by}
            for one in found
        ]
    }


async def decide_delivery(
    store: Store, tenant: str, name: str, headers: Headers, body: bytes, *, secret: ReadSecret
) -> Decision:
    """What a delivery to this endpoint asks for, by the database's clock; raises NotFound."""
    known = validate.key("the name of a hook", name)
    content = await read_setting(store, tenant, SettingKind.HOOK, known)
    if content is None:
        raise _unknown(known)
    if type(body) is not bytes:
        raise InvalidInput("the body of a delivery is the bytes that came over the line.")
    hook = msgspec.convert(content, Hook)
    keys = [_key(hook, await secret(one)) for one in hook.secrets]
    return await aside(tenant, receive, hook, keys, headers, body, now=await store.now() // 1_000_000)


def _key(hook: Hook, secret: str) -> bytes:
    return secret.encode() if hook.scheme == "github" else read_key(secret)


def _unknown(name: str) -> NotFound:
    return NotFound(f"there is no hook {name}. `stepkeep hooks list` lists what there is.")
