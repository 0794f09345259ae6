"""Answers which roles and groups a person has. The store's tables are the default; another source may stand in.

It is for views and explanations. A decision reads the store's tables itself, in its own transaction: a directory that
is far away is asked before, and what it said is granted there with dates.
"""

from __future__ import annotations

from typing import Protocol

from stepkeep.kernel.people.authority import Authority, Caller
from stepkeep.store.protocol import Store


class Directory(Protocol):
    """The one question about people: what does this caller bring?"""

    async def authority(self, caller: Caller) -> Authority:
        """The registered person with memberships and delegations; an unknown name is a person without any."""
        ...


class StoreDirectory:
    """The directory that the tables of people are."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def authority(self, caller: Caller) -> Authority:
        return (await self._store.people.read_authorities([caller]))[caller]
