"""Time, chance and secrets as the worker sees them: one object, so that a simulator can put its own in place.

Nothing else in the worker's loop reads a clock, sleeps or draws a number.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time


class Seams:
    """The real ones. A subclass answers differently; the loop does not notice."""

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def wait(self, event: asyncio.Event, seconds: float | None) -> bool:
        """Wait until the event is set or the time is over; says whether it is set."""
        if seconds is None:
            await event.wait()
            return True
        if event.is_set() or seconds <= 0:
            # A loop that never gives way would starve everything else on it.
            await asyncio.sleep(0)
            return event.is_set()
        try:
            async with asyncio.timeout(seconds):
                await event.wait()
        except TimeoutError:
            return False
        return True

    def chance(self) -> float:
        """A number from 0 to 1."""
        return random.random()  # noqa: S311 - spreads load, guards nothing

    def token(self) -> str:
        """A completion token: 256 bits that nobody can guess."""
        return secrets.token_urlsafe(32)

    def spread(self, seconds: float, by: float = 0.25) -> float:
        """About that long, so that many workers do not act in step."""
        return seconds * (1 + by * (2 * self.chance() - 1))
