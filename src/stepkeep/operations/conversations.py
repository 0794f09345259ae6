"""Conversations of agents: items by key and place that outlive runs, such as turns of a session or states of a graph.

They are JSON, sealed by the codec, and belong to a tenant. A conversation is bounded; those that nobody changed for a
time are deleted by `prune`. It knows no framework: `stepkeep.agents` lays sessions and checkpoints out in it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any, NotRequired, TypedDict

import msgspec
from msgspec import Meta

from stepkeep.edges.safe_text import exception_text
from stepkeep.kernel.errors import Conflict, InvalidInput, NotFound
from stepkeep.operations import validate
from stepkeep.operations.answers import Answer, says
from stepkeep.operations.instants import instant
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.store.conversations import BEHIND, MOST_BYTES, MOST_ITEMS, ItemRange, SavedItem
from stepkeep.store.rows import ConversationItem

MOST_KEY = 1_000
MOST_ITEM_BYTES = 2 * 1024 * 1024
MOST_AT_ONCE = 1_000
"""How many items are saved or read at once."""
MOST_PAGE_BYTES = 4 * 1024 * 1024
PRUNE_AT_ONCE = 100


class NewItem(TypedDict):
    """An item to save."""

    key: Annotated[str, Meta(min_length=1, max_length=MOST_KEY)]
    value: Any
    ordinal: NotRequired[Annotated[int, Meta(ge=0, le=2**31)] | None]
    keep: NotRequired[bool]


class ItemPlace(TypedDict):
    """Where an item stands."""

    key: Annotated[str, Meta(max_length=MOST_KEY)]
    ordinal: Annotated[int, Meta(ge=0, le=2**31)]


class Item(Answer, kw_only=True):
    """An item of a conversation."""

    key: str
    ordinal: int
    value: Any
    at: str | None


class ItemPage(Answer, kw_only=True):
    """Items of a conversation."""

    contents: list[Item]
    more: Annotated[bool, says("Whether there are others.")]


class SavedItems(Answer, kw_only=True):
    """The places of what was saved."""

    ordinals: list[int]


class RemovedItems(Answer, kw_only=True):
    """How many items were removed."""

    removed: int


class ConversationView(Answer, kw_only=True):
    """A conversation."""

    name: str
    count: Annotated[int, says("How many items it has.")]
    size_bytes: int
    changed_at: str | None


class ConversationList(Answer, kw_only=True):
    """Conversations by name."""

    conversations: list[ConversationView]
    more: Annotated[bool, says("Whether there are others.")]


class DeletedConversations(Answer, kw_only=True):
    """The names of the conversations that were deleted."""

    deleted: list[str]


async def save(transactor: Transactor, name: str, items: Sequence[NewItem], *, tenant: str) -> SavedItems:
    """Save items in one transaction."""
    wanted = validate.key("the conversation", name)
    if not 0 < len(items) <= MOST_AT_ONCE:
        raise InvalidInput(f"conversations.save: give 1 to {MOST_AT_ONCE} items, not {len(items)}.")
    seal = transactor.payloads.seal
    given = [_saved(one) for one in items]
    if seal.is_on:
        given = await asyncio.to_thread(lambda: [one._replace(value=seal.seal(one.value)) for one in given])
    places = await transactor.store.conversations.save(tenant, wanted, given)
    if places is None:
        raise Conflict(
            f"the conversation {wanted} would have more than {MOST_ITEMS} items or {MOST_BYTES >> 20} MiB; "
            "nothing was saved. Remove some, or begin another conversation."
        )
    return SavedItems(ordinals=places)


def _saved(item: NewItem) -> SavedItem:
    key = validate.key("the key of an item", item["key"], MOST_KEY)
    try:
        value = msgspec.json.encode(item["value"])
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as problem:
        raise InvalidInput(f"the item {key} is no JSON: {exception_text(problem)}") from None
    if len(value) > MOST_ITEM_BYTES:
        raise InvalidInput(f"the item {key} is {len(value)} bytes; at most {MOST_ITEM_BYTES} fit.")
    return SavedItem(key, value, item.get("ordinal"), bool(item.get("keep")))


async def read(
    transactor: Transactor,
    name: str,
    *,
    tenant: str,
    prefix: str,
    keys: Sequence[str] | None,
    past: ItemPlace | None,
    newest: bool,
    limit: int,
) -> ItemPage:
    """Items by key and place, as far as they fit into one answer."""
    wanted, store = validate.key("the conversation", name), transactor.store.conversations
    place = None if past is None else (_text(past["key"]), past["ordinal"])
    if keys is not None:
        if len(keys) > MOST_AT_ONCE:
            raise InvalidInput(f"conversations.read: ask for at most {MOST_AT_ONCE} keys at once.")
        rows = await store.find(tenant, wanted, [_text(one) for one in keys], place, limit + 1)
    else:
        rows = await store.read(tenant, wanted, _under(prefix), past=place, newest=newest, limit=limit + 1)
    told: list[Item] = []
    size_bytes = 0
    for one in rows[:limit]:
        size_bytes += len(one.value)
        if told and size_bytes > MOST_PAGE_BYTES:
            break
        told.append(_item(transactor, one))
    return ItemPage(contents=told, more=len(told) < len(rows))


def _item(transactor: Transactor, row: ConversationItem) -> Item:
    value = msgspec.json.decode(transactor.payloads.seal.opened(row.value))
    return Item(key=row.key, ordinal=row.ordinal, value=value, at=instant(row.at))


def _under(prefix: str) -> ItemRange:
    return ItemRange(_text(prefix), prefix + BEHIND)


def _text(key: str) -> str:
    """A key, or what one begins with."""
    return validate.key("the key of an item", key, MOST_KEY) if key else key


async def remove(
    transactor: Transactor,
    name: str,
    *,
    tenant: str,
    prefixes: Sequence[str],
    place: ItemPlace | None,
) -> RemovedItems:
    """Remove the items whose keys begin with one of these, or the one at a place."""
    wanted = validate.key("the conversation", name)
    ranges = [_under(prefix) for prefix in prefixes[:MOST_AT_ONCE]]
    if place is not None:
        ranges.append(ItemRange(_text(place["key"]), place["key"] + "\x01", place["ordinal"], place["ordinal"]))
    if not ranges:
        raise InvalidInput("conversations.remove: say which items: `prefixes`, or the place of one.")
    return RemovedItems(removed=await transactor.store.conversations.remove(tenant, wanted, ranges))


async def list_all(transactor: Transactor, *, tenant: str, after: str, limit: int) -> ConversationList:
    """Conversations by name."""
    found = await transactor.store.conversations.list_all(tenant, after, limit + 1)
    told = [
        ConversationView(name=one.name, count=one.items, size_bytes=one.size_bytes, changed_at=instant(one.changed_at))
        for one in found[:limit]
    ]
    return ConversationList(conversations=told, more=len(found) > limit)


async def delete(transactor: Transactor, name: str, *, tenant: str) -> DeletedConversations:
    """Delete a conversation with everything in it."""
    wanted = validate.key("the conversation", name)
    if not await transactor.store.conversations.delete(tenant, wanted):
        raise NotFound(f"there is no conversation {wanted}")
    return DeletedConversations(deleted=[wanted])


async def prune(transactor: Transactor, before: int, *, tenant: str) -> DeletedConversations:
    """Delete conversations that were not changed since a moment."""
    store = transactor.store.conversations
    deleted: list[str] = []
    while old := await store.find_old(tenant, before, PRUNE_AT_ONCE):
        gone = [name for name in old if await store.delete(tenant, name, before)]
        deleted += gone
        if not gone:
            break
    return DeletedConversations(deleted=deleted)
