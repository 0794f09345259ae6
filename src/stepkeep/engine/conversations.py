"""`engine.conversations`: what agents keep beyond a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta

from stepkeep.engine.arguments import moment
from stepkeep.engine.base import AsyncGroup
from stepkeep.engine.blocking import Blocking, blocking
from stepkeep.operations import conversations
from stepkeep.operations.access import COMPLETE, OPERATE, READ
from stepkeep.operations.answers import says
from stepkeep.operations.conversations import (
    MOST_AT_ONCE,
    MOST_KEY,
    ConversationList,
    DeletedConversations,
    ItemPage,
    ItemPlace,
    NewItem,
    RemovedItems,
    SavedItems,
)
from stepkeep.operations.operation import Limit, Name, PageLimit, Time, group, operation

Prefix = Annotated[str, Meta(max_length=MOST_KEY)]
Prefixes = Annotated[Sequence[Prefix], Meta(max_length=MOST_AT_ONCE)]
Items = Annotated[Sequence[NewItem], Meta(max_length=MOST_AT_ONCE)]
Place = Annotated[ItemPlace | None, says("Where an item stands.")]


@group("conversations", "Conversations")
class AsyncConversations(AsyncGroup):
    """Conversations of agents: items by key and place, which outlive runs. Sessions and savers of `stepkeep.agents`
    keep theirs here.

    >>> engine.conversations.save("ada", [{"key": "turn", "value": "Hello"}, {"key": "turn", "value": "Bye"}]).ordinals
    [0, 1]
    >>> [item.value for item in engine.conversations.read("ada").contents]
    ['Hello', 'Bye']
    """

    @operation(
        COMPLETE,
        "POST /conversations/items",
        "save_items",
        "Save items of a conversation",
        example={"conversation": "ada", "items": [{"key": "turn", "value": {"text": "Hello"}}]},
    )
    async def save(self, conversation: Name, items: Items) -> SavedItems:
        """Save items in one transaction, and make the conversation if need be. An item without `ordinal` comes behind
        the last one of its key; with `keep`, one that is there stays. Values are JSON of at most 2 MiB.

        >>> engine.conversations.save("bea", [{"key": "state", "ordinal": 0, "value": [1]}]).ordinals
        [0]
        """
        return await conversations.save(self._transactor, conversation, items, tenant=self._tenant)

    @operation(
        READ,
        "POST /conversations/items/read",
        "read_items",
        "Read items of a conversation",
        example={"conversation": "ada", "prefix": "turn", "newest": True, "limit": 10},
    )
    async def read(
        self,
        conversation: Name,
        *,
        prefix: Annotated[Prefix, says("Only keys that begin with this.")] = "",
        keys: Annotated[Prefixes | None, says("Only these keys.")] = None,
        past: Annotated[Place, says("The place of the last item of the page before.")] = None,
        newest: Annotated[bool, says("The last one first.")] = False,
        limit: PageLimit = 100,
    ) -> ItemPage:
        """Items in the order of key and place. An answer has at most 4 MiB of them.

        >>> engine.conversations.read("nobody").contents
        []
        """
        return await conversations.read(
            self._transactor,
            conversation,
            tenant=self._tenant,
            prefix=prefix,
            keys=keys,
            past=past,
            newest=newest,
            limit=limit,
        )

    @operation(
        COMPLETE,
        "POST /conversations/items/remove",
        "remove_items",
        "Remove items of a conversation",
        example={"conversation": "ada", "place": {"key": "turn", "ordinal": 1}},
    )
    async def remove(
        self,
        conversation: Name,
        *,
        prefixes: Annotated[Prefixes, says("Those whose keys begin with one of these.")] = (),
        place: Annotated[Place, says("The one that stands here.")] = None,
    ) -> RemovedItems:
        """Remove items.

        >>> engine.conversations.remove("nobody", prefixes=["turn"]).removed
        0
        """
        return await conversations.remove(
            self._transactor, conversation, tenant=self._tenant, prefixes=prefixes, place=place
        )

    @operation(READ, "GET /conversations", "list_conversations", "List conversations")
    async def list(
        self, *, after: Annotated[str, Meta(max_length=255, description="Behind this name.")] = "", limit: Limit = 100
    ) -> ConversationList:
        """Conversations by name, with their sizes.

        >>> engine.conversations.list(after="zzz").conversations
        []
        """
        return await conversations.list_all(self._transactor, tenant=self._tenant, after=after, limit=limit)

    @operation(COMPLETE, "DELETE /conversations/{conversation:path}", "delete_conversation", "Delete a conversation")
    async def delete(self, conversation: Name) -> DeletedConversations:
        """Delete a conversation with everything in it.

        >>> _ = engine.conversations.save("cyd", [{"key": "turn", "value": "Hello"}])
        >>> engine.conversations.delete("cyd").deleted
        ['cyd']
        """
        return await conversations.delete(self._transactor, conversation, tenant=self._tenant)

    @operation(
        OPERATE,
        "POST /conversations/prune",
        "prune_conversations",
        "Delete old conversations",
        example={"before": "2026-01-01T00:00:00Z"},
    )
    async def prune(self, before: Time) -> DeletedConversations:
        """Delete conversations that were not changed since a moment.

        >>> from datetime import UTC, datetime
        >>> engine.conversations.prune(datetime(2020, 1, 1, tzinfo=UTC)).deleted
        []
        """
        since = moment("conversations.prune: before", before) or 0
        return await conversations.prune(self._transactor, since, tenant=self._tenant)


class Conversations(Blocking[AsyncConversations]):
    save, read = blocking(AsyncConversations.save), blocking(AsyncConversations.read)
    remove, delete = blocking(AsyncConversations.remove), blocking(AsyncConversations.delete)
    prune = blocking(AsyncConversations.prune)
    list = blocking(AsyncConversations.list)
