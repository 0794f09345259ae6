"""Measures by how much the event loop of this process is late, four times a second, while it is asked to.

It does nothing else. The exposition begins and ends it.
"""

from __future__ import annotations

import asyncio

PAUSE_SECONDS = 0.25
KEPT = 40
"""How many of the last measurements count: ten seconds, so that no scrape misses a long stop."""


class LoopLag:
    """The lag of the running loop."""

    def __init__(self) -> None:
        self._last: list[float] = [0.0]
        self._task: asyncio.Task[None] | None = None

    @property
    def seconds(self) -> float:
        """The most by which it was late in the last ten seconds."""
        return max(self._last)

    def begin(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._measure(), name="loop lag")

    async def close(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _measure(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            await asyncio.sleep(PAUSE_SECONDS)
            self._last = [*self._last[1 - KEPT :], max(0.0, loop.time() - began - PAUSE_SECONDS)]
