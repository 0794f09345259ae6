"""Waits for runs to settle: all waiters of one process share each poll.

A notification triggers a poll at once; without one, the polling interval doubles up to its limit. A poll is one
statement for all waiters, and polls never run back to back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection

import msgspec

from stepkeep.errors import NotFound, StoreUnavailable, Unreadable
from stepkeep.kernel.states import RunState
from stepkeep.store.notifications import within
from stepkeep.store.protocol import RUNS_SETTLED, Notification, RunKey, Store

PAUSES, RARE_PAUSES = (0.002, 0.5), (0.01, 2.0)
"""Seconds between polls, the first and the longest: without notifications, and with them."""

log = logging.getLogger(__name__)


class _Waiter(msgspec.Struct, frozen=True, eq=False):
    """One waiter: a run and the states it waits for."""

    key: RunKey
    states: frozenset[RunState]
    answer: asyncio.Future[RunState]


class RunWaiter:
    """All waiters of this process. One per engine."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiters: dict[_Waiter, None] = {}
        self._polling: asyncio.Task[None] | None = None
        self._notification = asyncio.Event()
        self._unsubscribe: Callable[[], None] | None = None

    async def until(self, tenant: str, run_id: str, states: Collection[RunState]) -> RunState:
        """Return the state of the run once it is one of these."""
        loop = asyncio.get_running_loop()
        waiter = _Waiter((tenant, run_id), frozenset(states), loop.create_future())
        self._waiters[waiter] = None
        self._notification.set()
        if self._polling is None or self._polling.done() or self._polling.get_loop() is not loop:
            self._notification = asyncio.Event()
            self._unsubscribe = self._unsubscribe or self._store.notifier.listen(self._notified)
            self._polling = loop.create_task(self._poll_while_waited_for())
        try:
            return await waiter.answer
        finally:
            self._waiters.pop(waiter, None)

    def _notified(self, notification: Notification) -> None:
        named = notification.runs_of(RUNS_SETTLED)
        if named is None or any(waiter.key[1] in named for waiter in self._waiters):
            self._notification.set()

    async def close(self) -> None:
        """Stop listening; remaining waiters get the reason."""
        unsubscribe, self._unsubscribe = self._unsubscribe, None
        if unsubscribe is not None:
            unsubscribe()
        for waiter in self._waiters:
            _answer(waiter, StoreUnavailable("the engine was closed during a wait for a run"))
        if self._polling is not None:
            self._polling.cancel()
            await asyncio.gather(self._polling, return_exceptions=True)

    async def _poll_while_waited_for(self) -> None:
        notifier, clock = self._store.notifier, asyncio.get_running_loop().time
        pause = 0.0
        while self._waiters:
            self._notification.clear()
            began = clock()
            found = await self._poll()
            # Polling without a pause would slow down the workers that the waiters wait for.
            await asyncio.sleep(clock() - began)
            shortest, longest = RARE_PAUSES if notifier.is_connected else PAUSES
            pause = shortest if found else min(longest, max(shortest, pause * 2))
            if await within(pause, self._notification):
                pause = 0.0

    async def _poll(self) -> bool:
        """Answer the waiters whose runs have settled. Returns whether there were any."""
        waiters = [waiter for waiter in self._waiters if not waiter.answer.done()]
        try:
            states = await self._store.read_states(list(dict.fromkeys(waiter.key for waiter in waiters)))
        except StoreUnavailable as problem:
            log.debug("cannot poll at the moment: %s", problem)
            return False
        except Unreadable as problem:
            for waiter in waiters:
                if waiter.key == (problem.tenant, problem.run_id):
                    _answer(waiter, problem)
            return True
        except Exception as problem:  # noqa: BLE001 - every waiter gets the reason
            for waiter in waiters:
                _answer(waiter, problem)
            return True
        answered = False
        for waiter in waiters:
            state = states.get(waiter.key)
            if state is None:
                _answer(waiter, NotFound(f"there is no run {waiter.key[1]}"))
            elif state in waiter.states:
                _answer(waiter, state)
            answered |= state is None or state in waiter.states
        return answered


def _answer(waiter: _Waiter, said: RunState | Exception) -> None:
    if waiter.answer.done():
        return
    if isinstance(said, Exception):
        waiter.answer.set_exception(said)
    else:
        waiter.answer.set_result(said)
