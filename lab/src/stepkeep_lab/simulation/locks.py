"""Row locks of the model database: first come, first served, held until the end of the transaction, with deadlock
detection.

Keys are opaque. It knows sessions and keys, not rows; `database` calls it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable

from stepkeep.kernel.errors import Contended

LOCK_TIMEOUT = 10.0
LONG_WAIT = 1.0
"""How long a transaction waits for a row that many others want (seconds)."""


class Owner:
    """A holder of locks: a session of the database."""

    def __init__(self) -> None:
        self.holds: list[Hashable] = []
        self.waits_for: Hashable | None = None


class Locks:
    """Who holds which row, or shares it, and who waits for it. `waits` and `deadlocks` count what happened.

    `crowded_at` is when a session had waited long for a row, and again when it waits no longer.
    """

    def __init__(self) -> None:
        self._holder: dict[Hashable, Owner] = {}
        self._sharers: dict[Hashable, list[Owner]] = {}
        self._queue: dict[Hashable, deque[tuple[Owner, asyncio.Future[None], bool]]] = {}
        self.crowded_at: dict[Hashable, float] = {}
        self.waits = 0
        self.deadlocks = 0
        self.timeouts = 0

    def try_take(self, owner: Owner, key: Hashable) -> bool:
        """Take a lock if no other session has or shares it."""
        if self._holder.get(key) is owner:
            return True
        if self._others(owner, key):
            return False
        self._grant(owner, key, is_shared=False)
        return True

    def is_held(self, key: Hashable) -> bool:
        """Whether any session has this lock."""
        return key in self._holder or key in self._sharers

    async def take(self, owner: Owner, key: Hashable) -> None:
        """Take a lock, waiting for it; Contended when that would be a deadlock or takes too long."""
        if not self.try_take(owner, key):
            await self._wait(owner, key, is_shared=False)

    async def share(self, owner: Owner, key: Hashable) -> None:
        """Take a lock that others may share, waiting for the session that has it alone and for those that wait for it
        already."""
        if self._holder.get(key) is owner or owner in self._sharers.get(key, ()):
            return
        if key in self._holder or self._queue.get(key):
            await self._wait(owner, key, is_shared=True)
        else:
            self._grant(owner, key, is_shared=True)

    async def _wait(self, owner: Owner, key: Hashable, *, is_shared: bool) -> None:
        self.waits += 1
        if self._would_deadlock(owner, key):
            self.deadlocks += 1
            raise Contended("two transactions waited for each other; run the whole again")
        loop = asyncio.get_running_loop()
        granted: asyncio.Future[None] = loop.create_future()
        self._queue.setdefault(key, deque()).append((owner, granted, is_shared))
        owner.waits_for, began = key, loop.time()
        timer = loop.call_later(LOCK_TIMEOUT, self._give_up, granted)
        crowded = loop.call_later(LONG_WAIT, lambda: self.crowded_at.update({key: loop.time()}))
        try:
            await granted
        except BaseException:
            # Granted, but given up: release it, unless it was released already and has another owner now.
            self._queue[key] = deque(one for one in self._queue.get(key, ()) if one[1] is not granted)
            self._leave(owner, key)
            raise
        finally:
            owner.waits_for = None
            timer.cancel()
            crowded.cancel()
            if loop.time() - began >= LONG_WAIT:
                self.crowded_at[key] = loop.time()

    def release(self, owner: Owner) -> None:
        """The transaction ended: each of its locks goes to the session that waits longest."""
        for key in list(owner.holds):
            self._leave(owner, key)

    def _grant(self, owner: Owner, key: Hashable, *, is_shared: bool) -> None:
        if is_shared:
            self._sharers.setdefault(key, []).append(owner)
        else:
            self._holder[key] = owner
        owner.holds.append(key)

    def _leave(self, owner: Owner, key: Hashable) -> None:
        if self._holder.get(key) is owner:
            del self._holder[key]
        sharers = self._sharers.get(key, [])
        if owner in sharers:
            sharers.remove(owner)
        if not sharers:
            self._sharers.pop(key, None)
        owner.holds = [held for held in owner.holds if held != key]
        self._pass_on(key)

    def _pass_on(self, key: Hashable) -> None:
        """Grant the lock to the longest waiting session that can have it, and with it to those that may share it."""
        queue = self._queue.get(key)
        while queue:
            owner, granted, is_shared = queue[0]
            if not granted.done():
                if key in self._holder or (not is_shared and self._others(owner, key)):
                    return
                self._grant(owner, key, is_shared=is_shared)
                granted.set_result(None)
            queue.popleft()
        self._queue.pop(key, None)

    def _others(self, owner: Owner, key: Hashable) -> list[Owner]:
        """The other sessions that have or share a lock."""
        holder = self._holder.get(key)
        found = [*([] if holder is None else [holder]), *self._sharers.get(key, ())]
        return [one for one in found if one is not owner]

    def _give_up(self, granted: asyncio.Future[None]) -> None:
        if not granted.done():
            self.timeouts += 1
            granted.set_exception(Contended("a lock was not to be had in time; run the whole again"))

    def _would_deadlock(self, owner: Owner, key: Hashable) -> bool:
        """Whether this session would wait for one that waits for it. A session that only waits for the same lock, and
        came first, counts too."""
        seen: set[int] = set()
        ahead = self._ahead(owner, key)
        while ahead:
            other = ahead.pop()
            if other is owner:
                return True
            if id(other) not in seen:
                seen.add(id(other))
                if other.waits_for is not None:
                    ahead += self._ahead(other, other.waits_for)
        return False

    def _ahead(self, owner: Owner, key: Hashable) -> list[Owner]:
        """The sessions that must end before this one gets a lock."""
        waiting: list[Owner] = []
        for one, granted, _ in self._queue.get(key, ()):
            if one is owner:
                break
            if not granted.done():
                waiting.append(one)
        return self._others(owner, key) + waiting
