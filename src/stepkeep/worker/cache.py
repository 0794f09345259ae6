"""A cache of bytes with a limit on their total size: the least recently used entries are dropped first.

Only for immutable data: the details of a run, the output of a step that succeeded.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

OVERHEAD = 200
"""Approximate cost of an entry besides its payload."""


class Cache(Generic[K, V]):
    """Keys to values, each put with its size.

    >>> cache: Cache[str, bytes] = Cache(budget=1000)
    >>> cache.put("a", b"x" * 700, 700); cache.put("b", b"y", 1)
    >>> cache.get("a") is None, cache.get("b")
    (True, b'y')
    """

    def __init__(self, *, budget: int) -> None:
        self._budget, self._used = budget, 0
        self._entries: dict[K, tuple[V, int]] = {}

    def get(self, key: K) -> V | None:
        entry = self._entries.pop(key, None)
        if entry is None:
            return None
        self._entries[key] = entry
        return entry[0]

    def put(self, key: K, value: V, size: int) -> None:
        size += OVERHEAD
        if size > self._budget:
            return
        known = self._entries.pop(key, None)
        self._used += size - (0 if known is None else known[1])
        self._entries[key] = (value, size)
        while self._used > self._budget:
            oldest = next(iter(self._entries))
            self._used -= self._entries.pop(oldest)[1]

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def __len__(self) -> int:
        return len(self._entries)
