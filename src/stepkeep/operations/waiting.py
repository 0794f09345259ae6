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
from stepkeep.store.bell import within
from stepkeep.store.protocol import RESTED, Hint, RunKey, Store

PAUSES, RARE_PAUSES = (0.002, 0.5), (0.01, 2.0)
"""Seconds between polls, the first and the longest: without notifications, and with them."""

log = logging.getLogger(__name__)


class _Wish(msgspec.Struct, frozen=True, eq=False):
    """One waiter: a run and the states it waits for."""

    key: RunKey
    states: frozenset[RunState]
    answer: asyncio.Future[RunState]


class Waiting:
    """All waiters of this process. One per engine."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._wishes: dict[_Wish, None] = {}
        self._looking: asyncio.Task[None] | None = None
        self._nudge = asyncio.Event()
        self._deafen: Callable[[], None] | None = None

    async def until(self, tenant: str, run_id: str, states: Collection[RunState]) -> RunState:
        """Return the state of the run once it is one of these."""
        loop = asyncio.get_running_loop()
        wish = _Wish((tenant, run_id), frozenset(states), loop.create_future())
        self._wishes[wish] = None
        self._nudge.set()
        if self._looking is None or self._looking.done() or self._looking.get_loop() is not loop:
            self._nudge = asyncio.Event()
            self._deafen = self._deafen or self._store.bell.listen(self._heard)
            self._looking = loop.create_task(self._look_on())
        try:
            return await wish.answer
        finally:
            self._wishes.pop(wish, None)

    def _heard(self, hint: Hint) -> None:
        if hint.concerns((RESTED,)):
            self._nudge.set()

    async def close(self) -> None:
        """Stop listening; remaining waiters get the reason."""
        deafen, self._deafen = self._deafen, None
        if deafen is not None:
            deafen()
        for wish in self._wishes:
            _answer(wish, StoreUnavailable("the engine was closed during a wait for a run"))
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    async def _look_on(self) -> None:
        bell, clock = self._store.bell, asyncio.get_running_loop().time
        pause = 0.0
        while self._wishes:
            self._nudge.clear()
            began = clock()
            found = await self._look()
            # Polling without a pause would slow down the workers that the waiters wait for.
            await asyncio.sleep(clock() - began)
            shortest, longest = RARE_PAUSES if bell.is_heard else PAUSES
            pause = shortest if found else min(longest, max(shortest, pause * 2))
            if await within(pause, self._nudge):
                pause = 0.0

    async def _look(self) -> bool:
        """Answer the waiters whose runs have settled. Returns whether there were any."""
        wishes = [wish for wish in self._wishes if not wish.answer.done()]
        try:
            states = await self._store.read_states(list(dict.fromkeys(wish.key for wish in wishes)))
        except StoreUnavailable as problem:
            log.debug("cannot look at the moment: %s", problem)
            return False
        except Unreadable as problem:
            for wish in wishes:
                if wish.key == (problem.tenant, problem.run_id):
                    _answer(wish, problem)
            return True
        except Exception as problem:  # noqa: BLE001 - whatever it is, those who wait must hear of it
            for wish in wishes:
                _answer(wish, problem)
            return True
        answered = False
        for wish in wishes:
            state = states.get(wish.key)
            if state is None:
                _answer(wish, NotFound(f"there is no run {wish.key[1]}"))
            elif state in wish.states:
                _answer(wish, state)
            answered |= state is None or state in wish.states
        return answered


def _answer(wish: _Wish, said: RunState | Exception) -> None:
    if wish.answer.done():
        return
    if isinstance(said, Exception):
        wish.answer.set_exception(said)
    else:
        wish.answer.set_result(said)
