"""Conversations of the model database. It follows the statements of the real stores, each in one round trip."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from stepkeep.store.conversations import EVERY, MOST_BYTES, MOST_ITEMS, ConversationStore, ItemRange, SavedItem
from stepkeep.store.rows import LAST_TIME, Conversation, ConversationItem
from stepkeep_lab.simulation.delivery_tables import Asking

if TYPE_CHECKING:
    from stepkeep_lab.simulation.database import Database

Key = tuple[str, str]


class ConversationRows:
    """Everything that is committed about conversations: when each was changed, and its items by key and place."""

    def __init__(self) -> None:
        self.changed: dict[Key, int] = {}
        self.items: dict[Key, dict[tuple[str, int], ConversationItem]] = {}

    def shown(self, key: Key) -> Conversation:
        items = self.items[key].values()
        size_bytes = sum(len(one.value) for one in items)
        return Conversation(
            tenant=key[0], name=key[1], items=len(items), size_bytes=size_bytes, changed_at=self.changed[key]
        )

    def within(self, key: Key, which: ItemRange) -> list[ConversationItem]:
        return [
            one
            for (name, place), one in sorted(self.items.get(key, {}).items())
            if which.first <= name < which.end and which.low <= place <= which.high
        ]


class ModelConversations(ConversationStore):
    """`ConversationStore` on the model database."""

    def __init__(self, database: Database, wire: Asking, clock: Callable[[], int]) -> None:
        self._database, self._wire, self._clock = database, wire, clock

    @property
    def _rows(self) -> ConversationRows:
        return self._database.tables.conversations

    async def save(self, tenant: str, name: str, items: Sequence[SavedItem]) -> list[int] | None:
        def work() -> list[int] | None:
            key, rows = (tenant, name), dict(self._rows.items.get((tenant, name), {}))
            places = []
            for one in items:
                last = max((place for of, place in rows if of == one.key), default=-1)
                place = last + 1 if one.ordinal is None else one.ordinal
                places.append(place)
                if not (one.keep and (one.key, place) in rows):
                    rows[one.key, place] = ConversationItem(
                        tenant=tenant,
                        conversation=name,
                        key=one.key,
                        ordinal=place,
                        at=self._clock(),
                        value=one.value,
                    )
            if len(rows) > MOST_ITEMS or sum(len(one.value) for one in rows.values()) > MOST_BYTES:
                return None
            self._rows.items[key], self._rows.changed[key] = rows, self._clock()
            return places

        return await self._wire.ask("save conversation", work)

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
        def look() -> list[ConversationItem]:
            found = self._rows.within((tenant, name), which)
            if newest:
                return [one for one in reversed(found) if past is None or (one.key, one.ordinal) < past][:limit]
            return [one for one in found if past is None or (one.key, one.ordinal) > past][:limit]

        return await self._wire.ask("read conversation", look)

    async def find(
        self, tenant: str, name: str, keys: Sequence[str], past: tuple[str, int] | None = None, limit: int = 100
    ) -> list[ConversationItem]:
        def look() -> list[ConversationItem]:
            found = [one for one in self._rows.within((tenant, name), EVERY) if one.key in keys]
            return [one for one in found if past is None or (one.key, one.ordinal) > past][:limit]

        return await self._wire.ask("find items", look)

    async def remove(self, tenant: str, name: str, ranges: Sequence[ItemRange]) -> int:
        def work() -> int:
            key = (tenant, name)
            if key not in self._rows.items:
                return 0
            gone = {(one.key, one.ordinal) for which in ranges for one in self._rows.within(key, which)}
            self._rows.items[key] = {place: one for place, one in self._rows.items[key].items() if place not in gone}
            self._rows.changed[key] = self._clock()
            return len(gone)

        return await self._wire.ask("remove items", work)

    async def delete(self, tenant: str, name: str, before: int = LAST_TIME) -> bool:
        def work() -> bool:
            key = (tenant, name)
            if self._rows.changed.get(key, LAST_TIME) >= before:
                return False
            del self._rows.items[key], self._rows.changed[key]
            return True

        return await self._wire.ask("delete conversation", work)

    async def show(self, tenant: str, name: str) -> Conversation | None:
        rows = self._rows
        return await self._wire.ask(
            "show conversation", lambda: rows.shown((tenant, name)) if (tenant, name) in rows.items else None
        )

    async def list_all(self, tenant: str, after: str = "", limit: int = 100) -> list[Conversation]:
        def look() -> list[Conversation]:
            found = sorted(key for key in self._rows.items if key[0] == tenant and key[1] > after)
            return [self._rows.shown(key) for key in found[:limit]]

        return await self._wire.ask("list conversations", look)

    async def find_old(self, tenant: str, before: int, limit: int) -> list[str]:
        def look() -> list[str]:
            old = sorted((at, key[1]) for key, at in self._rows.changed.items() if key[0] == tenant and at < before)
            return [name for _, name in old[:limit]]

        return await self._wire.ask("find old conversations", look)
