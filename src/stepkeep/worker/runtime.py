"""Clock, sleep, randomness and tokens of the worker, in one object that the simulator replaces.

Nothing else in the worker's loop reads a clock, sleeps or draws a number.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time


class Runtime:
    """The real ones. The simulator uses a subclass."""

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def wait(self, event: asyncio.Event, seconds: float | None) -> bool:
        """Wait until the event is set or the time is over. Returns whether it is set."""
        if seconds is None:
            await event.wait()
            return True
        if event.is_set() or seconds <= 0:
            # A loop that never yields would starve everything else on it.
            await asyncio.sleep(0)
            return event.is_set()
        try:
            async with asyncio.timeout(seconds):
                await event.wait()
        except TimeoutError:
            return False
        return True

    def chance(self) -> float:
        """A random number from 0 to 1."""
        return random.random()  # noqa: S311 - spreads load, guards nothing

    def token(self) -> str:
        """A completion token: 256 random bits."""
        return secrets.token_urlsafe(32)

    def spread(self, seconds: float, by: float = 0.25) -> float:
        """The duration with jitter, so that workers do not act in step."""
        return seconds * (1 + by * (2 * self.chance() - 1))
