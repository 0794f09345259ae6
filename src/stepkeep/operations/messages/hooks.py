"""Inbound webhooks of a tenant: saves and lists endpoints, and says what a delivery to one of them asks for.

It sends and starts nothing: the engine does what the decision says. Secrets are read by name where the delivery comes
in, and never stored.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from stepkeep.definition.native.hooks import Decision, Hook, read_hook, receive
from stepkeep.kernel.errors import InvalidInput, NotFound
from stepkeep.kernel.people.authority import Caller
from stepkeep.network.signatures import Headers, read_key
from stepkeep.operations import validate
from stepkeep.operations.answers import Answer, says
from stepkeep.operations.aside import aside
from stepkeep.operations.instants import instant
from stepkeep.operations.settings import SettingKind, change_setting, list_kind, read_setting
from stepkeep.store.protocol import Store

ReadSecret = Callable[[str], Awaitable[str]]
Result = Literal["sent", "started", "ignored", "refused", "would send", "would start"]


class HookView(Answer, kw_only=True):
    """An endpoint. It has `message` or `start`, as they were written."""

    hook: str
    scheme: Literal["standard", "github"]
    secrets: Annotated[list[str], says("Names, newest first: all of them verify.")]
    message: dict[str, Any] | UnsetType = UNSET
    start: dict[str, Any] | UnsetType = UNSET
    when: str | UnsetType = UNSET
    saved_at: str | UnsetType = UNSET
    saved_by: str | UnsetType = UNSET


class SavedHook(Answer, kw_only=True):
    """A hook that was saved."""

    hook: HookView


class HookList(Answer, kw_only=True):
    """Hooks by name."""

    hooks: list[HookView]
    next: str | UnsetType | None = UNSET


class RemovedHook(Answer, kw_only=True):
    """A hook that was removed."""

    removed: str


class Delivered(Answer, kw_only=True):
    """What became of a delivery, or would: why it was refused, the message, or the run."""

    result: Result
    hook: str
    id: Annotated[str | UnsetType, says("The same for the same delivery.")] = UNSET
    code: str | UnsetType = UNSET
    message: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    workflow: str | UnsetType = UNSET
    key: str | UnsetType = UNSET
    payload: Any = UNSET
    start: str | UnsetType | None = UNSET
    input: Any = UNSET
    business_key: str | UnsetType | None = UNSET
    run_id: str | UnsetType | None = UNSET
    created: bool | UnsetType = UNSET
    consumed_by: int | UnsetType | None = UNSET
    kept_until: str | UnsetType | None = UNSET
    started: bool | UnsetType = UNSET
    repeated: bool | UnsetType = UNSET
    dropped: bool | UnsetType = UNSET


async def save_hook(store: Store, document: Mapping[str, Any], *, caller: Caller) -> SavedHook:
    """Save an endpoint; one of the same name is replaced, on record."""
    if not isinstance(document, Mapping):
        raise InvalidInput(
            "the definition of a hook is a mapping with the names hook, scheme, secrets and message or start."
        )
    hook = read_hook(document)
    content = msgspec.to_builtins(hook)
    await change_setting(store, SettingKind.HOOK, hook.hook, lambda _: content, caller=caller)
    return SavedHook(hook=msgspec.convert(content, HookView))


async def remove_hook(store: Store, name: str, *, caller: Caller) -> RemovedHook:
    """Remove an endpoint; raises NotFound."""
    known = validate.key("the name of a hook", name)

    def remove(before: Any) -> None:
        if before is None:
            raise _unknown(known)

    await change_setting(store, SettingKind.HOOK, known, remove, caller=caller)
    return RemovedHook(removed=known)


async def list_hooks(store: Store, tenant: str) -> HookList:
    """The endpoints, by name."""
    found = [
        HookView(**msgspec.json.decode(one.document), saved_at=instant(one.saved_at), saved_by=one.saved_by)
        for one in await list_kind(store, tenant, SettingKind.HOOK)
    ]
    return HookList(hooks=found)


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
