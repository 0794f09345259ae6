"""Outcomes on their way to the database, in natural groups: what gathers while one commit is under way forms the next.

Two lanes, split by run, so that one run is never in two transactions at once; nothing waits when idle. A lane knows
nothing of what it carries; the loop gives it the function that commits a batch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from stepkeep.kernel.outcomes import Outcome
from stepkeep.worker.executor import Job

Report = tuple[Job, Outcome]

LANES = 2
BATCH = 500


class Reports:
    """The lanes. `commit` must answer for every report it was given before it returns, and raises nothing."""

    def __init__(self, commit: Callable[[list[Report]], Awaitable[None]]) -> None:
        self._commit = commit
        self._waiting: list[list[Report]] = [[] for _ in range(LANES)]
        self._flushing: list[asyncio.Task[None] | None] = [None] * LANES

    def put(self, reports: Iterable[Report]) -> None:
        for report in reports:
            # Run ids are text of any kind; the last sign of the usual ones is as good as drawn by lot.
            self._waiting[ord(report[0].claim.run_id[-1]) % LANES].append(report)
        for lane, task in enumerate(self._flushing):
            if self._waiting[lane] and (task is None or task.done()):
                self._flushing[lane] = asyncio.get_running_loop().create_task(self._flush(lane))

    @property
    def idle(self) -> bool:
        return all(task is None or task.done() for task in self._flushing)

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        return [task for task in self._flushing if task is not None]

    async def _flush(self, lane: int) -> None:
        while self._waiting[lane]:
            batch, self._waiting[lane] = self._waiting[lane][:BATCH], self._waiting[lane][BATCH:]
            await self._commit(batch)
