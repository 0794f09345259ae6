"""The tables of conversations: what sessions of agents and savers of checkpoints keep beyond a run.

The row of a conversation is the lock of its items and has their number and size. It decides nothing;
`operations.conversations` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from stepkeep.store.columns import conversation_from, conversation_item_from, json_text
from stepkeep.store.part import Part, Rows, Statement
from stepkeep.store.reading import first
from stepkeep.store.rows import LAST_TIME, Conversation, ConversationItem

MOST_ITEMS = 100_000
MOST_BYTES = 256 * 1024 * 1024
"""What one conversation may have."""

BEHIND = "\U0010ffff"
"""Behind every key."""


class SavedItem(NamedTuple):
    """An item to save: without a place, behind the last of its key. With `keep`, one that is there stays as it is."""

    key: str
    value: bytes
    ordinal: int | None = None
    keep: bool = False


class ItemRange(NamedTuple):
    """Items with keys from `first` on and before `end`, at places from `low` to `high`."""

    first: str = ""
    end: str = BEHIND
    low: int = 0
    high: int = LAST_TIME


EVERY = ItemRange()


class _Full(Exception):
    """The conversation would be too large."""


class _Changed(Exception):
    """The conversation was changed meanwhile."""


class ConversationStore(Part):
    """The tables of conversations."""

    async def save(self, tenant: str, name: str, items: Sequence[SavedItem]) -> list[int] | None:
        """Save items, and answer their places; of one that was kept, the place that was asked for. None: they do not
        fit, and nothing is written."""
        which, time = (tenant, name), self._time()
        statements: list[Statement] = [(self._sql.save_conversation, (*which, time))]
        for one in items:
            place = (*which, one.key, one.ordinal)
            statements.append((self._sql.count_conversation_item, (*place, len(one.value), one.keep)))
            statements.append((self._sql.save_conversation_item, (*place, one.value, one.keep, time)))

        def check(found: Rows) -> None:
            [(count, size_bytes)] = found[-2]
            if count > MOST_ITEMS or size_bytes > MOST_BYTES:
                raise _Full

        try:
            found = await self._transact(statements, check)
        except _Full:
            return None
        return [int(rows[0][0]) if rows else one.ordinal or 0 for one, rows in zip(items, found[2::2], strict=True)]

    async def read(
        self,
        tenant: str,
        name: str,
        which: ItemRange = EVERY,
        *,
        past: tuple[str, int] | None = None,
        newest: bool = False,
        limit: int = 100,
    ) -> list[ConversationItem]:
        """Items by key and place, or the last one first; `past` is where the page before ended."""
        statement = self._sql.read_newest_conversation_items if newest else self._sql.read_conversation_items
        place = past or ((BEHIND, 0) if newest else ("", -1))
        asked = (tenant, name, which.first, which.end, *place, limit)
        return await self._read(conversation_item_from, statement, *asked)

    async def find(
        self, tenant: str, name: str, keys: Sequence[str], past: tuple[str, int] | None = None, limit: int = 100
    ) -> list[ConversationItem]:
        """The items under these keys."""
        asked = (tenant, name, json_text(list(keys)), *(past or ("", -1)), limit)
        return await self._read(conversation_item_from, self._sql.find_conversation_items, *asked)

    async def remove(self, tenant: str, name: str, ranges: Sequence[ItemRange]) -> int:
        """Delete items; returns how many."""
        statements: list[Statement] = [(self._sql.touch_conversation, (tenant, name, self._time()))]
        for one in ranges:
            asked = (tenant, name, *one)
            statements.append((self._sql.uncount_conversation_items, asked))
            statements.append((self._sql.delete_conversation_items, asked))
        return sum(len(rows) for rows in (await self._transact(statements))[2::2])

    async def delete(self, tenant: str, name: str, before: int = LAST_TIME) -> bool:
        """Delete a conversation with its items, unless it was changed since `before`. False: nothing is deleted."""

        def check(found: Rows) -> None:
            if not found[0]:
                raise _Changed

        statements = [
            (self._sql.delete_conversation, (tenant, name, before)),
            (self._sql.delete_conversation_items, (tenant, name, *EVERY)),
        ]
        try:
            await self._transact(statements, check)
        except _Changed:
            return False
        return True

    async def show(self, tenant: str, name: str) -> Conversation | None:
        return first(await self._read(conversation_from, self._sql.read_conversation, tenant, name))

    async def list_all(self, tenant: str, after: str = "", limit: int = 100) -> list[Conversation]:
        """Conversations by name."""
        return await self._read(conversation_from, self._sql.list_conversations, tenant, after, limit)

    async def find_old(self, tenant: str, before: int, limit: int) -> list[str]:
        """The names of conversations that were not changed since a moment, the oldest first."""
        return await self._read(lambda row: str(row[0]), self._sql.find_old_conversations, tenant, before, limit)
