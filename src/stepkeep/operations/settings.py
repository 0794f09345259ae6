"""Settings of a tenant in revisions: saves the next one, reads the newest, lists what there is and what there was.

A setting is never changed or deleted: removing it saves a revision without content. So every change is on record with
its time and its actor. It knows no kind of setting; `network`, `hooks` and `withdrawn` call it.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any

import msgspec

from stepkeep.kernel.people.authority import Caller
from stepkeep.operations import validate
from stepkeep.operations.answers import Answer
from stepkeep.operations.instants import instant
from stepkeep.operations.pipeline.group_commit import again_if_contended
from stepkeep.store.change import StoredSetting
from stepkeep.store.protocol import Store

PAGE = 1000

_encode = msgspec.json.Encoder(order="sorted").encode
_decode = msgspec.json.Decoder().decode


class SettingKind(StrEnum):
    NETWORK = "network"
    HOOK = "hook"
    QUOTA = "quota"
    PAUSE = "pause"
    WITHDRAWN = "withdrawn"
    SLOTS = "slots"
    RESOURCES = "resources"
    SIGNING = "signing"
    LIMIT = "limit"


async def read_setting(store: Store, tenant: str, kind: SettingKind, name: str) -> Any:
    """The content of a setting; None if there is none, or it was removed."""
    stored = await store.read_setting(tenant, kind.value, name)
    return None if stored is None else _decode(stored.document)


async def change_setting(
    store: Store, kind: SettingKind, name: str, change: Callable[[Any], Any], *, caller: Caller
) -> Any:
    """Save what `change` makes of the newest content (None: there is none) and return it; the same is not saved again.

    `change` may be called more than once, and may raise a refusal.
    """
    actor = validate.key("the actor", caller.actor)

    async def save() -> Any:
        newest = await store.read_setting(caller.tenant, kind.value, name)
        before = None if newest is None else _decode(newest.document)
        content = change(before)
        if content != before:
            revision = 1 if newest is None else newest.revision + 1
            await store.save_setting(caller.tenant, kind.value, name, revision, _encode(content), actor)
        return content

    return await again_if_contended(save)


async def list_kind(store: Store, tenant: str, kind: SettingKind) -> list[StoredSetting]:
    """The newest revision of each setting of this kind that was not removed, by name."""
    found: list[StoredSetting] = []
    page = await store.list_settings(tenant, kind.value, limit=PAGE)
    while page:
        found += page
        page = [] if len(page) < PAGE else await store.list_settings(tenant, kind.value, page[-1].name, PAGE)
    return [one for one in found if one.document != b"null"]


class Revision(Answer, kw_only=True):
    """A setting as it was saved. Without content: it was removed."""

    revision: int
    at: str
    by: str
    content: Any


async def revisions(store: Store, tenant: str, kind: SettingKind, name: str) -> list[Revision]:
    """Every revision, newest first."""
    found: list[Revision] = []
    stored = await store.read_setting(tenant, kind.value, name)
    while stored is not None:
        found.append(
            Revision(
                revision=stored.revision,
                at=instant(stored.saved_at),
                by=stored.saved_by,
                content=_decode(stored.document),
            )
        )
        if stored.revision == 1:
            break
        stored = await store.read_setting(tenant, kind.value, name, stored.revision - 1)
    return found
