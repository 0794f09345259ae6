"""Row locks of the model database: first come, first served, held until the end of the transaction, with deadlock
detection.

Keys are opaque. It knows sessions and keys, not rows; `database` calls it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable

from stepkeep.errors import Contended

LOCK_TIMEOUT = 10.0


class Owner:
    """Somebody who can hold locks: a session of the database."""

    def __init__(self) -> None:
        self.holds: list[Hashable] = []
        self.waits_for: Hashable | None = None


class Locks:
    """Who holds which row, and who waits for it. `waits` and `deadlocks` count what happened."""

    def __init__(self) -> None:
        self._holder: dict[Hashable, Owner] = {}
        self._queue: dict[Hashable, deque[tuple[Owner, asyncio.Future[None]]]] = {}
        self.waits = 0
        self.deadlocks = 0
        self.timeouts = 0

    def try_take(self, owner: Owner, key: Hashable) -> bool:
        """Take a lock if nobody else has it."""
        holder = self._holder.get(key)
        if holder is None:
            self._holder[key] = owner
            owner.holds.append(key)
            return True
        return holder is owner

    def is_held(self, key: Hashable) -> bool:
        """Whether any session has this lock."""
        return key in self._holder

    async def take(self, owner: Owner, key: Hashable) -> None:
        """Take a lock, waiting for it; Contended when that would be a deadlock or takes too long."""
        if self.try_take(owner, key):
            return
        self.waits += 1
        if self._would_deadlock(owner, key):
            self.deadlocks += 1
            raise Contended("two transactions waited for each other; run the whole again")
        loop = asyncio.get_running_loop()
        granted: asyncio.Future[None] = loop.create_future()
        queue = self._queue.setdefault(key, deque())
        queue.append((owner, granted))
        owner.waits_for = key
        timer = loop.call_later(LOCK_TIMEOUT, self._give_up, granted)
        try:
            await granted
        except BaseException:
            # Granted, but given up: release it, unless it was released already and has another owner now.
            if self._holder.get(key) is owner:
                owner.holds.remove(key)
                self._pass_on(key)
            self._queue[key] = deque(one for one in self._queue.get(key, ()) if one[1] is not granted)
            raise
        finally:
            owner.waits_for = None
            timer.cancel()

    def release(self, owner: Owner) -> None:
        """The transaction ended: each of its locks goes to the session that waits longest."""
        held, owner.holds = owner.holds, []
        for key in held:
            self._pass_on(key)

    def _pass_on(self, key: Hashable) -> None:
        queue = self._queue.get(key)
        while queue:
            owner, granted = queue.popleft()
            if not granted.done():
                self._holder[key] = owner
                owner.holds.append(key)
                granted.set_result(None)
                return
        self._holder.pop(key, None)
        self._queue.pop(key, None)

    def _give_up(self, granted: asyncio.Future[None]) -> None:
        if not granted.done():
            self.timeouts += 1
            granted.set_exception(Contended("a lock was not to be had in time; run the whole again"))

    def _would_deadlock(self, owner: Owner, key: Hashable) -> bool:
        seen = 0
        holder = self._holder.get(key)
        while holder is not None and seen < 1000:
            if holder is owner:
                return True
            if holder.waits_for is None:
                return False
            holder = self._holder.get(holder.waits_for)
            seen += 1
        return False
